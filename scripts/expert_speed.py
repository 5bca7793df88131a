#!/usr/bin/env python3
"""Speed of a mixture of experts with all, half and a quarter of its experts in memory, against what the disk allows.

    expert_speed.py MODEL.gguf [--shares 50 25] [--threads 2] [--tokens 64] [--no-peer] [--json FILE]

Generation with a share is measured against 1 / (seconds per token with all experts resident + bytes missed per token /
raw rate of the disk): resident speed and raw rate (random reads of an expert's size with O_DIRECT, four at once) are
measured in the same run. Beside it llama.cpp (PyPI's xllamacpp, tests/peer.py) with everything resident. A prompt of
about 512 tokens and one generation each, the second of two; memory is sampled every 20 ms. For a big model:

    make_model.py FILE --preset qwen3moe-30b-a3b --layers 8 --type q4_k --donor models/SmolLM2-135M-Instruct.Q4_1.gguf
"""
import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import threading
import time

import lode_client as lc

ROOT = pathlib.Path(__file__).resolve().parent.parent
READ_BYTES, READS = 1 << 20, 600
# Random weights repeat themselves greedily, and a few experts would do.
SAMPLED = {'temperature': 1.0, 'seed': 7}


class Peer(lc.Server):
    what = 'llama.cpp'

    def command(self):
        return [sys.executable, str(ROOT / 'tests' / 'peer.py'), str(self.model), str(self.port), *self.args]


def raw_rate(path):
    """Bytes per second of the disk under `path`: random whole-page reads around the page cache, four at once."""
    size, rng = os.path.getsize(path), random.Random(1)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    places = [rng.randrange(0, size - READ_BYTES) // 4096 * 4096 for _ in range(READS)]

    def work(mine):
        with mmap.mmap(-1, READ_BYTES) as room:
            for at in mine:
                os.preadv(fd, [room], at)

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [places[i::4] for i in range(4)]))
    os.close(fd)
    return READS * READ_BYTES / (time.monotonic() - start)


class Sampler(threading.Thread):
    """The most resident memory of a server while it lives: of its own, and of pages of files."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.most, self.ended = server, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            try:
                self.most = max(self.most, self.server.memory_kb() * 1024)
            except OSError:
                return

    def stop(self):
        self.ended.set()
        self.join()
        return self.most


def metrics(server):
    status, text = lc.request(server.port, 'GET', '/metrics')
    return {m[1]: float(m[2]) for m in re.finditer(r'^lode_(\S+) (\S+)$', text, re.M)} if status == 200 else {}


def one(server, tokens):
    """Prompt and generation speeds of the second request, and what the expert cache did while it generated."""
    words = lc.long_text(2300)
    lc.complete(server.port, f'1 {words}', max_tokens=tokens, ignore_eos=True, **SAMPLED)
    before = metrics(server) if not isinstance(server, Peer) else {}
    prompt = lc.complete(server.port, f'2 {words}', max_tokens=1, ignore_eos=True)
    # The same prompt again: nothing but the answer is computed, and counted.
    middle = metrics(server) if not isinstance(server, Peer) else {}
    reply = lc.complete(server.port, f'2 {words}', max_tokens=tokens, ignore_eos=True, **SAMPLED)
    after = metrics(server) if not isinstance(server, Peer) else {}
    return {'prompt_n': prompt.timings['prompt_n'], 'pp': prompt.timings['prompt_per_second'],
            'tg': reply.timings['predicted_per_second'], 'n': reply.timings['predicted_n'],
            'prompt': {k: middle[k] - before[k] for k in middle if k in before},
            'answer': {k: after[k] - middle[k] for k in after if k in middle}}


def measure(kind, model, args, threads, tokens):
    with tempfile.NamedTemporaryFile(suffix='.log') as log:
        flags = [*args, '-c', 1024, '-t', threads]
        server = kind(model, *flags, log=log.name, ready_s=300)
        server.start()
        sampler = Sampler(server)
        try:
            result = one(server, tokens)
            result['slots_bytes'] = metrics(server).get('expert_slots_bytes', 0) if kind is lc.Server else 0
            result['rss'] = sampler.stop()
            return result
        finally:
            server.kill()


def row(name, r, rate, resident_s):
    a = r['answer']
    missed = a.get('expert_read_bytes_total', 0) / r['n']
    bound = 1 / (resident_s + missed / rate)
    hits, misses = a.get('expert_hits_total', 0), a.get('expert_misses_total', 0)
    used = a.get('expert_prefetches_total{outcome="used"}', 0)
    wasted = a.get('expert_prefetches_total{outcome="wasted"}', 0)
    r.update(missed_bytes=missed, bound=bound, of_bound=r['tg'] / bound)
    cells = [name, f'{r["pp"]:.0f}', f'{r["tg"]:.1f}', f'{bound:.1f}', f'{r["tg"] / bound:.0%}', f'{missed / 1e6:.1f}',
             f'{hits / (hits + misses):.2f}' if hits + misses else '-', f'{used:.0f}/{used + wasted:.0f}',
             f'{a.get("expert_stall_seconds_total", 0) / r["n"] * 1e3:.1f}', f'{r["rss"] / 2**20:.0f}',
             f'{r["slots_bytes"] / 2**20:.0f}']
    print('| ' + ' | '.join(cells) + ' |', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('--shares', type=int, nargs='*', default=[50, 25])
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--tokens', type=int, default=64)
    parser.add_argument('--no-peer', action='store_true')
    parser.add_argument('--json')
    args = parser.parse_args()
    cpu = next((line.split(':')[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')), '?')
    rates = [raw_rate(args.model)]
    print(f'{cpu}, {args.threads} threads, {os.getloadavg()[0]:.1f} others waiting; raw {rates[0] / 1e9:.2f} GB/s')
    print('| experts in memory | pp512 | tg64 | bound | of bound | MB missed/token | hit rate | prefetches used | '
          'stall ms/token | resident MiB | slots MiB |\n|---|---|---|---|---|---|---|---|---|---|---|')
    results, base = {}, ['--kv-disk', 'off']
    resident = results['all'] = measure(lc.Server, args.model, base, args.threads, args.tokens)
    row('all', resident, rates[0], 1 / resident['tg'])
    for share in args.shares:
        rates.append(raw_rate(args.model))
        r = results[f'{share}%'] = measure(lc.Server, args.model, [*base, '--expert-ram', f'{share}%'], args.threads,
                                           args.tokens)
        row(f'{share}%', r, statistics.mean(rates[-2:]), 1 / resident['tg'])
    if not args.no_peer:
        r = results['llama.cpp'] = measure(Peer, args.model, [], args.threads, args.tokens)
        row('all, llama.cpp', r, rates[0], 1 / r['tg'])
        print(f'Lode / llama.cpp, all resident: pp512 {resident["pp"] / r["pp"]:.2f}, tg64 {resident["tg"] / r["tg"]:.2f}')
    print('raw rates: ' + ', '.join(f'{r / 1e9:.2f}' for r in rates) + ' GB/s')
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({'cpu': cpu, 'raw': rates, 'results': results}, indent=1))


if __name__ == '__main__':
    main()
