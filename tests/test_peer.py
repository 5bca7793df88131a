"""The same next token as llama.cpp wherever that is sure of it, on both real models, over ten prompts."""
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import lode_client as lc
from f32_model import float32_copy
from lode_eval import logits

PROMPTS = ['The capital of France is', 'Once upon a time, in a small village by the sea,', 'def fibonacci(n):\n    """Return the',
           'Water boils at 100 degrees Celsius, which is', 'Liebe Freunde, heute möchte ich euch', '1, 2, 3, 4, 5, 6,',
           'The three laws of thermodynamics state that', 'SELECT name, price FROM products WHERE', '{"name": "Ada", "born":',
           'In the beginning of the twentieth century, physics was shaken by two ideas:']
GENERATED, SURE = 32, 0.3
# Both engines round activations to int8, each in its own way, and SmolLM2's have outliers: at a few positions that rounding
# is larger than llama.cpp's lead. Who is right there is settled by the same weights in float32 (f32_model.py), whose
# activations nobody rounds: where these have the peer's token ahead, and by SURE, Lode is wrong (docs/numerics.md,
# "Beside llama.cpp").
FEW = 0.01


@pytest.fixture
def peer(model, workdir):
    pytest.importorskip('xllamacpp', reason='the peer (xllamacpp, from PyPI) is not installed: run scripts/setup.sh --tests')
    port = lc.free_port()
    script = pathlib.Path(__file__).with_name('peer.py')
    with open(workdir / 'peer.log', 'wb') as log:
        process = subprocess.Popen([sys.executable, str(script), str(model), str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        for _ in range(600):
            assert process.poll() is None, f'the peer ended: {(workdir / "peer.log").read_text(errors="replace")[-500:]}'
            try:
                if lc.request(port, 'GET', '/health', timeout=2)[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def generate(port, ids):
    """The peer's greedy continuation: [(id, its likeliest id, that one's lead in log-probability)]. The two ids differ
    where the likeliest would have ended the text."""
    status, answer = lc.request(port, 'POST', '/completion', {
        'prompt': ids, 'n_predict': GENERATED, 'temperature': 0, 'n_probs': 2, 'ignore_eos': True, 'cache_prompt': False}, timeout=120)
    assert status == 200, answer
    out = []
    for token in answer['completion_probabilities']:
        top = token['top_logprobs']
        out.append((token['id'], top[0]['id'], top[0]['logprob'] - top[1]['logprob']))
    return out


def exact_lead(exact, sequence, row, token, workdir):
    """How far ahead of every other token `token` is after sequence[:row + 1] with float32 weights; negative: behind."""
    found = logits(exact, sequence, workdir, '-ctk', 'f32', '-ctv', 'f32')[row]
    return float(found[token] - np.delete(found, token).max())


def test_same_top_token_as_the_peer(model, peer, workdir):
    compared, differ = 0, []
    for prompt in PROMPTS:
        ids = lc.request(peer, 'POST', '/tokenize', {'content': prompt, 'add_special': True})[1]['tokens']
        (workdir / 'prompt.txt').write_text(prompt)
        ours = subprocess.run([str(lc.BINARY), 'tokenize', str(model), str(workdir / 'prompt.txt')], capture_output=True, text=True, timeout=60)
        assert ours.returncode == 0, ours.stderr
        assert json.loads(ours.stdout) == ids, f'{prompt!r} has other token ids'
        continuation = generate(peer, ids)
        assert len(continuation) == GENERATED
        sequence = ids + [token for token, _, _ in continuation]
        best = logits(model, sequence, workdir)[len(ids) - 1:-1].argmax(axis=1)
        for position, ((_, likeliest, lead), found) in enumerate(zip(continuation, best)):
            if lead > SURE:
                compared += 1
                if likeliest != found:
                    differ.append((prompt, sequence, len(ids) - 1 + position, likeliest, lead, int(found)))
    assert compared > 100, f'only {compared} positions where the peer is sure'
    assert len(differ) <= FEW * compared, f'{len(differ)} of {compared} differ: {[d[:1] + d[2:] for d in differ[:5]]}'
    if not differ:
        return
    exact = workdir / 'float32.gguf'
    float32_copy(model, exact)
    for prompt, sequence, row, likeliest, lead, found in differ:
        true_lead = exact_lead(exact, sequence, row, likeliest, workdir)
        what = f'{prompt!r}, row {row}: llama.cpp {likeliest} (leads by {lead:.2f}), ours {found}, exact lead {true_lead:.3f}'
        print(what)
        assert true_lead < SURE, what
