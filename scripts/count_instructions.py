#!/usr/bin/env python3
"""Counts the instructions of fixed work and compares them with the counts in bench/instruction_counts.json: what a clock
cannot show on a shared machine. Runs build/work_bench under valgrind (callgrind), one thread, AVX2: a minute.

    count_instructions.py              check; exit code 1 if a count has risen by more than 2%, 3 if it cannot be compared
    count_instructions.py --renew      count and write the baselines, after a change that is meant to cost or save
    count_instructions.py --all        check, and show every count, not only those that changed
    count_instructions.py --json       the counts and their changes as JSON
    count_instructions.py --self-test  proves that each rule can fail

Counts depend on the compiler, which the baselines name: with another one nothing is compared (exit code 3). A renewed
baseline goes into the commit that changes the counts, so that its reason is on record.
"""
import argparse
import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINES = ROOT / 'bench' / 'instruction_counts.json'
ISA = 'avx2'  # Valgrind knows no AVX-512.
RISE_MAX_PERCENT = 2
FAILED, CANNOT_COMPARE = 1, 3


class CannotCompare(Exception):
    pass


def total_of(text):
    """The instructions of one of callgrind's dumps."""
    found = re.search(r'^totals: (\d+)', text, re.M)
    if not found:
        raise RuntimeError('a dump of callgrind has no line "totals:"')
    return int(found.group(1))


def count(bench, models):
    """{'compiler': ..., 'isa': ..., 'counts': {piece: instructions}, 'skipped': {piece: why}}."""
    valgrind = shutil.which('valgrind')
    if not valgrind:
        raise CannotCompare('valgrind is not installed: scripts/setup.sh --tests installs it')
    if not bench.exists():
        raise RuntimeError(f'{bench} is not built: ninja -C build work_bench')
    with tempfile.TemporaryDirectory() as folder:
        # Counting is on inside lode_measured_work alone, and each return from it writes the counts so far and clears them.
        command = [valgrind, '--tool=callgrind', '--collect-atstart=no', '--toggle-collect=lode_measured_work',
                   '--dump-after=lode_measured_work', f'--callgrind-out-file={folder}/out', str(bench), '--isa', ISA,
                   '--models', str(models)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr.strip() or 'it said nothing').splitlines()
            if any(line.startswith('work_bench: --isa') for line in lines):
                raise CannotCompare('this processor has no AVX2')
            raise RuntimeError(f'work_bench under valgrind ended with code {done.returncode}: ' + ' | '.join(lines[-3:]))
        report = json.loads(done.stdout)
        works = report['works']
        totals = [total_of((pathlib.Path(folder) / f'out.{i}').read_text()) for i in range(1, len(works) + 1)]
        if (pathlib.Path(folder) / f'out.{len(works) + 1}').exists():
            raise RuntimeError(f'callgrind wrote more than {len(works)} dumps: is lode_measured_work called elsewhere?')
    if len(set(works)) != len(works):
        raise RuntimeError('two pieces of work have the same name')
    if min(totals, default=0) == 0:
        raise RuntimeError('a piece of work has no instructions: lode_measured_work is inlined or renamed')
    return {'compiler': report['compiler'], 'isa': ISA, 'counts': dict(zip(works, totals)),
            'skipped': {s['name']: s['reason'] for s in report['skipped']}}


def compare(base, now):
    """Rows (piece, before, after, change, verdict), in the order of the work; before and after None where absent.
    Verdicts: 'risen', 'new' and 'gone' fail; 'fallen' and 'same' pass; 'skipped' was not run here."""
    rows = []
    for name, after in now['counts'].items():
        before = base['counts'].get(name)
        if before is None:
            rows.append((name, None, after, None, 'new'))
            continue
        least, most = before * (100 - RISE_MAX_PERCENT), before * (100 + RISE_MAX_PERCENT)
        verdict = 'risen' if 100 * after > most else 'fallen' if 100 * after < least else 'same'
        rows.append((name, before, after, after / before - 1, verdict))
    for name, before in base['counts'].items():
        if name not in now['counts']:
            # A model that is not there skips all pieces that begin with its name.
            skipped = any(name.startswith(model) for model in now['skipped'])
            rows.append((name, before, None, None, 'skipped' if skipped else 'gone'))
    return rows


def failures(rows):
    return [row for row in rows if row[4] in ('risen', 'new', 'gone')]


def table(rows, show_all):
    shown = [row for row in rows if show_all or row[4] != 'same']
    if not shown:
        return ''
    number = lambda n: '-' if n is None else f'{n:,}'
    width = max(len(row[0]) for row in shown)
    lines = [f'{"work":<{width}} {"baseline":>14} {"now":>14} {"change":>8}']
    for name, before, after, change, verdict in shown:
        changed = '-' if change is None else f'{100 * change:+.1f}%'
        lines.append(f'{name:<{width}} {number(before):>14} {number(after):>14} {changed:>8}  {"" if verdict == "same" else verdict}')
    return '\n'.join(line.rstrip() for line in lines)


def check(now, base_path, show_all, as_json):
    if not base_path.exists():
        print(f'count_instructions.py: {base_path} is absent; scripts/count_instructions.py --renew writes it', file=sys.stderr)
        return FAILED
    base = json.loads(base_path.read_text())
    if base['compiler'] != now['compiler']:
        raise CannotCompare(f'the baselines are for {base["compiler"]}, this build is by {now["compiler"]}')
    rows = compare(base, now)
    bad = failures(rows)
    if as_json:
        keys = ('work', 'baseline', 'now', 'change', 'verdict')
        print(json.dumps({'compiler': now['compiler'], 'isa': ISA, 'passed': not bad,
                          'rows': [dict(zip(keys, row)) for row in rows]}, indent=1))
        return FAILED if bad else 0
    text = table(rows, show_all)
    if text:
        print(text)
    for name, why in now['skipped'].items():
        print(f'skipped: {name}: {why}')
    fallen = sum(row[4] == 'fallen' for row in rows)
    if fallen:
        print(f'{fallen} counts have fallen by more than {RISE_MAX_PERCENT}%: --renew keeps them there')
    if bad:
        print(f'instruction counts: {len(bad)} of {len(rows)} failed: risen by more than {RISE_MAX_PERCENT}%, new or gone. If that '
              'is meant, scripts/count_instructions.py --renew and say why in the commit')
        return FAILED
    print(f'instruction counts: {len(rows)} pieces of work, none risen by more than {RISE_MAX_PERCENT}%')
    return 0


def self_test():
    base = {'compiler': 'c 1', 'counts': {'a': 1000, 'b': 1000, 'c': 1000, 'd': 1000, 'm start': 1000}}
    now = {'compiler': 'c 1', 'counts': {'a': 1020, 'b': 1021, 'c': 979, 'e': 5}, 'skipped': {'m': 'no file'}}
    verdicts = {row[0]: row[4] for row in compare(base, now)}
    wrong = []
    want = {'a': 'same', 'b': 'risen', 'c': 'fallen', 'd': 'gone', 'e': 'new', 'm start': 'skipped'}
    if verdicts != want:
        wrong.append(f'verdicts: expected {want}, found {verdicts}')
    if [row[0] for row in failures(compare(base, now))] != ['b', 'e', 'd']:
        wrong.append('failures: expected b, e and d')
    if total_of('events: Ir\nfn=x\n1 2\ntotals: 42\n') != 42:
        wrong.append('totals')
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'base.json'
        path.write_text(json.dumps(base))
        try:
            check({'compiler': 'c 2', 'counts': {}, 'skipped': {}}, path, False, False)
            wrong.append('another compiler: expected no comparison')
        except CannotCompare:
            pass
        same = {'compiler': 'c 1', 'counts': base['counts'], 'skipped': {}}
        risen = {**same, 'counts': {**base['counts'], 'a': 1100}}
        with contextlib.redirect_stdout(io.StringIO()) as said:
            codes = check(same, path, False, False), check(risen, path, False, False)
        if codes != (0, FAILED) or not re.search(r'a +1,000 +1,100 +\+10.0%  risen', said.getvalue()):
            wrong.append(f'exit codes {codes}, or the table: {said.getvalue()}')
    for line in wrong:
        print(f'self-test: {line}')
    print('self-test: ' + ('failed' if wrong else 'all right'))
    return FAILED if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bench', type=pathlib.Path, default=ROOT / 'build' / 'work_bench', metavar='FILE')
    parser.add_argument('--models', type=pathlib.Path, default=ROOT / 'models', metavar='FOLDER')
    parser.add_argument('--baselines', type=pathlib.Path, default=BASELINES, metavar='FILE')
    parser.add_argument('--renew', action='store_true')
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--self-test', action='store_true')
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    try:
        now = count(args.bench, args.models)
        if args.renew:
            if now['skipped']:
                raise RuntimeError('baselines need every piece of work: ' + '; '.join(now['skipped'].values()))
            kept = {key: now[key] for key in ('compiler', 'isa', 'counts')}
            args.baselines.write_text(json.dumps(kept, indent=1) + '\n')
            print(f'{args.baselines}: {len(kept["counts"])} counts by {kept["compiler"]}')
            return 0
        return check(now, args.baselines, args.all, args.json)
    except CannotCompare as why:
        print(f'NOT COMPARED: {why}. The instruction counts of this build are unknown.', file=sys.stderr)
        return CANNOT_COMPARE
    except RuntimeError as why:
        print(f'count_instructions.py: {why}', file=sys.stderr)
        return FAILED


if __name__ == '__main__':
    sys.exit(main())
