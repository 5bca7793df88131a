#!/usr/bin/env python3
"""Measures and checks `lode serve` on a card: memory under --vram by the driver's count, time to first token cold, warm
and after a restart beside raw reads of the same files, speed, and the bits of --deterministic.

    gpu_serve.py LODE MODEL [--work DIR] [--tests vram,ttft,speed,exact] [--vram 8GiB] [--ctx 32768]

Standard library only. DIR (default: a new folder under /var/tmp) gets the KV store and the servers' logs. Prompts are
random ids: give a model, not its words. Prints a line of JSON a figure; exit code 1 if a check failed.
"""
import argparse
import concurrent.futures
import ctypes
import http.client
import json
import mmap
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GIB = 1 << 30
failed = False


def say(what, **figures):
    print(json.dumps({'what': what, **{k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}}), flush=True)


def check(what, good, **figures):
    global failed
    failed |= not good
    say(what, ok=bool(good), **figures)


class Server:
    def __init__(self, lode, model, log, *flags):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        self.log = open(log, 'a')
        begin = time.monotonic()
        self.process = subprocess.Popen([lode, 'serve', model, '--port', str(self.port), *flags], stdout=self.log, stderr=self.log)
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f'lode serve ended with {self.process.returncode}: ' + pathlib.Path(log).read_text()[-2000:])
            try:
                if self.get('/health')[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.01)
        self.ready_s = time.monotonic() - begin

    def get(self, path):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        c.request('GET', path)
        r = c.getresponse()
        return r.status, r.read()

    def complete(self, ids, n=1, **more):
        """The reply of one request, and the seconds until it was there."""
        body = json.dumps({'prompt': ids, 'max_tokens': n, 'temperature': 0, 'ignore_eos': True, **more})
        begin = time.monotonic()
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        c.request('POST', '/v1/completions', body, {'Content-Type': 'application/json'})
        r = c.getresponse()
        reply = json.loads(r.read())
        if r.status != 200:
            raise RuntimeError(f'{r.status}: {reply}')
        return reply, time.monotonic() - begin

    def stop(self):
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self.log.close()
        return time.monotonic() - begin


def ids(count, seed):
    r = random.Random(seed)
    return [r.randrange(300, 40000) for _ in range(count)]


# ---- The driver's count, sampled from another process.

def sample(started, stop, out, every_s):
    cuda = ctypes.CDLL('libcuda.so.1')
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0

    def now():
        assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value

    base = now()
    out['base'], out['least'], out['samples'] = base, base, 0
    started.set()
    least, samples = base, 0
    while not stop.is_set():
        least, samples = min(least, now()), samples + 1
        if least != out['least']:
            out['least'] = least
        time.sleep(every_s)
    out['least'], out['samples'] = least, samples


class Sampler:
    def __init__(self, every_s=0.02):
        self.out = multiprocessing.Manager().dict()
        self.stop, started = multiprocessing.Event(), multiprocessing.Event()
        self.process = multiprocessing.Process(target=sample, args=(started, self.stop, self.out, every_s))
        self.process.start()
        assert started.wait(60), 'the sampler does not start'

    def most(self):
        return self.out['base'] - self.out['least']

    def end(self):
        self.stop.set()
        self.process.join(30)
        return self.most(), self.out['samples']


def timings(reply):
    t, c = reply['timings'], reply.get('cache', {})
    return {'prompt_n': t['prompt_n'], 'cache_n': t['cache_n'], 'prompt_ms': t['prompt_ms'],
            'predicted_per_second': t['predicted_per_second'], 'by_tier': c.get('by_tier'), 'load_ms': c.get('load_ms')}


def test_vram(a, work):
    bound = int(float(a.vram.removesuffix('GiB')) * GIB)
    sampler = Sampler()
    s = Server(a.lode, a.model, work / 'vram.log', '--vram', a.vram, '-c', str(a.ctx), '--kv-disk', str(work / 'kv-vram'), *a.serve)
    say('vram: at the start', used_mib=sampler.most() / 2**20, metrics=[l for l in s.get('/metrics')[1].decode().split('\n') if 'vram_bytes{' in l])
    for seed, prompt in ((1, a.ctx - 300), (2, a.ctx - 300), (1, a.ctx - 300)):
        reply, seconds = s.complete(ids(prompt, seed), 256)
        say('vram: a prompt', used_mib=sampler.most() / 2**20, seconds=seconds, prompt_per_second=reply['timings']['prompt_per_second'], **timings(reply))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda i: s.complete(ids(6000, 10 + i), 64)[0], range(4)))
    say('vram: four at once', generated=[r['timings']['predicted_n'] for r in replies])
    (work / 'vram.metrics').write_bytes(s.get('/metrics')[1])
    say('vram: stop', seconds=s.stop())
    used, samples = sampler.end()
    check('vram: the driver counts at most --vram', used <= bound, used_mib=used / 2**20, bound_mib=bound / 2**20, samples=samples)


def raw_read(folder):
    """Seconds and bytes of reading the folder's extents around the page cache, 8 reads of 4 MiB at a time."""
    part = 4 << 20
    jobs = [(f, at) for f in sorted(folder.rglob('*.kvx')) for at in range(0, f.stat().st_size, part)]
    buffers = {}

    def read(job):
        buffer = buffers.setdefault(threading.get_ident(), mmap.mmap(-1, part))
        fd = os.open(job[0], os.O_RDONLY | os.O_DIRECT)
        try:
            return os.preadv(fd, [buffer], job[1])
        finally:
            os.close(fd)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(read, jobs[:8]))
        begin = time.monotonic()
        total = sum(pool.map(read, jobs))
        return time.monotonic() - begin, total


def test_ttft(a, work):
    kv, prompt = work / 'kv-ttft', ids(15600, 5)
    flags = ['-c', '20480', '--kv-disk', str(kv), *a.serve]
    s = Server(a.lode, a.model, work / 'ttft.log', *flags)
    reply, seconds = s.complete(prompt)
    say('ttft: cold', ms=seconds * 1000, **timings(reply))
    for round in range(5):
        reply, seconds = s.complete(prompt[:-10] + ids(10, 100 + round))
        # Beyond text handling: from the request's admission to its first token.
        check('ttft: warm', reply['timings']['prompt_ms'] <= 30 or not a.strict, ms=seconds * 1000, **timings(reply))
    say('ttft: stop', seconds=s.stop())
    for round in range(3):
        s = Server(a.lode, a.model, work / 'ttft.log', *flags)
        reply, seconds = s.complete(prompt[:-10] + ids(10, 200 + round))
        ready = s.ready_s
        s.stop()
        raw, size = raw_read(kv)
        check('ttft: after a restart', seconds <= 1.3 * raw or not a.strict, ms=seconds * 1000, raw_ms=raw * 1000, ratio=seconds / raw,
              raw_gb_s=size / raw / 1e9, raw_bytes=size, ready_s=ready, **timings(reply))


def test_speed(a, work):
    s = Server(a.lode, a.model, work / 'speed.log', '-c', '24576', '--kv-disk', 'off', *a.serve)
    def median(what, bound, runs, key):
        got = [r['timings'][key] for r in runs]
        check(what, statistics.median(got) >= bound or not a.strict, median=statistics.median(got), least=min(got), most=max(got), bound=bound)
    s.complete(ids(64, 1), 64)
    median('speed: tg64', 264, [s.complete(ids(32, 20 + i), 64)[0] for i in range(5)], 'predicted_per_second')
    median('speed: pp512', 9546, [s.complete(ids(512, 30 + i))[0] for i in range(5)], 'prompt_per_second')
    median('speed: pp4096', 10451, [s.complete(ids(4096, 40 + i))[0] for i in range(5)], 'prompt_per_second')
    deep = ids(16384, 50)
    s.complete(deep, 64)
    median('speed: tg64 @d16384', 207, [s.complete(deep, 64)[0] for i in range(5)], 'predicted_per_second')
    median('speed: pp4096 @d16384', 7471, [s.complete(deep + ids(4096, 60 + i))[0] for i in range(3)], 'prompt_per_second')
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = [r['timings']['predicted_per_second'] for r in pool.map(lambda i: s.complete(ids(32, 70 + i), 128)[0], range(4))]
    say('speed: tg128, four at once, each', median=statistics.median(got), sum=sum(got))
    s.stop()


def bits(reply):
    return reply['choices'][0]['text'], json.dumps(reply['choices'][0]['logprobs'])


def test_exact(a, work):
    base = ['-c', '8192', '--deterministic', *a.serve]
    flags = [*base, '--kv-disk', str(work / 'kv-exact')]
    prompt, more = ids(2500, 7), {'logprobs': 5}
    s = Server(a.lode, a.model, work / 'exact.log', *flags)
    cold, seconds = s.complete(prompt, 24, **more)
    say('exact: cold', seconds=seconds, **timings(cold))
    warm, _ = s.complete(prompt, 24, **more)
    check('exact: warm = cold', bits(warm) == bits(cold) and warm['timings']['cache_n'] > 2400, **timings(warm))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(s.complete, p, 24, cache_salt='other', **more) for p in (ids(700, 8), prompt, ids(90, 9), ids(1500, 10))]
        batched = [j.result()[0] for j in jobs]
    check('exact: batched = cold', bits(batched[1]) == bits(cold), **timings(batched[1]))
    s.stop()
    s = Server(a.lode, a.model, work / 'exact.log', *flags)
    restored, _ = s.complete(prompt, 24, **more)
    check('exact: restored = cold', bits(restored) == bits(cold) and restored['timings']['cache_n'] > 2400, **timings(restored))
    s.stop()
    s = Server(a.lode, a.model, work / 'exact.log', *base, '--kv-disk', 'off', '--chunk', '96')
    chunked, _ = s.complete(prompt, 24, **more)
    check('exact: chunks of 96 = cold', bits(chunked) == bits(cold), **timings(chunked))
    s.stop()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('lode')
    ap.add_argument('model')
    ap.add_argument('--work', type=pathlib.Path)
    ap.add_argument('--tests', default='vram,ttft,speed,exact')
    ap.add_argument('--vram', default='8GiB')
    ap.add_argument('--ctx', type=int, default=32768)
    ap.add_argument('--strict', action='store_true', help='the figures for an H200 and the shape of qwen3-8b are bounds')
    ap.add_argument('--serve', default='', help='further options of lode serve, in one argument')
    a = ap.parse_args()
    a.serve = a.serve.split()
    work = a.work or pathlib.Path(tempfile.mkdtemp(prefix='lode-gpu-', dir='/var/tmp'))
    work.mkdir(parents=True, exist_ok=True)
    for name in a.tests.split(','):
        begin = time.monotonic()
        try:
            globals()['test_' + name](a, work)
        except Exception as e:  # The others still run.
            check(name, False, error=f'{type(e).__name__}: {e}')
        say(name + ': done', seconds=time.monotonic() - begin)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
