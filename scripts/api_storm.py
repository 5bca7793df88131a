#!/usr/bin/env python3
"""64 clients at once against `lode serve`: short, long, cancelled, malformed and slow requests, all mixed.

    .venv/bin/python scripts/api_storm.py [--seconds 180] [--clients 64] [--json FILE] [--model FILE]

Before it begins, every prompt's cold answer is taken one after another; in the storm each accepted request must be
answered, and with its own prompt's answer, byte for byte. At the end no slot may be busy and nothing may wait; resident
memory must be within 5% of what it was after a third of the time (a minute of three). Exit code 1 where that is not so.
"""
import argparse
import http.client
import json
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'scripts'))

import lode_client as lc  # noqa: E402  (the path is set above)

MALFORMED = [b'{"prompt": "cut', b'[]', b'{"prompt": 5}', b'{"prompt": "x", "max_tokens": "many"}', b'\xff\xfe\x00',
             b'{"prompt": "x", "temperature": -1}', b'{' * 2000, b'{"messages": [{"role": "nobody"}]}', b'']
RAW = [b'GET / HTTP/9.9\r\n\r\n', b'\x16\x03\x01\x02\x00\x01', b'POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n',
       b'GET /health HTTP/1.1\r\nX: ' + b'a' * 40000 + b'\r\n\r\n']


def prompts(count, long_chars):
    """Short prompts and some long ones, no two alike from the first word on."""
    text = lc.long_text(60000)
    out = []
    for i in range(count):
        if i % 4 == 3:
            at = 997 * i % 40000
            out.append((f'Document {i}. ' + text[at:at + long_chars], 12))
        else:
            out.append((f'Client {i} counts from {i * 7}: {i * 7}, {i * 7 + 1}, {i * 7 + 2},', 4 + i % 9))
    return out


class Storm:
    def __init__(self, server, work, seed):
        self.server, self.work, self.seed = server, work, seed
        self.lock = threading.Lock()
        self.counts, self.faults, self.seconds = {}, [], []
        self.cold = {}
        self.until = 0

    def body(self, index, **more):
        prompt, tokens = self.work[index]
        return {'prompt': prompt, 'max_tokens': tokens, 'temperature': 0, 'ignore_eos': True, **more}

    def take_cold_answers(self):
        for index in range(len(self.work)):
            status, reply = lc.request(self.server.port, 'POST', '/v1/completions',
                                       self.body(index, cache_salt=f'cold {index}'), timeout=300)
            assert status == 200, reply
            self.cold[index] = reply['choices'][0]['text']

    def note(self, kind, fault=None, seconds=None):
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if fault:
                self.faults.append(f'{kind}: {fault}')
            if seconds is not None:
                self.seconds.append(seconds)

    def refused(self):
        self.note('refused, queue full')
        time.sleep(0.3)

    def whole(self, index):
        start = time.monotonic()
        status, reply = lc.request(self.server.port, 'POST', '/v1/completions', self.body(index), timeout=300)
        if status == 503:
            return self.refused()
        wrong = status != 200 or reply['choices'][0]['text'] != self.cold[index]
        self.note('whole', f'prompt {index}: {status} {reply}' if wrong else None, time.monotonic() - start)

    def streamed(self, index, leave_after=None, slowly=False):
        kind = 'cancelled' if leave_after is not None else 'slow reader' if slowly else 'streamed'
        link = http.client.HTTPConnection('127.0.0.1', self.server.port, timeout=300)
        start = time.monotonic()
        try:
            link.request('POST', '/v1/completions', json.dumps(self.body(index, stream=True)),
                         {'Content-Type': 'application/json'})
            if leave_after == 0:
                return self.note(kind)
            answer = link.getresponse()
            if answer.status == 503:
                return self.refused()
            text, events, done = '', 0, False
            for line in answer:
                if not line.startswith(b'data:'):
                    continue
                if line[5:].strip() == b'[DONE]':
                    done = True
                    break
                chunk = json.loads(line[5:])
                if 'error' in chunk:
                    return self.note(kind, f'prompt {index}: {chunk}')
                text += ''.join(c.get('text') or '' for c in chunk['choices'])
                events += 1
                if leave_after is not None and events >= leave_after:
                    return self.note(kind)
                if slowly:
                    time.sleep(0.1)
            wrong = not done or text != self.cold[index]
            self.note(kind, f'prompt {index}: {text!r}, not {self.cold[index]!r}' if wrong else None,
                      time.monotonic() - start)
        finally:
            link.close()

    def malformed(self, rng):
        if rng.random() < 0.5:
            status, reply = lc.request(self.server.port, 'POST', '/v1/completions', rng.choice(MALFORMED), timeout=60)
            good = status == 400 and isinstance(reply, dict) and 'error' in reply
            return self.note('malformed', None if good else f'{status} {reply}')
        with socket.create_connection(('127.0.0.1', self.server.port), timeout=60) as s:
            s.sendall(rng.choice(RAW))
            s.shutdown(socket.SHUT_WR)
            head = s.recv(100)
            good = not head or b' 400 ' in head or b' 431 ' in head
            self.note('malformed', None if good else f'{head!r}')

    def slow_sender(self, index, rng):
        """A request that dribbles in; half of them stop in the middle."""
        data = json.dumps(self.body(index)).encode()
        stops = rng.random() < 0.5
        with socket.create_connection(('127.0.0.1', self.server.port), timeout=300) as s:
            s.sendall(f'POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n'.encode())
            for at in range(0, len(data), max(1, len(data) // 8)):
                if stops and at > len(data) // 2:
                    return self.note('slow sender, left')
                s.sendall(data[at:at + max(1, len(data) // 8)])
                time.sleep(0.05)
            answer = b''
            while piece := s.recv(65536):
                answer += piece
        head, _, rest = answer.partition(b'\r\n\r\n')
        if b' 503 ' in head[:40]:
            return self.refused()
        wrong = b' 200 ' not in head[:40] or json.loads(rest)['choices'][0]['text'] != self.cold[index]
        self.note('slow sender', f'prompt {index}: {answer[:300]!r}' if wrong else None)

    def client(self, number):
        rng = random.Random(self.seed * 1000 + number)
        while time.monotonic() < self.until:
            index, dice = rng.randrange(len(self.work)), rng.random()
            try:
                if dice < 0.35:
                    self.whole(index)
                elif dice < 0.6:
                    self.streamed(index)
                elif dice < 0.8:
                    self.streamed(index, leave_after=rng.choice([0, 0, 1, 2, 3]))
                elif dice < 0.9:
                    self.malformed(rng)
                elif dice < 0.95:
                    self.slow_sender(index, rng)
                else:
                    self.streamed(index, slowly=True)
            except ConnectionResetError as e:  # Of what is no HTTP the server may close unread bytes.
                self.note('malformed', None if dice >= 0.8 and dice < 0.9 else f'client {number}: {e}')
            except Exception as e:  # noqa: BLE001  (whatever it is, it is a violation to report)
                self.note('broken', f'client {number}: {type(e).__name__} {e}')

    def run(self, clients, seconds):
        """Samples of (seconds, resident KiB), one a second."""
        begin = time.monotonic()
        self.until = begin + seconds
        threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(clients)]
        for thread in threads:
            thread.start()
        samples = []
        while time.monotonic() < self.until:
            time.sleep(1)
            samples.append((time.monotonic() - begin, self.server.memory_kb()))
            if self.server.process.poll() is not None:
                self.faults.append(f'the server ended with {self.server.process.returncode}: {self.server.tail()}')
                break
        for thread in threads:
            thread.join(timeout=120)
        stuck = sum(thread.is_alive() for thread in threads)
        if stuck:
            self.faults.append(f'{stuck} clients still wait 120 s after the end')
        return samples


def at_rest(server):
    """Nothing is computed and nothing waits, at most 10 s after the last client; what is wrong otherwise."""
    for _ in range(100):
        busy = sum(slot['is_processing'] for slot in lc.request(server.port, 'GET', '/slots')[1])
        waiting = lc.metric(server, 'lode_requests_queued')
        if busy == 0 and waiting == 0:
            return None
        time.sleep(0.1)
    return f'{busy} slots are still busy, {waiting:.0f} requests wait'


def judge_memory(samples, seconds):
    """(KiB after a third, KiB at the end, growth): medians of some samples each."""
    def median(values):
        return sorted(values)[len(values) // 2] if values else 0
    third = median([kb for t, kb in samples if seconds / 3 <= t <= seconds / 3 + max(3, seconds / 20)])
    end = median([kb for t, kb in samples if t >= seconds - max(3, seconds / 20)])
    return third, end, (end / third - 1 if third else 0)


def storm(server, clients=64, seconds=180, count=48, long_chars=2400, seed=1):
    """Runs it; a report whose 'faults' is empty where everything held."""
    it = Storm(server, prompts(count, long_chars), seed)
    it.take_cold_answers()
    samples = it.run(clients, seconds)
    faults = list(it.faults)
    report = {'clients': clients, 'seconds': seconds, 'requests': dict(sorted(it.counts.items()))}
    if server.process.poll() is None:
        if wrong := at_rest(server):
            faults.append(wrong)
        it.counts, it.faults = {}, []
        for index in range(min(4, count)):
            it.whole(index)
        faults += [f'after the storm: {f}' for f in it.faults]
    third, end, growth = judge_memory(samples, seconds)
    if growth > 0.05 and seconds >= 60:  # Before that the KV's own memory still fills.
        faults.append(f'resident memory grew by {100 * growth:.1f}% from {third} to {end} KiB after the first third')
    times = sorted(it.seconds) or [0]
    report |= {'answer_seconds': {'median': round(times[len(times) // 2], 3), 'p99': round(times[len(times) * 99 // 100], 3),
                                  'most': round(times[-1], 3)},
               'rss_kib': {'after_a_third': third, 'end': end, 'growth': round(growth, 4)}, 'faults': faults}
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--seconds', type=float, default=180)
    parser.add_argument('--clients', type=int, default=64)
    parser.add_argument('--model', type=pathlib.Path, default=lc.SMOLLM2)
    parser.add_argument('--slots', type=int, default=8)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', type=pathlib.Path, help='write the report there too')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / 'build') as name:
        folder = pathlib.Path(name)
        server = lc.Server(args.model, '-c', 2048, '-np', args.slots, '-t', 2, '--queue', 52, '--kv-ram', '160MiB',
                           '--kv-disk', folder / 'kv', '--kv-disk-max', '512MiB', log=folder / 'server.log').start()
        try:
            report = storm(server, args.clients, args.seconds, seed=args.seed)
        finally:
            ended = server.stop()
        if ended != 0:
            report['faults'].append(f'the server ended with {ended}')
    for kind, n in report['requests'].items():
        print(f'{kind:24} {n:7}')
    print(f'{"answers, seconds":24} median {report["answer_seconds"]["median"]}, p99 {report["answer_seconds"]["p99"]}, '
          f'most {report["answer_seconds"]["most"]}')
    rss = report['rss_kib']
    print(f'{"resident memory":24} {rss["after_a_third"] // 1024} MiB after a third, {rss["end"] // 1024} MiB at the end '
          f'({100 * rss["growth"]:+.1f}%)')
    return lc.end_report(report, args.json)


if __name__ == '__main__':
    sys.exit(main())
