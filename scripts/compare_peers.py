#!/usr/bin/env python3
"""Lode beside llama.cpp (PyPI's xllamacpp) on the same work, in turns, and beside this machine's own ceilings.

    compare_peers.py                         every line, three rounds: about 20 minutes on 2 cores
    compare_peers.py --only 'gemma/tg64*'    some lines; --list names them
    compare_peers.py --json > result.json    progress goes to stderr
    compare_peers.py --self-test             proves that figures, targets and warnings are worked out rightly

In each round the two engines take turns, each with a fresh server and nothing cached; which goes first changes from
round to round. A ratio is of neighbours in time: on a shared machine nothing else compares. Both get the same threads
and context. Lines of qwen3-* are measured against machine_bench's ceilings, taken before and after; their models are
made by --make-model FILE in --cache FOLDER. Exit code 1 if something could not be measured; a target that is missed is
only said.
"""
import argparse
import collections
import dataclasses
import fnmatch
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lode_client as lc

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {'gemma': lc.GEMMA, 'smollm2': lc.SMOLLM2}
SPEED = ['pp512', 'tg64', 'pp512 @d4096', 'tg64 @d4096']
SPEED_CONTEXT = 8192    # 4,096 tokens of prefix, 512 of prompt, 64 of answer, and room for estimates that are off.
SPEED_REPEATS = 3
LONG_CONTEXT = 18432    # 16,069 tokens of prompt.
LONG_CHARS = 75000
SEQUENCES, SEQUENCE_CONTEXT, SEQUENCE_TOKENS = 8, 1024, 64
LOAD_RUNS = 10
SERVE_OPTIONS = []      # More of Lode's server (--serve-options).
OTHERS_MAX = 0.15       # Cores that others may use before a line is marked.
# The shape of make_model.py's qwen3-0.6b with SmolLM2's vocabulary: multiply-adds of a prompt's token are those of the
# layers' matrices (attention and the last token's output are left out); a generated token reads these and the output.
QWEN_LAYER_WEIGHTS = 1024 * 2048 + 2 * 1024 * 1024 + 2048 * 1024 + 3 * 1024 * 3072
QWEN_WEIGHTS = 28 * QWEN_LAYER_WEIGHTS
QWEN_OUTPUT = 49152 * 1024
QWEN_BYTES = {'q4_k': 144 / 256, 'q8_0': 34 / 32, 'q4_0': 18 / 32}  # Of a weight.

# What Lode means to reach: (comparison, bound); a bound of a line without a peer is in its own unit.
TARGETS = {
    'gemma/pp512': ('>=', 2.5), 'gemma/pp512 @d4096': ('>=', 2.5), 'gemma/tg64': ('>=', 1.4), 'gemma/tg64 @d4096': ('>=', 1.5),
    'gemma/16k first token': ('<=', 0.44), 'gemma/8 sequences': ('>=', 2.0),
    'smollm2/pp512': ('>=', 4.0), 'smollm2/pp512 @d4096': ('>=', 4.0), 'smollm2/tg64': ('>=', 1.8),
    'smollm2/tg64 @d4096': ('>=', 3.0), 'smollm2/8 sequences': ('>=', 2.0),
    'gemma/load run': ('<=', 0.7), 'gemma/load run, new model': ('<=', 0.7), 'gemma/load serve': ('<=', 0.7),
    **{f'qwen3-{t}/pp512': ('>=', 0.35) for t in QWEN_BYTES}, **{f'qwen3-{t}/tg64': ('>=', 0.80) for t in QWEN_BYTES},
}


@dataclasses.dataclass
class Line:
    """One row of the table. `against`: what the second column is; a line against nothing has a target in its own unit."""
    name: str
    unit: str
    against: str = ''                                     # 'llama.cpp', 'int8 peak', 'stream', or ''.
    ours: list = dataclasses.field(default_factory=list)  # One figure a round.
    theirs: list = dataclasses.field(default_factory=list)
    others: list = dataclasses.field(default_factory=list)  # Cores that other processes used meanwhile.
    notes: list = dataclasses.field(default_factory=list)
    errors: list = dataclasses.field(default_factory=list)
    skipped: str = ''

    def ratios(self):
        return [a / b for a, b in zip(self.ours, self.theirs)] if self.against else list(self.ours)

    def met(self):
        """True, False, or None where there is no target or no figure."""
        target, ratios = TARGETS.get(self.name), self.ratios()
        if not target or not ratios:
            return None
        median = statistics.median(ratios)
        return median >= target[1] if target[0] == '>=' else median <= target[1]


def make_lines():
    lines = []
    for model in MODELS:
        lines += [Line(f'{model}/{test}', 'tokens/s', 'llama.cpp') for test in SPEED]
        if model == 'gemma':
            lines.append(Line('gemma/16k first token', 's', 'llama.cpp'))
        lines.append(Line(f'{model}/8 sequences', 'tokens/s', 'llama.cpp'))
    for kind in QWEN_BYTES:
        lines += [Line(f'qwen3-{kind}/pp512', 'GMAC/s', 'int8 peak'), Line(f'qwen3-{kind}/tg64', 'GB/s', 'stream')]
    lines += [Line(f'gemma/load {what}', 's') for what in ('run', 'run, new model', 'serve')]
    return lines


def select(lines, patterns):
    """The lines that one of the patterns names, in their order; an error for a pattern that names none."""
    if not patterns:
        return lines
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(line.name, pattern) for line in lines):
            raise SystemExit(f'compare_peers.py: --only {pattern}: no such line; --list names them')
    return [line for line in lines if any(fnmatch.fnmatchcase(line.name, p) for p in patterns)]


# ---- The machine's load

def busy_seconds(stat):
    """Processor time that anybody used, from the text of /proc/stat: all but idle and waiting for a disk. Time that the
    host took from this machine (steal) counts as others'."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(f) for f in stat.split('\n', 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf('SC_CLK_TCK')


class LoadWatch:
    """How many cores everybody else used while a block ran whose processes have ended with it."""

    def sample(self):
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return (time.monotonic(), busy_seconds(pathlib.Path('/proc/stat').read_text()),
                sum(u.ru_utime + u.ru_stime for u in own))

    def __enter__(self):
        self.begin = self.sample()
        return self

    def __exit__(self, *_):
        wall, busy, own = (b - a for a, b in zip(self.begin, self.sample()))
        self.cores = max(0.0, (busy - own) / wall) if wall > 0 else 0.0


# ---- The engines

class Peer(lc.Server):
    """llama.cpp, served by tests/peer.py. Used as lode_client.Server is."""
    what = 'llama.cpp'

    def command(self):
        return [sys.executable, str(ROOT / 'tests' / 'peer.py'), str(self.model), str(self.port), *self.args]


class Engines:
    def __init__(self, threads, folder):
        self.threads, self.folder = threads, folder

    def start(self, name, model, context, slots=1):
        """A server that nobody has asked anything, with an empty KV folder."""
        log = self.folder / f'{name}.log'
        if name == 'llama.cpp':
            return Peer(model, '-c', context * slots, '-t', self.threads, '--n-parallel', slots, log=log)
        kv = self.folder / 'kv'
        shutil.rmtree(kv, ignore_errors=True)
        return lc.Server(model, '-c', context, '-t', self.threads, '-np', slots, '--kv-disk', kv, *SERVE_OPTIONS, log=log)


# ---- What is measured on a running server

def speed_of(report):
    """{'pp512': tokens/s, ...} from `lode bench --tests speed --json`."""
    figures = {}
    for row in report['rows']:
        if row['test'] != 'speed' or row.get('skipped'):
            continue
        if row['failures']:
            raise RuntimeError(f'{row["arm"]}: {row["failures"][0]}')
        field = 'prompt_tokens_per_s' if row['arm'].startswith('pp') else 'generation_tokens_per_s'
        if row[field] is None:
            raise RuntimeError(f'{row["arm"]}: the reply has too few tokens to measure')
        figures[row['arm']] = row[field]['median']
    return figures


def measure_speed(server):
    """Each figure is a median of SPEED_REPEATS: a prompt of 512 tokens takes half a second, too short to stand alone."""
    command = [str(lc.BINARY), 'bench', f'http://127.0.0.1:{server.port}', '--tests', 'speed', '--repeat', str(SPEED_REPEATS),
               '--json', '--no-progress']
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800)
    if not done.stdout.strip():
        raise RuntimeError(f'lode bench ended with code {done.returncode}: {done.stderr.strip()[-300:]}')
    return speed_of(json.loads(done.stdout))


def measure_first_token(server):
    reply = lc.stream(server.port, lc.ask(lc.long_text(LONG_CHARS), 'What is the secret code of the lighthouse?'), max_tokens=8)
    tokens = reply.usage.get('prompt_tokens', 0)
    if not 15000 < tokens < 17500:
        raise RuntimeError(f'the long prompt has {tokens} tokens, expected about 16,069')
    if not reply.ttft_s:
        raise RuntimeError('the long prompt got no text in reply')
    return {'16k first token': reply.ttft_s}


def prompt_of(i):
    topics = ['the sea', 'a red house', 'old trains', 'the moon', 'bread', 'winter', 'a lost key', 'music']
    return f'Number {i}. Here is a short story about {topics[i % len(topics)]} that nobody has told before: Once'


def measure_sequences(server):
    """All clients start at once; tokens of all replies over the time until the last one ends, prompts included."""
    def ask_all(first, tokens):
        replies, barrier = [None] * SEQUENCES, threading.Barrier(SEQUENCES + 1)

        def ask(i):
            barrier.wait()
            try:
                replies[i] = lc.complete(server.port, prompt_of(first + i), max_tokens=tokens, ignore_eos=True)
            except Exception as error:  # Reported below, from the main thread.
                replies[i] = error
        clients = [threading.Thread(target=ask, args=(i,)) for i in range(SEQUENCES)]
        for client in clients:
            client.start()
        barrier.wait()
        begin = time.monotonic()
        for client in clients:
            client.join()
        seconds = time.monotonic() - begin
        for reply in replies:
            if isinstance(reply, Exception):
                raise RuntimeError(f'one of {SEQUENCES} sequences failed: {reply}')
        counts = [reply.usage.get('completion_tokens', 0) for reply in replies]
        if min(counts) != tokens or max(counts) != tokens:
            raise RuntimeError(f'expected {tokens} tokens in every reply, found {counts}')
        return sum(counts) / seconds
    ask_all(100, 4)  # What is made at the first batch is made here.
    return {f'{SEQUENCES} sequences': ask_all(0, SEQUENCE_TOKENS)}


# ---- Start-up

def first_byte_seconds(command):
    """Seconds from the start of a process to the first byte on its stdout, and its processor time in all."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    first = process.stdout.read(1)
    seconds = time.monotonic() - begin
    process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not first:
        raise RuntimeError(f'{" ".join(command)}: ended with code {process.returncode} and {"some" if first else "no"} output')
    return seconds, usage.ru_utime + usage.ru_stime


def measure_load(engines, what, model):
    """The best of ten starts: what the program needs when nobody is in its way. The page cache is warm."""
    kv, wall, processor = engines.folder / 'kv-load', [], []
    for i in range(LOAD_RUNS + 1):  # The first one only warms.
        if what == 'run, new model' or i == 0:
            shutil.rmtree(kv, ignore_errors=True)
        if what == 'serve':
            server = lc.Server(model, '-t', engines.threads, '--kv-disk', kv, *SERVE_OPTIONS, log=engines.folder / 'load.log')
            begin = time.monotonic()
            with server:
                reply = lc.stream(server.port, 'Hello', max_tokens=1)
                seconds, used = (time.monotonic() - begin) - (reply.total_s - reply.ttft_s), 0.0
            if not reply.ttft_s:
                raise RuntimeError('the first request got no text in reply')
        else:
            seconds, used = first_byte_seconds([str(lc.BINARY), 'run', str(model), '-p', 'Hello', '-n', '1', '--temp', '0',
                                                '-t', str(engines.threads), '--kv-disk', str(kv)])
        if i > 0:
            wall.append(seconds)
            processor.append(used)
    note = f'median {statistics.median(wall):.2f} s'
    return min(wall), note + (f', {min(processor):.2f} s of processor time' if any(processor) else '')


# ---- Ceilings

def ceilings(threads):
    done = subprocess.run([str(ROOT / 'build' / 'machine_bench'), '--threads', str(threads), '--rounds', '5', '--json'],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f'machine_bench ended with code {done.returncode}: {done.stderr.strip()}')
    best = json.loads(done.stdout)['rows'][0]  # The best instruction set comes first.
    return {'int8 peak': best['int8_gmac_per_s']['median'], 'stream': best['stream_gb_per_s']['median']}


def make_qwen(kind, args):
    path = args.cache / f'qwen3-0.6b-{kind}.gguf'
    if path.exists():
        return path
    if not args.make_model.exists():
        raise FileNotFoundError(f'{args.make_model} is not there; name it with --make-model')
    args.cache.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix('.tmp')
    done = subprocess.run([sys.executable, str(args.make_model), str(half), '--preset', 'qwen3-0.6b', '--type', kind, '--donor',
                           str(lc.SMOLLM2)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f'{args.make_model}: {done.stderr.strip()[-300:]}')
    half.rename(path)
    return path


# ---- Rounds

class Comparison:
    def __init__(self, lines, args, folder):
        self.lines = collections.OrderedDict((line.name, line) for line in lines)
        self.args, self.engines = args, Engines(args.threads, folder)

    def wanted(self, prefix, tests):
        return [self.lines[f'{prefix}/{t}'] for t in tests if f'{prefix}/{t}' in self.lines]

    def say(self, text):
        print(f'[{time.strftime("%H:%M:%S")}] {text}', file=sys.stderr, flush=True)

    def run(self):
        for number in range(self.args.rounds):
            order = ['lode', 'llama.cpp'] if number % 2 == 0 else ['llama.cpp', 'lode']
            for model, path in MODELS.items():
                self.pair(number, order, model, path, SPEED, SPEED_CONTEXT, 1, measure_speed)
                self.pair(number, order, model, path, ['16k first token'], LONG_CONTEXT, 1, measure_first_token)
                self.pair(number, order, model, path, [f'{SEQUENCES} sequences'], SEQUENCE_CONTEXT, SEQUENCES, measure_sequences)
            for kind in QWEN_BYTES:
                self.against_ceilings(number, kind)
            for what in ('run', 'run, new model', 'serve'):
                self.load(number, what)

    def attempt(self, number, lines, work):
        """work() fills in figures; what goes wrong is written into the lines and the comparison goes on."""
        if not lines or any(line.skipped for line in lines):
            return
        try:
            with LoadWatch() as watch:
                work()
        except (RuntimeError, OSError, lc.HttpError, subprocess.TimeoutExpired, KeyError, ValueError) as error:
            self.say(f'failed: {error}')
            for line in lines:
                line.errors.append(f'round {number + 1}: {error}')
            return
        for line in lines:
            line.others.append(watch.cores)

    def pair(self, number, order, model, path, tests, context, slots, measure):
        lines = self.wanted(model, tests)

        def work():
            figures = {}
            for name in order:
                begin = time.monotonic()
                with self.engines.start(name, path, context, slots) as server:
                    figures[name] = measure(server)
                self.say(f'round {number + 1}: {model}, {name}: ' + ', '.join(f'{t} {v:.4g}' for t, v in figures[name].items()) +
                         f' ({time.monotonic() - begin:.0f} s)')
            for line in lines:
                test = line.name.split('/', 1)[1]
                ours, theirs = figures['lode'][test], figures['llama.cpp'][test]
                line.ours.append(ours)
                line.theirs.append(theirs)
        self.attempt(number, lines, work)

    def against_ceilings(self, number, kind):
        lines = self.wanted(f'qwen3-{kind}', ['pp512', 'tg64'])
        if not lines:
            return
        try:
            path = make_qwen(kind, self.args)
        except FileNotFoundError as error:
            for line in lines:
                line.skipped = str(error)
            return

        def work():
            before = ceilings(self.args.threads)
            with self.engines.start('lode', path, SEQUENCE_CONTEXT) as server:
                speed = measure_speed(server)
            after = ceilings(self.args.threads)
            ours = {'pp512': speed['pp512'] * QWEN_WEIGHTS * 1e-9,
                    'tg64': speed['tg64'] * (QWEN_WEIGHTS + QWEN_OUTPUT) * QWEN_BYTES[kind] * 1e-9}
            for line in lines:
                line.ours.append(ours[line.name.split('/')[1]])
                line.theirs.append((before[line.against] + after[line.against]) / 2)
            self.say(f'round {number + 1}: qwen3-{kind}: pp512 {speed["pp512"]:.4g} tokens/s, tg64 {speed["tg64"]:.4g} tokens/s')
        self.attempt(number, lines, work)

    def load(self, number, what):
        lines = self.wanted('gemma', [f'load {what}'])

        def work():
            seconds, note = measure_load(self.engines, what, MODELS['gemma'])
            lines[0].ours.append(seconds)
            lines[0].notes.append(note)
            self.say(f'round {number + 1}: load {what}: {seconds:.3f} s, the best of {LOAD_RUNS}; {note}')
        self.attempt(number, lines, work)


# ---- The report

def number_text(value):
    return f'{value:.0f}' if value >= 100 else f'{value:.1f}' if value >= 10 else f'{value:.3g}'


def spread_text(values, text=number_text):
    if not values:
        return '-'
    return f'{text(statistics.median(values))} [{text(min(values))}-{text(max(values))}]'


def ratio_text(line):
    if line.against in ('int8 peak', 'stream') or (line.against and line.unit == 's'):
        return lambda value: f'{100 * value:.0f}%'
    return lambda value: f'{value:.2f}'


def row_of(line):
    if line.skipped:
        return [line.name, line.unit, 'skipped: ' + line.skipped]
    text, target = ratio_text(line), TARGETS.get(line.name)
    bound = f'{target[0]} {text(target[1])}' if target else '-'
    met = {True: 'yes', False: 'NO', None: '-'}[line.met()]
    ratios = line.ratios() if line.against else []
    return [line.name, line.unit, spread_text(line.ours), line.against or '-', spread_text(line.theirs),
            ', '.join(text(r) for r in ratios) or '-', spread_text(ratios, text), bound, met, spread_text(line.others, lambda v: f'{v:.2f}')]


def table(lines):
    rows = [['line', '', 'Lode', 'against', '', 'each round', 'ratio', 'target', 'met', "others' cores"]] + [row_of(line) for line in lines]
    # A skipped line has a name, a unit and its reason, which runs over the other columns.
    widths = [max(len(row[i]) for row in rows if i < 2 or len(row) > 3) for i in range(len(rows[0]))]
    return '\n'.join('  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def warnings(lines):
    out = [f'failed: {line.name}: {error}' for line in lines for error in line.errors]
    busy = [line for line in lines if line.others and statistics.median(line.others) > OTHERS_MAX]
    if busy:
        out.append(f'warning: others used more than {OTHERS_MAX} cores beside {len(busy)} of {len(lines)} lines ('
                   + ', '.join(line.name for line in busy) + '): absolute figures are too low there, and ratios less sure')
    return out


def to_json(lines, args):
    return {'rounds': args.rounds, 'threads': args.threads, 'lines': [{
        'line': line.name, 'unit': line.unit, 'against': line.against or None, 'lode': line.ours, 'other': line.theirs,
        'ratios': line.ratios() if line.against else None,
        'target': ' '.join(str(part) for part in TARGETS[line.name]) if line.name in TARGETS else None, 'met': line.met(),
        'others_cores': line.others, 'notes': line.notes, 'errors': line.errors, 'skipped': line.skipped or None} for line in lines],
        'warnings': warnings(lines)}


# ---- Self-test

def self_test():
    wrong = []

    def expect(what, found, wanted):
        if found != wanted:
            wrong.append(f'{what}: expected {wanted!r}, found {found!r}')

    line = Line('gemma/tg64', 'tokens/s', 'llama.cpp', [60, 70, 90], [50, 50, 50])
    expect('ratios', line.ratios(), [1.2, 1.4, 1.8])
    expect('a median at its target', line.met(), True)
    line.ours[1] = 69
    expect('a median under its target', line.met(), False)
    expect('no figures', Line('gemma/tg64', 'tokens/s', 'llama.cpp').met(), None)
    slow = Line('gemma/16k first token', 's', 'llama.cpp', [40], [80], [0.5])
    expect('less is better', slow.met(), False)
    expect('a share', row_of(slow)[5:9], ['50%', '50% [50%-50%]', '<= 44%', 'NO'])
    load = Line('gemma/load run', 's', '', [0.2, 0.3, 0.9])
    expect('a time of its own', (load.met(), row_of(load)[2:9]), (True, ['0.3 [0.2-0.9]', '-', '-', '-', '-', '<= 0.70', 'yes']))
    report = {'rows': [{'test': 'speed', 'arm': 'pp512', 'failures': [], 'prompt_tokens_per_s': {'median': 5.0}},
                       {'test': 'speed', 'arm': 'tg64', 'failures': [], 'generation_tokens_per_s': {'median': 7.0}},
                       {'test': 'speed', 'arm': 'pp512 @d4096', 'skipped': 'too long'}]}
    expect('bench report', speed_of(report), {'pp512': 5.0, 'tg64': 7.0})
    report['rows'][0]['failures'] = ['HTTP 500']
    try:
        expect('a failed request', speed_of(report), 'an error')
    except RuntimeError as error:
        expect('a failed request', str(error), 'pp512: HTTP 500')
    names = [one.name for one in select(make_lines(), ['*/tg64', 'smollm2/8*'])]
    expect('patterns', names, ['gemma/tg64', 'smollm2/tg64', 'smollm2/8 sequences', *(f'qwen3-{t}/tg64' for t in QWEN_BYTES)])
    expect('lines and targets', sorted(TARGETS), sorted(one.name for one in make_lines()))
    ticks = os.sysconf('SC_CLK_TCK')
    stat = f'cpu  {3 * ticks} {ticks} {2 * ticks} 999 888 0 0 {ticks} 0 0\ncpu0 1 2 3\n'
    expect('busy seconds', busy_seconds(stat), 7.0)
    expect('a busy machine', len(warnings([slow])), 1)
    expect('a quiet machine', warnings([load]), [])
    wide = table([line, slow, load, Line('x', 's', skipped='no file')])
    expect('table', (wide.count('\n'), 'skipped: no file' in wide), (4, True))
    for text in wrong:
        print(f'self-test: {text}')
    print('self-test: ' + ('failed' if wrong else 'all right'))
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('-t', '--threads', type=int, default=2)
    parser.add_argument('--only', action='append', default=[], metavar='PATTERN', help='lines, by name; may be repeated')
    parser.add_argument('--list', action='store_true', help='name the lines and their targets')
    parser.add_argument('--cache', type=pathlib.Path, default=pathlib.Path('/var/tmp/lode-compare'), metavar='FOLDER',
                        help='for models that are made here (1.2 GB) and kept')
    parser.add_argument('--make-model', type=pathlib.Path, default=ROOT.parent / 'shared' / 'tools' / 'make_model.py', metavar='FILE')
    parser.add_argument('--binary', type=pathlib.Path, help='instead of build/lode')
    parser.add_argument('--serve-options', default='', metavar='TEXT', help="more options of Lode's server, such as '-ctk i16 -ctv i16'")
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--self-test', action='store_true')
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    SERVE_OPTIONS.extend(args.serve_options.split())
    if args.binary:
        lc.BINARY = args.binary.resolve()
    lines = select(make_lines(), args.only)
    if args.list:
        for line in lines:
            print(f'{line.name:<28} {" ".join(str(part) for part in TARGETS.get(line.name, ())):<8} {line.against}')
        return 0
    if not lc.BINARY.exists():
        raise SystemExit(f'compare_peers.py: {lc.BINARY} is not built: run scripts/setup.sh')
    interrupted = False
    for number in (signal.SIGINT, signal.SIGTERM):  # Also where a shell started this in the background, deaf to SIGINT.
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix='lode-compare-', dir='/var/tmp') as folder:
        try:
            Comparison(lines, args, pathlib.Path(folder)).run()
        except KeyboardInterrupt:  # The servers have ended; what was measured is still worth a table.
            interrupted = True
            print('interrupted: the rounds so far', file=sys.stderr)
    if args.json:
        print(json.dumps(to_json(lines, args), indent=1))
    else:
        print(table(lines))
        for text in [f'{line.name}: {"; ".join(line.notes)}' for line in lines if line.notes] + warnings(lines):
            print(text)
    return 1 if interrupted or any(line.errors or (not line.ours and not line.skipped) for line in lines) else 0


if __name__ == '__main__':
    sys.exit(main())
