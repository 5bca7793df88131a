"""`lode audit`: bit-identical on every kind of cache, WRONG where a stored block lies, and what it says and returns."""
import json
import pathlib
import subprocess
import time

import pytest

import lode_client as lc

ARMS = ['cold again', 'warm', 'ram', 'ssd', 'batched']


def audit(*args, timeout=300):
    return subprocess.run([str(lc.BINARY), 'audit', *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout)


def tiny(shared_data, name):
    return shared_data / 'arch' / f'{name}.gguf'


def check_identical(report, types, questions):
    assert [(a['kv'], a['name']) for a in report['arms']] == [(t, n) for t in types for n in ARMS]
    for arm in report['arms']:
        what = f"{arm['kv']} {arm['name']}"
        assert 'not_possible' not in arm and 'failure' not in arm and 'remark' not in arm, (what, arm)
        assert len(arm['questions']) == questions, what
        for q in arm['questions']:
            assert q['verdict'] == 'bit-identical' and q['largest_difference'] == 0, (what, q)
            tiers = q['reused_by_tier']
            if arm['name'] in ('warm', 'ram'):
                assert tiers['ram'] > 0, (what, q)
            if arm['name'] == 'ssd':
                assert tiers['disk'] > 0, (what, q)
            if arm['name'] == 'cold again':
                assert q['reused_tokens'] == 0, (what, q)


@pytest.mark.parametrize('name', ['llama', 'gemma3', 'qwen35', 'qwen3moe'])
def test_every_arm_is_bit_identical(shared_data, workdir, name):
    """Full, windowed, hybrid and expert layers, f16 and q8_0; these vocabularies spell nothing: ids are asked."""
    done = audit(tiny(shared_data, name), '--json', '--kv-disk', workdir)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_identical(report, ['f16', 'q8_0'], 10)
    assert len(report['cold']) == 2 and report['verdict'] == 'nothing is wrong'
    assert list(workdir.iterdir()) == [], 'the temporary folder is still there'
    assert 'f16 ssd' in done.stderr, 'no progress was shown'
    batched = [q['reused_by_tier']['in_flight'] for a in report['arms'] if a['name'] == 'batched' for q in a['questions']]
    assert max(batched) > 0, 'no question waited for a peer that computed its prefix'


@pytest.mark.parametrize('name', ['llama', 'gemma3', 'qwen35'])
def test_a_falsified_block_is_wrong(shared_data, workdir, name):
    """The audit can fail: one block altered past its checksum, and only the arm that reads it is wrong."""
    done = audit(tiny(shared_data, name), '--json', '--damage', '--kv-disk', workdir)
    assert done.returncode == 3, (done.returncode, done.stderr)
    report = json.loads(done.stdout)
    assert report['verdict'] == 'WRONG' and report['damage']
    for arm in report['arms']:
        wrong = sum(q['verdict'] == 'WRONG' for q in arm['questions'])
        assert (wrong > 0) == (arm['name'] == 'ssd'), (arm['name'], wrong)
    assert list(workdir.iterdir()) == []


def test_a_users_folder_is_not_touched(shared_data, workdir):
    """--damage works in a folder of its own, also beside a store that is in use."""
    model, folder = tiny(shared_data, 'llama'), workdir / 'kv'
    with lc.Server(model, '--kv-disk', folder, log=workdir / 'log') as server:
        lc.complete(server.port, list(range(10, 110)), max_tokens=1)
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob('*') if p.is_file()}
    assert before
    assert audit(model, '--damage', '--kv-disk', folder, '--types', 'f16').returncode == 3
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob('*') if p.is_file()} == before


def test_own_prefix_and_questions(smollm2, workdir):
    """A real vocabulary: text files, fewer questions, one KV type; and the table lines up."""
    (workdir / 'prefix').write_text('The lighthouse keeper wrote down every ship that passed. ' * 30)
    (workdir / 'questions').write_text('Who wrote?\n\nWhat passed?\n')
    done = audit(smollm2, '--prefix', workdir / 'prefix', '--questions', workdir / 'questions', '-n', 8, '--types', 'q8_0',
                 '-t', 2, '--kv-disk', workdir)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith('KV'))
    rows = lines[head + 2:head + 8]
    assert [row.split('  ')[1].strip() or row[6:16].strip() for row in rows]
    for row in rows[1:]:
        assert '2 of 2' in row, row
    end = lines[head].index('identical') + len('identical')
    assert all(row[:end].rstrip().endswith('of 2') for row in rows[1:]), rows
    assert 'All 10 answers are bit-identical' in done.stdout


def test_what_cannot_be_done(shared_data, workdir):
    model = tiny(shared_data, 'llama')
    (workdir / 'short').write_text('[1, 2, 3]')
    (workdir / 'long').write_text(json.dumps([5 + i % 100 for i in range(500)]))
    (workdir / 'empty').write_text('')
    for args, code, words in [
            ([], 2, 'needs a MODEL or --peer URL'),
            ([model, '--peer', 'http://127.0.0.1:1'], 2, 'not both'),
            (['--peer', 'http://127.0.0.1:1'], 1, 'cannot reach'),
            (['--peer', 'http://127.0.0.1:1', '--damage'], 2, 'nobody else'),
            ([model, '--prefix', workdir / 'short'], 1, 'the prefix has 3 tokens'),
            ([model, '--prefix', workdir / 'long'], 1, 'the context holds'),
            ([model, '--prefix', workdir / 'empty'], 1, 'an empty file'),
            ([model, '--questions', workdir / 'empty'], 1, 'found none'),
            ([model, '--types', 'f15'], 2, 'f15'),
            ([model, '--damage', '--kv-disk', 'off'], 2, '--damage'),
            ([workdir / 'nothing.gguf'], 1, 'nothing.gguf')]:
        done = audit(*args)
        assert done.returncode == code and words in done.stderr and done.stderr.count('\n') == 1, (args, done)


def test_without_a_folder_or_slots_arms_are_not_possible(shared_data):
    done = audit(tiny(shared_data, 'llama'), '--json', '--kv-disk', 'off', '-np', 1, '--types', 'f16')
    assert done.returncode == 0, done.stderr
    arms = {a['name']: a for a in json.loads(done.stdout)['arms']}
    assert '--kv-disk off' in arms['ssd']['not_possible'] and arms['ssd']['questions'] == []
    assert 'one slot' in arms['batched']['not_possible']
    assert arms['ram']['identical'] == 10


def test_a_server_over_http(smollm2, serve):
    """--peer, on our own server: bit-identical; only its owner can restart it."""
    server = serve(smollm2, '-c', 1024)
    done = audit('--peer', f'http://127.0.0.1:{server.port}', '--json', '-n', 4)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [a['name'] for a in report['arms']] == ARMS
    for arm in report['arms']:
        if arm['name'] == 'ssd':
            assert 'restart' in arm['not_possible']
        else:
            assert arm['identical'] == 10 and 'remark' not in arm, arm
    assert all(q['reused_tokens'] > 200 for a in report['arms'] if a['name'] == 'warm' for q in a['questions'])


def test_interrupt_removes_the_folder(smollm2, workdir):
    process = subprocess.Popen([str(lc.BINARY), 'audit', str(smollm2), '--kv-disk', str(workdir)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if any(pathlib.Path(workdir).iterdir()):
                break
            time.sleep(0.05)
        time.sleep(1)
        process.terminate()
        assert process.wait(30) == 130
        assert list(workdir.iterdir()) == []
    finally:
        process.kill()
        process.wait()
