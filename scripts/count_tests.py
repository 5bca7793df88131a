#!/usr/bin/env python3
"""Counts what the test runners wrote and prints the closing table. Called by test.sh.

    count_tests.py STAGE EXIT-CODE LOG REPORTS      lines for results.tsv from the JUnit files in REPORTS
    count_tests.py --summary RESULTS.tsv SECONDS    the table, and 'N passed, N failed, N skipped' as the last line
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ET


def skip_reason(case):
    node = case.find('skipped')
    text = '' if node is None else (node.get('message') or node.text or '')
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # GoogleTest puts the place on a line of its own before the message.
    lines = [line for line in lines if not re.match(r'\S+\.(cc|h|py):\d+$', line)] or lines
    return (lines[0] if lines else 'no reason given')[:120]


def count(stage, code, log, folder):
    """Each file is one test executable; a failing exit code without a failed case is a failure too (a crash, a timeout,
    a leak found at the end)."""
    passed, failed, skipped = 0, [], collections.Counter()
    for path in sorted(pathlib.Path(folder).glob('*.xml')):
        for case in ET.parse(path).iter('testcase'):
            name = f'{case.get("classname", "")}.{case.get("name", "")}'
            if case.find('failure') is not None or case.find('error') is not None:
                failed.append(name)
            elif case.find('skipped') is not None or case.get('result') == 'skipped':
                skipped[skip_reason(case)] += 1
            elif case.get('status') != 'notrun':
                passed += 1
    rows = []
    if passed:
        rows.append(('passed', passed, f'{passed} tests'))
    rows += [('failed', 1, name) for name in failed]
    if code and not failed:
        rows.append(('failed', 1, f'exit code {code} without a failed case (a crash, a timeout or a sanitizer); see {log}'))
    if not (passed or failed or skipped or code):
        rows.append(('failed', 1, f'no test ran; see {log}'))
    rows += [('skipped', n, reason) for reason, n in sorted(skipped.items())]
    for status, n, what in rows:
        print(f'{status}\t{stage}\t{n}\t{what}')


def summary(path, seconds):
    rows = [line.split('\t') for line in pathlib.Path(path).read_text().splitlines()]
    total = collections.Counter()
    for status, stage, n, what in rows:
        total[status] += int(n)
        print(f'{status:<8} {stage:<9} {n:>5}  {what}')
    print(f'\nall in {int(seconds) // 60} min {int(seconds) % 60} s')
    print(f'{total["passed"]} passed, {total["failed"]} failed, {total["skipped"]} skipped')
    return 1 if total['failed'] or not total['passed'] else 0


if __name__ == '__main__':
    if sys.argv[1] == '--summary':
        sys.exit(summary(sys.argv[2], sys.argv[3]))
    count(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
