"""`lode cache`: what is stored is listed, checked, removed, computed ahead and moved; damaged or foreign bytes never get in."""
import json
import re
import shutil
import subprocess

import pytest

import lode_client as lc

WORDS = 'The lighthouse keeper wrote down every ship that passed the stone bridge. '


def cache(*args, timeout=120):
    return subprocess.run([str(lc.BINARY), 'cache', *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout)


def good(*args):
    done = cache(*args)
    assert done.returncode == 0, (args, done)
    return done.stdout


def listed(folder, *args):
    return json.loads(good('ls', '--kv-disk', folder, '--json', *args))


def extents(folder):
    return sorted(folder.rglob('*.kvx'))


@pytest.fixture(scope='module')
def filled_once(tmp_path_factory, smollm2):
    """Two prompts of SmolLM2, computed ahead."""
    base = tmp_path_factory.mktemp('cache')
    said = []
    for n, text in enumerate([WORDS * 45, 'Another text altogether. ' + WORDS * 5]):
        (base / f'p{n}').write_text(text)
        said.append(good('warm', smollm2, '--prefix', base / f'p{n}', '--kv-disk', base / 'kv', '-c', 1024, '-t', 2))
    return base, said


@pytest.fixture
def filled(filled_once, workdir):
    shutil.copytree(filled_once[0] / 'kv', workdir / 'kv')
    return workdir / 'kv'


def test_warm_says_what_it_did_and_a_server_uses_it(filled_once, filled, smollm2, serve):
    base, said = filled_once
    assert 'computed in' in said[0] and 'MiB' in said[0], said
    server = serve(smollm2, '-c', 1024, kv='kv')
    reply = lc.complete(server.port, (base / 'p0').read_text(), max_tokens=4)
    assert reply.cache['by_tier']['disk'] > 150, reply.cache
    server.stop()
    again = good('warm', smollm2, '--prompt-file', base / 'p0', '--kv-disk', filled, '-c', 1024)
    assert int(re.search(r'(\d+) were stored already', again)[1]) > 150, again


def test_ls(filled, smollm2, workdir):
    found = listed(filled)
    assert len(found['prompts']) == 2 and found['damaged'] == 0
    assert all(p['begin'].startswith('ids ') for p in found['prompts'])
    assert found['bytes'] == sum(f.stat().st_blocks * 512 for f in extents(filled))
    words = listed(filled, '-m', smollm2)['prompts']
    assert sorted(p['begin'][:12] for p in words) == ['Another text', 'The lighthou']
    assert [p['tokens'] for p in listed(filled, '--sort', 'tokens')['prompts']] == sorted((p['tokens'] for p in words), reverse=True)
    assert len(listed(filled, '-m', smollm2, '--text', 'Another')['prompts']) == 1
    assert len(listed(filled, '--key', words[0]['key'][:10])['prompts']) == 1
    table = good('ls', '--kv-disk', filled, '-m', smollm2)
    assert 'The lighthouse keeper' in table and 'last use' in table
    shutil.rmtree(workdir / 'empty', ignore_errors=True)
    (workdir / 'empty').mkdir()
    assert listed(workdir / 'empty')['prompts'] == []
    assert cache('ls', '--kv-disk', workdir / 'none').returncode == 1


def test_verify_finds_every_flip_and_removes_on_demand(filled):
    assert 'are sound' in good('verify', '--kv-disk', filled)
    victim = extents(filled)[0]
    right = victim.read_bytes()
    for at in (0, 20, 200, 5000, len(right) // 2, len(right) - 1):
        data = bytearray(right)
        data[at] ^= 4
        victim.write_bytes(bytes(data))
        done = cache('verify', '--kv-disk', filled)
        assert done.returncode == 1 and victim.name in done.stdout, (at, done)
    victim.write_bytes(right[:-4096])
    assert cache('verify', '--kv-disk', filled).returncode == 1
    good('verify', '--remove', '--kv-disk', filled)
    assert not victim.exists()
    good('verify', '--kv-disk', filled)


def test_gc_removes_rubbish_orphans_and_down_to_a_size(filled):
    model = extents(filled)[0].parent
    (model / 'x.tmp').write_bytes(b'half')
    (filled / 'letter.txt').write_text('mine')
    before = len(extents(filled))
    good('gc', '--kv-disk', filled)
    assert not (model / 'x.tmp').exists() and (filled / 'letter.txt').exists() and len(extents(filled)) == before
    first = next(f for f in extents(filled) if f.name.endswith('-16.kvx'))  # The rest of the long prompt follows it.
    first.unlink()
    good('gc', '--kv-disk', filled)
    prompts = listed(filled)['prompts']
    assert len(prompts) == 1 and all(not p['begin'].startswith('(') for p in prompts)
    assert cache('gc', '--kv-disk', filled, '--size', 'many').returncode == 2
    good('gc', '--kv-disk', filled, '--size', '0')
    assert extents(filled) == []


def test_rm(filled, smollm2):
    prompts = listed(filled, '-m', smollm2)['prompts']
    other = next(p for p in prompts if p['begin'].startswith('Another'))
    assert cache('rm', '--kv-disk', filled).returncode == 2
    asked = cache('rm', '--kv-disk', filled, '--key', other['key'][:16])
    assert asked.returncode == 1 and '--yes' in asked.stderr and len(listed(filled)['prompts']) == 2
    good('rm', '--kv-disk', filled, '--key', other['key'][:16], '--yes')
    assert len([p for p in listed(filled)['prompts'] if p['tokens'] >= other['tokens']]) >= 1
    assert other['key'] not in [p['key'] for p in listed(filled)['prompts']]
    assert 'nothing stored' in good('rm', '--kv-disk', filled, '--older', '30d', '--yes')
    assert cache('rm', '--kv-disk', filled, '--older', 'yesterday').returncode == 2
    good('rm', '--kv-disk', filled, '-m', smollm2, '-y')
    assert extents(filled) == []


def test_export_and_import(filled_once, filled, smollm2, gemma, workdir, serve):
    file, other = workdir / 'moved', workdir / 'other'
    good('export', filled, file)
    before = {f.relative_to(filled): f.read_bytes() for f in extents(filled)}
    good('import', file, '--kv-disk', other, '-m', smollm2)
    assert {f.relative_to(other): f.read_bytes() for f in extents(other)} == before
    assert '0 extents' in good('import', file, '--kv-disk', other)
    server = serve(smollm2, '-c', 1024, kv='other')
    reply = lc.complete(server.port, (filled_once[0] / 'p0').read_text(), max_tokens=4)
    assert reply.cache['by_tier']['disk'] > 150, reply.cache
    server.stop()
    assert cache('export', filled, file).returncode == 1, 'an existing file was overwritten'
    key = listed(filled)['prompts'][0]['key']
    good('export', filled, workdir / 'one', '--key', key)
    assert (workdir / 'one').stat().st_size < file.stat().st_size
    good('import', workdir / 'one', '--kv-disk', workdir / 'third')
    assert [p['key'] for p in listed(workdir / 'third')['prompts']] == [key]

    whole = file.read_bytes()
    for name, data, words in [('cut', whole[:-1], 'cut off'), ('cut2', whole[:len(whole) // 2], 'cut off'),
                              ('flip', whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:], 'differs'),
                              ('head', whole[:20] + b'\xff' + whole[21:], 'damaged'), ('text', b'hello', 'no export')]:
        (workdir / name).write_bytes(data)
        done = cache('import', workdir / name, '--kv-disk', workdir / 'fourth')
        assert done.returncode == 1 and words in done.stderr and 'nothing was imported' in done.stderr, (name, done)
        assert [f for f in (workdir / 'fourth').rglob('*') if f.suffix in ('.kvx', '.tmp')] == []
    foreign = cache('import', file, '--kv-disk', workdir / 'fourth', '-m', gemma)
    assert foreign.returncode == 1 and 'another model' in foreign.stderr
    assert [f for f in (workdir / 'fourth').rglob('*') if f.suffix in ('.kvx', '.tmp')] == []


def test_beside_a_server(filled, smollm2, serve, workdir):
    """Reading goes on; what would change files names the lock."""
    serve(smollm2, '-c', 1024, kv='kv')
    assert len(listed(filled)['prompts']) == 2
    good('verify', '--kv-disk', filled)
    good('export', filled, workdir / 'out')
    (workdir / 'p').write_text(WORDS * 4)
    for args in (['gc'], ['rm', '--all', '--yes'], ['verify', '--remove'], ['import', workdir / 'out'],
                 ['warm', smollm2, '--prefix', workdir / 'p']):
        done = cache(*args, '--kv-disk', filled)
        assert done.returncode == 1 and str(filled / 'lock') in done.stderr, (args, done)
    assert len(listed(filled)['prompts']) == 2
