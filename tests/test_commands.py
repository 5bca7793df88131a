"""Commands as a user types them: bench against our own server, and what a wrong call says."""
import json
import subprocess

import lode_client as lc


def lode(*args, timeout=300):
    return subprocess.run([str(lc.BINARY), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def test_bench_a_model(smollm2):
    done = lode('bench', smollm2, '--tests', 'ttft,speed', '--prompt-tokens', 600, '--json', '--', '-t', 2)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rows = {(r['test'], r['arm']): r for r in report['rows']}
    cold, warm, restarted = (rows['ttft', arm] for arm in ('cold', 'warm, other question', 'after restart'))
    assert abs(cold['prompt_tokens'] - 600) < 90
    assert cold['cached_tokens'] == 0
    assert warm['cached_tokens'] >= 500 and restarted['cached_tokens'] >= 500
    assert restarted['resident_bytes'] > 1 << 20
    assert all(rows['speed', arm]['prompt_tokens_per_s'] for arm in ('pp512', 'pp512 @d4096'))
    assert all(rows['speed', arm]['generation_tokens_per_s'] for arm in ('tg64', 'tg64 @d4096'))


def test_bench_a_url(gemma, serve):
    server = serve(gemma)
    done = lode('bench', f'http://127.0.0.1:{server.port}', '--tests', 'ttft', '--prompt-tokens', 1000)
    assert done.returncode == 0, done.stderr
    assert 'first token' in done.stdout and 'skipped: the server belongs to somebody else' in done.stdout


def test_wrong_calls_say_what_is_wrong(workdir):
    for args, words in [(['serve', workdir / 'none.gguf'], 'none.gguf'), (['bench', workdir / 'none.gguf'], 'none.gguf'),
                        (['eval', workdir / 'none.gguf', '--tokens', 'none.json', '--logits', 'y'], 'none.json'), (['frobnicate'], 'frobnicate')]:
        done = lode(*args, timeout=30)
        assert done.returncode not in (0, 134, 139, -6, -11), (args, done)
        assert words in done.stderr + done.stdout, (args, done.stderr)
