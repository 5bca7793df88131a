#!/usr/bin/env python3
"""Random sessions against `lode serve` with little memory and a small disk: do the budgets hold, are answers right?

    .venv/bin/python scripts/kv_storm.py [--seconds 600] [--model FILE] [--json FILE]

Clients grow conversations, fork them, come back to old ones, ask for long documents and for things nobody has asked for,
under three salts. Each second the KV memory, the KV folder and resident memory are sampled: committed KV memory must stay
within its limit, the folder (as the file system allocates it) within --kv-disk-max. Each conversation's answer is
compared with the one that the first client to ask it got, and a sample of them with cold answers at the end. Exit
code 1 where something did not hold.
"""
import argparse
import pathlib
import random
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'scripts'))

import lode_client as lc  # noqa: E402  (the path is set above)

MIB = 1 << 20
SALTS = ['', 'one', 'two']


def folder_bytes(folder):
    """What the file system has allocated for the files below."""
    total = 0
    for path in folder.rglob('*'):
        try:
            if path.is_file():
                total += path.stat().st_blocks * 512
        except OSError:  # Removed meanwhile.
            pass
    return total


class Storm:
    def __init__(self, server, seed, context_chars):
        self.server, self.seed, self.context_chars = server, seed, context_chars
        self.text = lc.long_text(90000)
        self.lock = threading.Lock()
        self.answers, self.faults = {}, []
        self.requests = self.reused = self.prompt = 0

    def beginning(self, rng):
        """A document of some hundreds to some thousands of tokens: a few that many share, and some of nobody's."""
        if rng.random() < 0.7:
            which = rng.randrange(12)
            return self.text[which * 5000: which * 5000 + 1500 + which % 4 * self.context_chars // 5]
        at = rng.randrange(80000)
        return f'{rng.random()} ' + self.text[at:at + rng.randrange(200, 4000)]

    def session(self, rng):
        salt, text = rng.choice(SALTS), self.beginning(rng)
        for turn in range(rng.randrange(1, 5)):
            text += f'\n\nQuestion {turn}: what is said of {rng.choice(["work", "copies", "law", "a lighthouse"])}?\nAnswer:'
            if len(text) > self.context_chars:
                return
            length = rng.choice([2, 8, 24])
            reply = lc.complete(self.server.port, text, max_tokens=length, ignore_eos=True,
                                **({'cache_salt': salt} if salt else {}))
            with self.lock:
                self.requests += 1
                self.reused += reply.cache.get('tokens_reused', 0)
                self.prompt += reply.usage['prompt_tokens']
                first = self.answers.setdefault((text, length), reply.text)
                if first != reply.text:
                    self.faults.append(f'another answer to the same prompt: {reply.text!r}, not {first!r}')
            text += reply.text

    def client(self, number, until):
        rng = random.Random(self.seed * 100 + number)
        while time.monotonic() < until and not self.faults:
            try:
                self.session(rng)
            except Exception as e:  # noqa: BLE001  (whatever it is, it is a violation to report)
                with self.lock:
                    self.faults.append(f'client {number}: {type(e).__name__} {e}')

    def compare_with_cold(self, count):
        rng = random.Random(self.seed)
        for n, (text, tokens) in enumerate(rng.sample(sorted(self.answers), min(count, len(self.answers)))):
            cold = lc.complete(self.server.port, text, max_tokens=tokens, ignore_eos=True, cache_salt=f'cold {n}')
            if cold.text != self.answers[text, tokens]:
                self.faults.append(f'not the cold answer: {self.answers[text, tokens]!r}, cold {cold.text!r}')


def storm(server, folder, disk_max, seconds=600.0, clients=6, seed=1, context_chars=9000, colds=20):
    """Runs it; a report whose 'faults' is empty where everything held."""
    it = Storm(server, seed, context_chars)
    begin = time.monotonic()
    threads = [threading.Thread(target=it.client, args=(n, begin + seconds), daemon=True) for n in range(clients)]
    for thread in threads:
        thread.start()
    samples = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        if server.process.poll() is not None:
            it.faults.append(f'the server ended with {server.process.returncode}: {server.tail()}')
            break
        kv, limit = (lc.metric(server, f'lode_kv_memory_bytes{{kind="{kind}"}}') for kind in ('committed', 'limit'))
        sample = {'s': round(time.monotonic() - begin, 1), 'kv': kv, 'disk': folder_bytes(folder),
                  'rss': server.memory_kb() * 1024}
        samples.append(sample)
        if kv > limit:
            it.faults.append(f'KV memory {kv:.0f} over its limit {limit:.0f} at {sample["s"]} s')
        if sample['disk'] > disk_max:
            it.faults.append(f'the KV folder takes {sample["disk"]} bytes of {disk_max} at {sample["s"]} s')
    if server.process.poll() is None:
        it.compare_with_cold(colds)
    late = [s['rss'] for s in samples if s['s'] > seconds / 3] or [0]
    return {'seconds': seconds, 'requests': it.requests, 'prompt_tokens': it.prompt, 'reused_tokens': it.reused,
            'samples': len(samples), 'kv_limit': limit if samples else 0, 'disk_max': disk_max,
            'peak': {k: max((s[k] for s in samples), default=0) for k in ('kv', 'disk', 'rss')},
            'rss_after_a_third': [min(late), max(late)], 'compared_with_cold': min(colds, len(it.answers)),
            'faults': it.faults, 'every_second': samples}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--seconds', type=float, default=600)
    parser.add_argument('--model', type=pathlib.Path, default=lc.GEMMA)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', type=pathlib.Path, help='write the report and all samples there')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / 'build') as name:
        folder, disk_max = pathlib.Path(name) / 'kv', 128 * MIB
        server = lc.Server(args.model, '-c', 4096, '-np', 4, '-t', 2, '--kv-ram', '48MiB', '--kv-disk', folder,
                           '--kv-disk-max', '128MiB', log=pathlib.Path(name) / 'server.log').start()
        try:
            report = storm(server, folder, disk_max, args.seconds, seed=args.seed)
        finally:
            ended = server.stop()
        if ended != 0:
            report['faults'].append(f'the server ended with {ended}')
    peak = report['peak']
    print(f'requests        {report["requests"]}, {report["prompt_tokens"]:,} tokens of prompt, '
          f'{100 * report["reused_tokens"] / max(1, report["prompt_tokens"]):.0f}% reused')
    print(f'KV memory       {peak["kv"] / MIB:.1f} MiB at most, of {report["kv_limit"] / MIB:.1f}, in {report["samples"]} samples')
    print(f'KV folder       {peak["disk"] / MIB:.1f} MiB at most, of {report["disk_max"] / MIB:.0f}')
    low, high = report['rss_after_a_third']
    print(f'resident        {peak["rss"] / MIB:.0f} MiB at most; {low / MIB:.0f} to {high / MIB:.0f} after the first third')
    print(f'answers         {report["compared_with_cold"]} compared with cold ones')
    return lc.end_report(report, args.json)


if __name__ == '__main__':
    sys.exit(main())
