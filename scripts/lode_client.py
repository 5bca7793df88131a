"""A client and a server handle for Lode, for the demo and the end-to-end tests. Standard library only.

`Server` owns one `lode serve` process on a free loopback port; `stream` and `complete` send one /v1/completions request
and return a `Reply`. Nothing here is imported by the product.
"""
import dataclasses
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / 'build' / 'lode'
GEMMA = ROOT / 'models' / 'gemma-3-270m-q4_k_m.gguf'
SMOLLM2 = ROOT / 'models' / 'SmolLM2-135M-Instruct.Q4_1.gguf'
LICENCES = ['GPL-3', 'Apache-2.0', 'MPL-2.0', 'LGPL-2.1', 'GFDL-1.3', 'Artistic']
FACT = 'The secret code of the lighthouse is 7421.'


def long_text(chars, fact=FACT):
    """`chars` characters of the licences every Debian carries, with a fact a third of the way in. 75000 characters are
    16,069 Gemma tokens with a question; 26000 are 5,547 SmolLM2 tokens."""
    folder = pathlib.Path('/usr/share/common-licenses')
    text = ''.join((folder / name).read_text(errors='replace') for name in LICENCES)
    if len(text) < chars:
        raise ValueError(f'{chars} characters wanted, the licences in {folder} have {len(text)}')
    cut = chars // 3
    return text[:cut] + '\n' + fact + '\n' + text[cut:chars]


def ask(text, question):
    return f'{text}\n\nQuestion: {question}\nAnswer:'


@dataclasses.dataclass
class Reply:
    text: str = ''
    tokens: list = dataclasses.field(default_factory=list)    # The tokens' text, one entry a token.
    logprobs: list = dataclasses.field(default_factory=list)  # Natural log, one float a token.
    top: list = dataclasses.field(default_factory=list)       # Per token: {text: logprob} of the most likely, or None.
    finish: str = ''
    usage: dict = dataclasses.field(default_factory=dict)
    timings: dict = dataclasses.field(default_factory=dict)
    cache: dict = dataclasses.field(default_factory=dict)
    ttft_s: float = 0.0                                       # Until the first piece of text (streamed replies only).
    total_s: float = 0.0
    heartbeats: int = 0                                       # Comment lines seen in the stream.
    silence_s: float = 0.0                                    # The longest wait for a line of the stream.
    done: bool = False                                        # The stream closed with [DONE].

    def same_as(self, other):
        """Same text, same tokens, same log-probabilities, bit for bit."""
        return (self.text, self.tokens, self.logprobs) == (other.text, other.tokens, other.logprobs)

    def add(self, chunk):
        if chunk.get('error'):
            raise HttpError(200, json.dumps(chunk['error']))
        for field in ('usage', 'timings', 'cache'):
            if chunk.get(field):
                setattr(self, field, chunk[field])
        for choice in chunk.get('choices', []):
            self.text += choice.get('text') or ''
            self.finish = choice.get('finish_reason') or self.finish
            probs = choice.get('logprobs') or {}
            self.tokens += probs.get('tokens') or []
            self.logprobs += probs.get('token_logprobs') or []
            self.top += probs.get('top_logprobs') or []


class HttpError(Exception):
    def __init__(self, status, body):
        super().__init__(f'HTTP {status}: {body[:500]}')
        self.status, self.body = status, body


def request(port, method, path, body=None, timeout=60):
    """(status, parsed JSON or text) of one plain request."""
    link = http.client.HTTPConnection('127.0.0.1', port, timeout=timeout)
    try:
        data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
        link.request(method, path, data, {'Content-Type': 'application/json'} if data is not None else {})
        answer = link.getresponse()
        raw = answer.read().decode('utf-8', 'replace')
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw
    finally:
        link.close()


def body_of(prompt, **options):
    """A greedy completion request of 32 tokens; options replace or add fields."""
    return {'prompt': prompt, 'max_tokens': 32, 'temperature': 0, **options}


def complete(port, prompt, timeout=600, **options):
    start = time.monotonic()
    status, answer = request(port, 'POST', '/v1/completions', body_of(prompt, **options), timeout)
    if status != 200 or not isinstance(answer, dict):
        raise HttpError(status, answer if isinstance(answer, str) else json.dumps(answer))
    reply = Reply(total_s=time.monotonic() - start)
    reply.add(answer)
    return reply


def stream(port, prompt, timeout=900, on_progress=None, **options):
    """One streamed completion. on_progress(processed, total) is called while the prompt is computed."""
    body = body_of(prompt, stream=True, stream_options={'include_usage': True}, **options)
    if on_progress:
        body['return_progress'] = True
    link = http.client.HTTPConnection('127.0.0.1', port, timeout=timeout)
    reply = Reply()
    start = time.monotonic()
    try:
        link.request('POST', '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
        answer = link.getresponse()
        if answer.status != 200:
            raise HttpError(answer.status, answer.read().decode('utf-8', 'replace'))
        heard = time.monotonic()
        for line in answer:
            reply.silence_s, heard = max(reply.silence_s, time.monotonic() - heard), time.monotonic()
            line = line.strip()
            if line.startswith(b':'):
                reply.heartbeats += 1
            if not line.startswith(b'data:'):
                continue
            data = line[5:].strip()
            if data == b'[DONE]':
                reply.done = True
                break
            chunk = json.loads(data)
            progress = chunk.get('prompt_progress')
            if progress and on_progress:
                on_progress(progress.get('processed', 0), progress.get('total', 0))
            before = len(reply.text)
            reply.add(chunk)
            if len(reply.text) > before and not reply.ttft_s:
                reply.ttft_s = time.monotonic() - start
        reply.total_s = time.monotonic() - start
        return reply
    finally:
        link.close()


def metric(server, name):
    """One figure of /metrics, by its whole name with labels."""
    page = request(server.port, 'GET', '/metrics')[1]
    found = re.search(rf'^{re.escape(name)} (\S+)$', page, re.M)
    assert found, f'no metric {name}'
    return float(found.group(1))


def end_report(report, path):
    """Prints a report's faults, writes it to `path` if there is one, and returns the exit code."""
    for fault in report['faults'][:20]:
        print(f'violation: {fault[:400]}')
    print(f'{len(report["faults"])} violations')
    if path:
        path.write_text(json.dumps(report, indent=1))
    return 1 if report['faults'] else 0


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    """One `lode serve` process. Use as a context manager, or start() and stop()."""

    def __init__(self, model, *args, log, binary=None, ready_s=60):
        self.model, self.args, self.log, self.ready_s = model, [str(a) for a in args], log, ready_s
        self.binary = binary or BINARY
        self.process, self.port, self.start_s = None, 0, 0.0

    what = 'lode serve'

    def command(self):
        return [str(self.binary), 'serve', str(self.model), '--port', str(self.port), *self.args]

    def start(self):
        self.port = free_port()
        begin = time.monotonic()
        with open(self.log, 'ab') as out:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        while time.monotonic() - begin < self.ready_s:
            if self.process.poll() is not None:
                raise RuntimeError(f'{self.what} ended with code {self.process.returncode}: {self.tail()}')
            try:
                if request(self.port, 'GET', '/health', timeout=2)[0] == 200:
                    self.start_s = time.monotonic() - begin
                    return self
            except OSError:
                pass
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f'{self.what} was not ready after {self.ready_s} s: {self.tail()}')

    def tail(self):
        lines = pathlib.Path(self.log).read_text(errors='replace').strip().splitlines()
        return ' | '.join(lines[-5:]) or 'no output'

    def output(self):
        return pathlib.Path(self.log).read_text(errors='replace')

    def memory_kb(self, field='VmRSS'):
        for line in pathlib.Path(f'/proc/{self.process.pid}/status').read_text().splitlines():
            if line.startswith(field + ':'):
                return int(line.split()[1])
        return 0

    def stop(self, timeout=60):
        """SIGTERM, as a service manager would; returns the exit code."""
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f'{self.what} did not end within {timeout} s of SIGTERM: {self.tail()}') from None

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self.kill()
