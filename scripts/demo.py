#!/usr/bin/env python3
"""Runs the main job and prints a table: a long prompt computed once, then reused in the same process and after a restart.

    demo.py [--chars 75000] [--model FILE] [--threads N]      75000 characters are about 16,000 Gemma tokens
"""
import argparse
import pathlib
import shutil
import sys
import threading
import time

import lode_client as lc

QUESTION_A = 'What is the secret code of the lighthouse?'
QUESTION_B = 'Which licence is named first in this text?'


class Progress:
    """One line that says how far a request is: redrawn on a terminal, otherwise printed every ten seconds."""

    def __init__(self, what):
        self.what, self.begin, self.share, self.total = what, time.monotonic(), 0.0, 0
        self.tty = sys.stderr.isatty()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.draw_until_end, daemon=True)

    def update(self, processed, total):
        self.share, self.total = (processed / total if total else 0.0), total

    def draw_until_end(self):
        while not self.ended.wait(0.25 if self.tty else 10):
            seconds = time.monotonic() - self.begin
            bar = '#' * int(self.share * 30)
            state = 'answering' if self.share >= 1 else f'{self.share:4.0%} of {self.total or "?"} prompt tokens'
            line = f'{self.what}: [{bar:<30}] {state}, {seconds:.0f} s'
            print(f'\r{line:<100}' if self.tty else line, end='' if self.tty else '\n', file=sys.stderr, flush=True)

    def __enter__(self):
        if not self.tty:
            print(f'{self.what} ...', file=sys.stderr, flush=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        if self.tty:
            print('\r' + ' ' * 100 + '\r', end='', file=sys.stderr, flush=True)


def ask(server, text, question, what):
    with Progress(what) as progress:
        reply = lc.stream(server.port, lc.ask(text, question), on_progress=progress.update, logprobs=1)
    if not reply.tokens:
        raise SystemExit(f'demo: failed: the reply to "{what}" has no tokens: {server.tail()}')
    return what, reply, server.memory_kb()


def tiers(cache):
    by_tier = {k: v for k, v in (cache.get('by_tier') or {}).items() if v}
    return ', '.join(f'{v:,} from {k}' for k, v in by_tier.items()) or '-'


def table(rows):
    head = ['request', 'prompt', 'computed', 'reused', 'first token', 'whole answer', 'resident']
    cells = [head]
    for what, reply, kb in rows:
        prompt = reply.usage.get('prompt_tokens', 0)
        computed = reply.timings.get('prompt_n', 0)
        cells.append([what, f'{prompt:,} tokens', f'{computed:,}', tiers(reply.cache), f'{reply.ttft_s:.3f} s',
                      f'{reply.total_s:.2f} s', f'{kb / 1024:.0f} MiB'])
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for n, row in enumerate(cells):
        lines.append('  '.join(c.ljust(w) if i in (0, 3) else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))))
        if n == 0:
            lines.append('  '.join('-' * w for w in widths))
    return '\n'.join(line.rstrip() for line in lines)


def run(a, work):
    text = lc.long_text(a.chars)
    options = ['--kv-disk', work / 'kv'] + (['-t', a.threads] if a.threads else [])
    log = work / 'server.log'
    rows, starts = [], []
    with lc.Server(a.model, *options, log=log) as server:
        starts.append(server.start_s)
        rows.append(ask(server, text, QUESTION_A, 'cold, question A'))
        rows.append(ask(server, text, QUESTION_B, 'warm, question B'))
        rows.append(ask(server, text, QUESTION_A, 'warm, question A'))
        stopping = time.monotonic()
        server.stop()
        stop_s = time.monotonic() - stopping
    with lc.Server(a.model, *options, log=log) as server:
        starts.append(server.start_s)
        rows.append(ask(server, text, QUESTION_A, 'after restart, question A'))
        rows.append(ask(server, text, QUESTION_B, 'after restart, question B'))
    stored = sum(f.stat().st_blocks * 512 for f in (work / 'kv').rglob('*') if f.is_file())
    print(f'\n{pathlib.Path(a.model).name}, {a.chars:,} characters with a hidden fact, 32 greedy tokens a reply\n')
    print(table(rows))
    print(f'\nserver ready in {starts[0]:.2f} s, after the restart in {starts[1]:.2f} s; stopping took {stop_s:.2f} s; '
          f'{stored / 2**20:.0f} MiB of KV on disk')
    print(f'answer A: {rows[0][1].text.strip().splitlines()[0] if rows[0][1].text.strip() else ""!r}')
    return agreement(rows)


def agreement(rows):
    """Compares each reply with the first one to the same question; True if all agree and the prefix was reused."""
    cold_a, warm_b, warm_a, restored_a, restored_b = (reply for _, reply, _ in rows)
    fine = True
    for name, first, again in [('cold A = warm A', cold_a, warm_a), ('cold A = restored A', cold_a, restored_a),
                               ('warm B = restored B', warm_b, restored_b)]:
        same = first.same_as(again)
        fine &= same
        print(f'{name}: {"the same tokens and log-probabilities, bit for bit" if same else "THEY DIFFER"} '
              f'({len(first.logprobs)} and {len(again.logprobs)} tokens)')
    for what, reply, _ in rows[1:]:
        prompt, computed = reply.usage.get('prompt_tokens', 0), reply.timings.get('prompt_n')
        if computed is None or computed > prompt // 2:
            fine = False
            print(f'{what}: the prefix was not reused ({computed} of {prompt} tokens computed): '
                  f'{reply.cache.get("reason", "no reason given")}')
    return fine


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--chars', type=int, default=75000)
    ap.add_argument('--model', default=str(lc.GEMMA))
    ap.add_argument('--threads', type=int, default=0)
    a = ap.parse_args()
    # Not in /tmp, which may be memory: the point is a real disk.
    work = lc.ROOT / 'build' / 'demo'
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        fine = run(a, work)
    except (RuntimeError, OSError, ValueError, lc.HttpError) as problem:
        raise SystemExit(f'demo: failed: {problem}') from None
    shutil.rmtree(work / 'kv', ignore_errors=True)
    print('demo: passed' if fine else 'demo: FAILED: see the lines above')
    return 0 if fine else 1


if __name__ == '__main__':
    sys.exit(main())
