"""A prefix is computed once and reused bit for bit: cold, warm, batched, in flight, after a restart."""
import concurrent.futures
import socket
import threading
import time

import pytest

import lode_client as lc

QUESTIONS = ['What is the secret code of the lighthouse?', 'Which licence is named first?', 'Who may copy this text?',
             'What does "source code" mean here?', 'Is there a warranty?', 'What is a "covered work"?', 'Name one freedom.',
             'Which year is mentioned first?', 'What happens on a breach?', 'Write one word.']


def ask_cold(server, prompt, salt, **options):
    """Computed whole: a salt of its own makes an empty namespace."""
    reply = lc.complete(server.port, prompt, logprobs=2, cache_salt=salt, **options)
    assert reused(reply) == 0, reply.cache
    return reply


def reused(reply):
    return reply.cache['tokens_reused']


def check_account(reply):
    """What the reply says of itself adds up."""
    prompt = reply.usage['prompt_tokens']
    assert reply.timings['prompt_n'] + reply.timings['cache_n'] == prompt
    assert reply.usage['prompt_tokens_details']['cached_tokens'] == reply.timings['cache_n'] == reused(reply)
    assert sum(reply.cache['by_tier'].values()) == reused(reply)
    assert reply.cache['reason']


def long_prompts(model, full):
    """Ten questions behind one prefix: about 5,000 tokens for Gemma, 1,700 for SmolLM2 (whose attention is dearer)."""
    chars = 23500 if model == lc.GEMMA else (23500 if full else 8000)
    text = lc.long_text(chars)
    return [lc.ask(text, q) for q in QUESTIONS]


def test_cold_warm_batched_restored(model, serve, request):
    full = request.config.getoption('--full')
    prompts = long_prompts(model, full)
    server = serve(model, '-np', 5)
    # Three cold ones stand for ten in a short run: each costs a whole prompt.
    cold = [ask_cold(server, p, f'cold-{i}') for i, p in enumerate(prompts[:10 if full else 3])]
    first = lc.complete(server.port, prompts[0], logprobs=2)
    warm = [lc.complete(server.port, p, logprobs=2) for p in prompts]
    for reply in [first, *cold, *warm]:
        check_account(reply)
    shared_part = first.usage['prompt_tokens'] - 64
    for i, reply in enumerate(warm):
        assert reused(reply) > shared_part - 64, f'question {i}: {reply.cache}'
    for i, reply in enumerate(cold):
        assert reply.same_as(warm[i]), f'cold and warm differ on question {i}: {reply.text!r} {warm[i].text!r}'

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        batched = list(pool.map(lambda p: lc.complete(server.port, p, logprobs=2), prompts))
    for i, reply in enumerate(batched):
        assert reply.same_as(warm[i]), f'alone and batched differ on question {i}'

    assert server.stop() == 0
    server = serve(model)
    for i, prompt in enumerate(prompts):
        restored = lc.complete(server.port, prompt, logprobs=2)
        check_account(restored)
        assert restored.same_as(warm[i]), f'restored and warm differ on question {i}'
        assert reused(restored) > shared_part - 64, f'question {i}: {restored.cache}'
        if i == 0:
            assert restored.cache['by_tier']['disk'] > 0, restored.cache


@pytest.mark.parametrize('types', [('q8_0', 'q8_0'), ('f16', 'q8_0')], ids='-'.join)
def test_cold_warm_restored_in_q8_0(gemma, serve, types):
    """The same over the other KV types: both sides, and one of them."""
    prompt = lc.ask(lc.long_text(6000), QUESTIONS[0])
    server = serve(gemma, '-ctk', types[0], '-ctv', types[1])
    cold = ask_cold(server, prompt, 'cold')
    first, warm = (lc.complete(server.port, prompt, logprobs=2) for _ in range(2))
    assert server.stop() == 0
    server = serve(gemma, '-ctk', types[0], '-ctv', types[1])
    restored = lc.complete(server.port, prompt, logprobs=2)
    for reply in (first, warm, restored):
        check_account(reply)
        assert reply.same_as(cold)
    least = (cold.usage['prompt_tokens'] - 1) // 32 * 32
    assert reused(first) == 0 and reused(warm) >= least and reused(restored) >= least, (warm.cache, restored.cache)
    assert restored.cache['by_tier']['disk'] > 0, restored.cache


def test_shared_first_part_is_reused_after_restart(gemma, serve):
    """A prompt that shares the first 60% of a stored one computes only the rest, windows or not."""
    text = lc.long_text(12000)
    server = serve(gemma)
    whole = lc.complete(server.port, lc.ask(text, 'Why?'))
    server.stop()
    server = serve(gemma)
    cut = lc.ask(text[:7200] + ' ... and here the text goes on in another way.', 'Why?')
    reply = lc.complete(server.port, cut, logprobs=2)
    check_account(reply)
    assert reused(reply) > 0.5 * whole.usage['prompt_tokens'], reply.cache
    assert reply.same_as(ask_cold(server, cut, 'cold'))


def test_ten_at_once_compute_the_prefix_once(gemma, serve):
    text = lc.long_text(9000)
    server = serve(gemma, '-np', 4)
    prompts = [lc.ask(text, q) for q in QUESTIONS]
    length = len(lc.request(server.port, 'POST', '/tokenize', {'content': text, 'add_special': True})[1]['tokens'])
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda p: lc.complete(server.port, p, logprobs=2), prompts))
    computed = sum(r.timings['prompt_n'] for r in replies)
    # The prefix once; each question and at most a block and a half of the prefix's tail for itself.
    assert computed <= length + 10 * (48 + 40), f'{computed} prompt tokens computed for a prefix of {length}'
    for reply in replies:
        check_account(reply)
    assert replies[3].same_as(ask_cold(server, prompts[3], 'alone'))


def test_salts_share_nothing(gemma, serve):
    prompt = lc.ask(lc.long_text(3000), 'Why?')
    server = serve(gemma)
    a = lc.complete(server.port, prompt, cache_salt='a')
    assert reused(lc.complete(server.port, prompt, cache_salt='b')) == 0
    assert reused(lc.complete(server.port, prompt)) == 0
    assert reused(lc.complete(server.port, prompt, cache_salt='a')) >= a.usage['prompt_tokens'] - 32


@pytest.mark.parametrize('types', [('f32', 'f32'), ('q8_0', 'q8_0'), ('f16', 'q8_0')], ids='-'.join)
def test_another_kv_type_shares_nothing(gemma, serve, types):
    prompt = lc.ask(lc.long_text(3000), 'Why?')
    server = serve(gemma)
    lc.complete(server.port, prompt)
    server.stop()
    server = serve(gemma, '-ctk', types[0], '-ctv', types[1])
    assert reused(lc.complete(server.port, prompt)) == 0


def test_no_disk_no_memory_still_answers(gemma, serve):
    prompt = lc.ask(lc.long_text(3000), 'Why?')
    server = serve(gemma, '--kv-ram', '0', kv='off')
    first, second = (lc.complete(server.port, prompt, logprobs=2) for _ in range(2))
    assert first.same_as(second)
    assert reused(second) == 0, second.cache


def test_memory_too_small_for_all_comes_back_from_disk(gemma, serve):
    """F05, F10: prompts pushed out of memory come back from disk, each its own."""
    texts = [f'Case {i}. ' + lc.long_text(4000 + 100 * i, fact=f'The number of case {i} is {1000 + 37 * i}.') for i in range(6)]
    prompts = [lc.ask(t, f'What is the number of case {i}?') for i, t in enumerate(texts)]
    server = serve(gemma, '--kv-ram', '8MiB')
    first = [lc.complete(server.port, p, logprobs=2) for p in prompts]
    time.sleep(2.5)  # Extents are sealed two seconds after the last token at the latest.
    again = [lc.complete(server.port, p, logprobs=2) for p in prompts]
    for i, (a, b) in enumerate(zip(first, again)):
        assert a.same_as(b), f'case {i}'
    assert sum(r.cache['by_tier']['disk'] for r in again) > 0, [r.cache for r in again]


def test_disconnect_cancels(gemma, serve):
    """I01, I02: a client that leaves frees its slot, in the prompt and in the answer, and disturbs nobody."""
    server = serve(gemma, '-np', 1)
    prompt = lc.ask(lc.long_text(30000), 'Why?')
    for body, wait in [({'max_tokens': 8}, 0.5), ({'prompt': 'Once upon a time', 'max_tokens': 4000, 'ignore_eos': True}, 1.0)]:
        before = lc.metric(server, 'lode_sequences_cancelled_total')
        leave_after(server.port, {'prompt': prompt, 'stream': True, 'temperature': 0, **body}, wait)
        deadline = time.monotonic() + 5
        while lc.metric(server, 'lode_slots_busy') > 0 or lc.metric(server, 'lode_sequences_cancelled_total') == before:
            assert time.monotonic() < deadline, 'the slot is still busy 5 s after its client left'
            time.sleep(0.05)
    assert lc.complete(server.port, 'The capital of France is').text
    # A queued client that leaves must not end the running one.
    replies = []
    running = threading.Thread(target=lambda: replies.append(lc.complete(server.port, 'One, two,', max_tokens=150, ignore_eos=True)))
    running.start()
    time.sleep(0.3)
    leave_after(server.port, {'prompt': 'Queued', 'max_tokens': 100}, 0.3)
    running.join()
    assert replies[0].usage['completion_tokens'] == 150


def leave_after(port, body, seconds):
    import json
    data = json.dumps(body).encode()
    with socket.create_connection(('127.0.0.1', port)) as s:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: '
                  + str(len(data)).encode() + b'\r\n\r\n' + data)
        time.sleep(seconds)


def test_sigterm_loses_no_published_block(gemma, serve):
    """Right after the last token, and in the middle of an answer: what was published is there after the restart."""
    prompt = lc.ask(lc.long_text(9000), 'Why?')
    server = serve(gemma)
    reply = lc.complete(server.port, prompt, max_tokens=1)
    assert server.stop() == 0
    server = serve(gemma)
    again = lc.complete(server.port, prompt, max_tokens=1)
    assert reused(again) >= (reply.usage['prompt_tokens'] - 1) // 32 * 32, again.cache
    other = 'Preface. ' + prompt

    def ask_until_cut_off():
        try:
            lc.complete(server.port, other, max_tokens=20000, ignore_eos=True)
        except (OSError, lc.HttpError, lc.http.client.HTTPException):
            pass

    before = lc.metric(server, 'lode_tokens_generated_total')
    threading.Thread(target=ask_until_cut_off, daemon=True).start()
    deadline = time.monotonic() + 120
    while lc.metric(server, 'lode_tokens_generated_total') < before + 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.stop(timeout=60) == 0
    server = serve(gemma)
    again = lc.complete(server.port, other, max_tokens=1)
    assert reused(again) >= (again.usage['prompt_tokens'] - 1) // 32 * 32, again.cache


def test_stream_equals_whole_and_beats(gemma, serve):
    """The stream's text, tokens and log-probabilities are the whole reply's, and a comment line comes every second."""
    server = serve(gemma)
    prompt = lc.ask(lc.long_text(16000), 'What is the secret code of the lighthouse?')
    streamed = lc.stream(server.port, prompt, logprobs=2)
    whole = lc.complete(server.port, prompt, logprobs=2)
    assert streamed.done and streamed.same_as(whole)
    assert streamed.usage['completion_tokens'] == whole.usage['completion_tokens'] == len(streamed.tokens)
    # A line a second, with room for a busy machine: no client may take the silence for death.
    assert streamed.heartbeats >= int(streamed.ttft_s / 2) and streamed.silence_s < 5, (streamed.heartbeats, streamed.silence_s)
    progress = []
    lc.stream(server.port, prompt, on_progress=lambda done, total: progress.append((done, total)), cache_salt='again')
    assert len(progress) > 1 and progress == sorted(progress) and progress[-1][0] <= progress[-1][1], progress
