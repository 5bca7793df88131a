"""The server under strangers and over time: many clients, generated requests, limits, TLS, several models, its log."""
import http.client
import json
import random
import socket
import ssl
import subprocess
import threading
import time

import pytest

import api_storm
import lode_client as lc
import schemathesis_run
from test_cache_api import call


def test_generated_requests_find_no_fault(smollm2, serve, workdir):
    server = serve(smollm2, '-c', 256, '-np', 2, '--slot-save-path', workdir / 'slots')
    code, output = schemathesis_run.run(server.port, 250, 7, workdir, phases='fuzzing')
    assert code == 0, output[-6000:]
    assert schemathesis_run.counted(output) >= 200, output[-2000:]
    assert lc.complete(server.port, 'Alive?', max_tokens=1).usage['completion_tokens'] == 1


def test_a_storm_of_clients(smollm2, serve):
    server = serve(smollm2, '-c', 1024, '-np', 8, '--queue', 40, '--kv-ram', '160MiB')
    report = api_storm.storm(server, clients=64, seconds=15, count=16, long_chars=1200)
    assert not report['faults'], report
    assert report['requests']['whole'] + report['requests']['streamed'] > 10, report
    assert report['requests']['malformed'] > 10 and report['requests']['cancelled'] > 10, report


def test_a_long_prompt_stalls_nobody_by_more_than_a_chunk(smollm2, serve):
    """While a prompt of many chunks is computed, another's answer goes on: a token a chunk."""
    chunk = 64
    server = serve(smollm2, '-c', 4096, '-np', 2, '-ub', chunk)
    arrived = []

    def talk():
        link = http.client.HTTPConnection('127.0.0.1', server.port, timeout=120)
        link.request('POST', '/v1/completions', json.dumps({'prompt': 'One, two,', 'max_tokens': 2000, 'stream': True,
                                                            'ignore_eos': True, 'logprobs': 0}),
                     {'Content-Type': 'application/json'})
        for line in link.getresponse():
            if line.startswith(b'data: {'):
                arrived.extend([time.monotonic()] * len(json.loads(line[6:])['choices'][0]['logprobs']['tokens']))
            if over.is_set():
                break
        link.close()

    over = threading.Event()
    talking = threading.Thread(target=talk)
    talking.start()
    while len(arrived) < 5:
        time.sleep(0.01)
    begin = time.monotonic()
    reply = lc.stream(server.port, lc.long_text(6500), max_tokens=1)
    end = begin + reply.ttft_s
    over.set()
    talking.join()
    chunks = reply.usage['prompt_tokens'] // chunk
    assert chunks > 15
    during = sum(begin <= t <= end for t in arrived)
    assert during >= chunks - 2, f'{during} tokens of the other answer in {chunks} chunks'


def test_a_full_queue_says_when_to_come_again(smollm2, serve):
    server = serve(smollm2, '-c', 2048, '-np', 1, '--queue', 1)
    body = {'prompt': 'One, two,', 'max_tokens': 120, 'ignore_eos': True}
    replies = []
    threads = []
    for i in range(2):
        threads.append(threading.Thread(target=lambda: replies.append(lc.request(server.port, 'POST', '/v1/completions', body, timeout=300))))
        threads[-1].start()
        while lc.metric(server, 'lode_slots_busy') + lc.metric(server, 'lode_requests_queued') < i + 1:
            time.sleep(0.01)
    link = http.client.HTTPConnection('127.0.0.1', server.port, timeout=60)
    link.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
    refused = link.getresponse()
    error = json.loads(refused.read())['error']
    link.close()
    assert refused.status == 503 and int(refused.headers['Retry-After']) >= 1, error
    for thread in threads:
        thread.join()
    assert [status for status, _ in replies] == [200, 200], 'accepted requests are answered'


def make_certificate(folder, name='server'):
    cert, key = folder / f'{name}.pem', folder / f'{name}.key'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                    '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert], check=True, capture_output=True)
    return cert, key


def secure(server, cert, **options):
    context = ssl.create_default_context(cafile=cert)
    for name, value in options.items():
        setattr(context, name, value)
    return http.client.HTTPSConnection('127.0.0.1', server.port, timeout=30, context=context)


def test_tls(smollm2, workdir):
    cert, key = make_certificate(workdir)
    other_key = make_certificate(workdir, 'other')[1]
    for args, words in [((cert, workdir / 'none.key'), 'none.key'), ((workdir / 'none.pem', key), 'none.pem'),
                        ((cert, other_key), 'other.key')]:
        done = subprocess.run([lc.BINARY, 'serve', smollm2, '--tls-cert', args[0], '--tls-key', args[1]],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and words in done.stderr, done
    server = lc.Server(smollm2, '-c', 1024, '-t', 2, '--kv-disk', 'off', '--tls-cert', cert, '--tls-key', key,
                       log=workdir / 'server.log')
    server.port = lc.free_port()
    server.process = subprocess.Popen(server.command(), stderr=open(server.log, 'ab'), stdin=subprocess.DEVNULL)
    try:
        while 'ready: https://' not in server.output():
            assert server.process.poll() is None, server.tail()
            time.sleep(0.02)
        silent = socket.create_connection(('127.0.0.1', server.port))  # Never says hello, and delays nobody.
        with socket.create_connection(('127.0.0.1', server.port), timeout=10) as plain:
            plain.sendall(b'GET /health HTTP/1.1\r\n\r\n')
            assert b'HTTP/1.1 200' not in plain.recv(100), 'answered without TLS'
        link = secure(server, cert)
        for _ in range(3):  # One connection.
            link.request('POST', '/v1/completions', json.dumps({'prompt': 'The sea', 'max_tokens': 8, 'stream': True}),
                         {'Content-Type': 'application/json'})
            reply = link.getresponse().read()
            assert reply.endswith(b'data: [DONE]\n\n'), reply
        link.close()
        big = secure(server, cert)  # More than one TLS record each way.
        text = 'word ' * 40000
        big.request('POST', '/tokenize', json.dumps({'content': text}), {'Content-Type': 'application/json', 'Connection': 'close'})
        assert len(json.loads(big.getresponse().read())['tokens']) > 40000
        with pytest.raises(ssl.SSLError):
            secure(server, cert, maximum_version=ssl.TLSVersion.TLSv1_1, minimum_version=ssl.TLSVersion.TLSv1).request('GET', '/health')
        with pytest.raises(ssl.SSLError):
            http.client.HTTPSConnection('127.0.0.1', server.port, timeout=10).request('GET', '/health')  # An unknown certificate.
        silent.close()
        assert server.stop() == 0
    finally:
        server.kill()


def test_the_log_as_json(smollm2, serve, workdir):
    server = serve(smollm2, '-c', 1024, '--log-json')
    lc.complete(server.port, 'The sea', max_tokens=3)
    lc.request(server.port, 'POST', '/v1/completions', {'prompt': 5})
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.output().splitlines()]  # Every line.
    assert all({'time', 'level'} <= line.keys() for line in lines)
    asked = [line for line in lines if line.get('event') == 'request']
    asked = [line for line in asked if line['path'] == '/v1/completions']  # Not the probes while it loaded.
    assert [line['status'] for line in asked] == [200, 400]
    assert asked[0]['generated_tokens'] == 3 and asked[0]['prompt_tokens'] >= 2 and asked[0]['first_token_ms'] > 0


def test_swapping_models_keeps_their_kv(gemma, smollm2, serve, workdir):
    """Gemma, SmolLM2 and Gemma again: its long prefix comes from the SSD, with the same answer, bit for bit."""
    both = [smollm2, '-c', 8192, '-np', 2]
    server = serve(gemma, *both)
    names = [m['id'] for m in lc.request(server.port, 'GET', '/v1/models')[1]['data']]
    assert names == [gemma.stem, smollm2.stem]
    prompt = lc.ask(lc.long_text(14000), 'Which number opens the lighthouse?')
    cold = lc.complete(server.port, prompt, model=gemma.stem, logprobs=2, max_tokens=8)
    assert cold.cache['tokens_reused'] == 0
    other = lc.complete(server.port, lc.long_text(3000), model=smollm2.stem, max_tokens=4)
    assert other.cache['tokens_reused'] == 0, "another model's KV is nothing to this one"
    again = lc.complete(server.port, prompt, model=gemma.stem, logprobs=2, max_tokens=8)
    assert again.same_as(cold)
    assert again.cache['by_tier']['disk'] >= (cold.usage['prompt_tokens'] - 1) // 32 * 32 - 32, again.cache
    assert again.total_s < cold.total_s / 2, (again.total_s, cold.total_s)
    states = {m['id']: m['status']['value'] for m in lc.request(server.port, 'GET', '/v1/models')[1]['data']}
    assert states == {gemma.stem: 'loaded', smollm2.stem: 'unloaded'}
    assert lc.request(server.port, 'POST', '/v1/completions', {'model': 'none', 'prompt': 'x'})[0] == 404
    assert server.stop() == 0


def test_i10_a_prompt_above_a_slots_share(smollm2, serve):
    """I10: slots do not divide the context: 205 tokens in one of ten slots of 2048 are answered, and 2,100 refused."""
    server = serve(smollm2, '-c', 2048, '-np', 10)
    ids = lc.request(server.port, 'POST', '/tokenize', {'content': lc.long_text(12000)})[1]['tokens']
    assert lc.complete(server.port, ids[:205], max_tokens=4, ignore_eos=True).usage['completion_tokens'] == 4
    status, reply = lc.request(server.port, 'POST', '/v1/completions', {'prompt': ids[:2100]})
    assert status == 400 and reply['error']['code'] == 'context_length_exceeded', reply


def test_i11_memory_stays_flat_over_unique_prompts(shared_data, serve):
    """I11: 2,000 unique short prompts with logprobs 20: memory of our own is flat once the cache has its size."""
    server = serve(shared_data / 'arch' / 'llama.gguf', '-c', 512, '-np', 4, '--kv-ram', '4MiB', kv='off')
    vocab = lc.request(server.port, 'GET', '/v1/models')[1]['data'][0]['meta']['n_vocab']

    def own_kb():
        return server.memory_kb('RssAnon') + server.memory_kb('VmSwap')

    def ask(first, last, seed):
        rng = random.Random(seed)
        link = http.client.HTTPConnection('127.0.0.1', server.port, timeout=60)
        for _ in range(first, last):
            body = {'prompt': [rng.randrange(3, vocab) for _ in range(40)], 'max_tokens': 4, 'logprobs': 20, 'ignore_eos': True}
            link.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
            answer = link.getresponse()
            data = answer.read()
            assert answer.status == 200, data
        link.close()

    sizes = []
    for part in range(4):
        threads = [threading.Thread(target=ask, args=(0, 125, 10 * part + t)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sizes.append(own_kb())
    assert lc.metric(server, 'lode_sequences_total') == 2000
    assert sizes[-1] <= 1.03 * sizes[1] + 1024, sizes


def test_i04_slots_come_back_and_the_processor_rests(smollm2, serve):
    """I04: a client that leaves in mid-generation frees its slot; ten more are answered, and then nothing is computed."""
    server = serve(smollm2, '-c', 2048, '-np', 2, '-ub', 64)
    for stage in range(2):
        link = http.client.HTTPConnection('127.0.0.1', server.port, timeout=30)
        link.request('POST', '/v1/completions', json.dumps({'prompt': lc.long_text(4000) if stage else 'One,', 'stream': True,
                                                            'max_tokens': 1500, 'ignore_eos': True}),
                     {'Content-Type': 'application/json'})
        link.getresponse().readline()
        link.close()
    for i in range(10):
        assert lc.complete(server.port, f'{i} and', max_tokens=2, ignore_eos=True).usage['completion_tokens'] == 2
    assert not any(slot['is_processing'] for slot in call(server, 'GET', '/slots'))

    def ticks():
        with open(f'/proc/{server.process.pid}/stat') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        return int(fields[11]) + int(fields[12])
    before = ticks()
    time.sleep(1)
    assert ticks() - before < 20, 'hundredths of a second of processor time in an idle second'
