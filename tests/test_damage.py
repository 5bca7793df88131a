"""Whatever happens to the stored blocks, the next answer is right: kill -9, flipped and cut files, full and missing disks."""
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time

import gguf
import pytest

import lode_client as lc

TEXT_CHARS = 4000  # About 870 Gemma tokens: past the window, two extents a group.


def prompt_of(number, chars=TEXT_CHARS):
    return lc.ask(f'Document {number}. ' + lc.long_text(chars), 'What is the secret code of the lighthouse?')


def answer(server, prompt):
    return lc.complete(server.port, prompt, max_tokens=8, logprobs=2)


@pytest.fixture
def filled(gemma, serve, workdir):
    """A store with one document in it, and the right answer to it."""
    server = serve(gemma, kv='filled')
    right = answer(server, prompt_of(0))
    assert server.stop() == 0
    again = serve(gemma, kv='filled')
    restored = answer(again, prompt_of(0))
    assert restored.same_as(right) and restored.cache['by_tier']['disk'] > 0, restored.cache
    assert again.stop() == 0
    return workdir / 'filled', right


def extents(folder):
    """Every file of the store but the small ones beside the extents (lock, index)."""
    return sorted(f for f in pathlib.Path(folder).rglob('*') if f.is_file() and f.stat().st_size >= 8192)


def small_files(folder):
    return sorted(f for f in pathlib.Path(folder).rglob('*') if f.is_file() and f.stat().st_size < 8192)


def test_kill_9(gemma, serve, workdir, request):
    """Seeded kills at random moments of computing and writing; each next start answers as an undisturbed server does."""
    kills, rng = request.config.getoption('--kills'), random.Random(request.config.getoption('--seed'))
    chars = 2600
    clean = serve(gemma, kv='off')
    right = [answer(clean, prompt_of(n, chars)) for n in range(4)]
    clean.stop()
    server, restored = serve(gemma), 0
    for kill in range(kills):
        victim = rng.randrange(4)

        def torment():
            """Requests that write: the document, and one that nobody asked before."""
            try:
                answer(server, prompt_of(victim, chars))
                answer(server, prompt_of(1000 + kill, chars))
            except (OSError, ValueError, lc.HttpError, lc.http.client.HTTPException):
                pass  # The kill cuts it off.

        sender = threading.Thread(target=torment)
        sender.start()
        time.sleep(rng.uniform(0, 3.5))
        server.kill()
        sender.join()
        server = serve(gemma)
        for n in {victim, rng.randrange(4)}:
            reply = answer(server, prompt_of(n, chars))
            assert reply.same_as(right[n]), f'kill {kill}, document {n}: {reply.text!r}, expected {right[n].text!r}; {reply.cache}'
            restored += reply.cache['by_tier']['disk'] > 0
    assert restored > 0 or kills < 5, 'nothing was ever restored: the kills tested nothing'


def damages(size, rng):
    """(name, function on bytes) for every region of an extent file of `size` bytes, and for its length."""
    def flip(at):
        def change(data):
            data[at] ^= 1 << rng.randrange(8)
            return data
        return change

    # The header (magic, version, sizes, keys, checksums) lies in the first pages; then slices padded to 4 KiB.
    spots = [0, 4, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4088, 4095,
             4096, 4097, 6000, 8191, 8192, size // 3, size // 2, size * 2 // 3, size - 4096, size - 1]
    for at in spots:
        if 0 <= at < size:
            yield f'flip at {at}', flip(at)
    for keep in (0, 1, 100, 4095, 4096, size // 2, size - 4096, size - 1):
        if 0 <= keep < size:
            yield f'cut to {keep}', lambda data, keep=keep: data[:keep]
    yield 'longer by 4096', lambda data: data + bytes(4096)
    yield 'all zero', lambda data: bytearray(len(data))
    yield 'second half zero', lambda data: data[:len(data) // 2] + bytes(len(data) - len(data) // 2)
    yield 'another file\'s bytes', lambda data: bytearray(rng.randbytes(len(data)))


def test_every_region_damaged(gemma, serve, workdir, filled, request):
    """Each kind of damage is done to all extents at once; then one start, one request."""
    store, right = filled
    rng = random.Random(request.config.getoption('--seed'))
    size = min(f.stat().st_size for f in extents(store))
    cases = list(damages(size, rng))
    if not request.config.getoption('--full'):
        cases = cases[::3] + cases[-4:]
    noticed = 0
    for name, change in cases:
        kv = 'case'
        shutil.rmtree(workdir / kv, ignore_errors=True)
        shutil.copytree(store, workdir / kv)
        for path in extents(workdir / kv):
            path.write_bytes(bytes(change(bytearray(path.read_bytes()))))
        log = workdir / 'server.log'
        log.unlink(missing_ok=True)
        server = serve(gemma, kv=kv)
        reply = answer(server, prompt_of(0))
        assert reply.same_as(right), f'{name}: {reply.text!r}, expected {right.text!r}; {reply.cache}'
        metrics = lc.request(server.port, 'GET', '/metrics')[1]
        server.stop()
        if reply.cache['tokens_reused'] < reply.usage['prompt_tokens'] - 64:
            noticed += 1
            counted = sum(float(line.split()[-1]) for line in metrics.splitlines()
                          if line.startswith(('lode_disk_corrupt_slices_total', 'lode_disk_files_set_aside_total',
                                              'lode_kv_corrupt_blocks_total')))
            assert counted > 0 or 'set aside' in server.output(), f'{name}: nothing says what was wrong'
    assert noticed >= len(cases) // 3, f'only {noticed} of {len(cases)} kinds of damage were noticed'


def test_damaged_or_missing_index(gemma, serve, workdir, filled):
    """The index log only makes starts fast: without it, or with rubbish in it, the extents are found again."""
    store, right = filled
    for name in ('removed', 'rubbish', 'cut'):
        kv = workdir / name
        shutil.copytree(store, kv)
        for path in small_files(kv):
            if name == 'removed':
                path.unlink()
            elif name == 'rubbish':
                path.write_bytes(b'\xff' * 300)
            else:
                path.write_bytes(path.read_bytes()[:-7])
        server = serve(gemma, kv=name)
        reply = answer(server, prompt_of(0))
        assert reply.same_as(right), name
        assert reply.cache['by_tier']['disk'] > 0, f'{name}: {reply.cache}'
        server.stop()


def test_some_extents_missing(gemma, serve, workdir, filled):
    """F11: any subset of the files may be gone; the prefix is clamped to what every group has."""
    store, right = filled
    rng = random.Random(3)
    for round_ in range(4):
        kv = f'subset{round_}'
        shutil.copytree(store, workdir / kv)
        for path in extents(workdir / kv):
            if rng.random() < 0.4:
                path.unlink()
        server = serve(gemma, kv=kv)
        assert answer(server, prompt_of(0)).same_as(right), f'round {round_}'
        server.stop()


def test_foreign_files_are_left_alone(gemma, serve, workdir, filled):
    """A user's file in the folder is neither read as ours nor removed."""
    store, right = filled
    (store / 'letter.txt').write_text('Dear Ada')
    (store / 'photos').mkdir()
    (store / 'photos' / 'one.jpg').write_bytes(b'\xff\xd8' * 5000)
    server = serve(gemma, kv='filled')
    assert answer(server, prompt_of(0)).same_as(right)
    server.stop()
    assert (store / 'letter.txt').read_text() == 'Dear Ada'
    assert (store / 'photos' / 'one.jpg').exists()


def test_same_name_other_weights(smollm2, serve, workdir):
    """A model file whose weights were changed between the fingerprint's samples: its KV is its own, also after a restart."""
    model = workdir / 'model.gguf'
    shutil.copy(smollm2, model)
    prompt = [10000 + 7 * i % 2000 for i in range(300)]
    server = serve(model, '-c', 512)
    first = answer(server, prompt)
    assert server.stop() == 0
    tensor = next(t for t in gguf.GGUFReader(smollm2).tensors if t.name == 'token_embd.weight')
    row = tensor.n_bytes // int(tensor.shape[1])
    with open(model, 'r+b') as file:  # Every seventh byte of 2,000 rows, far from the tensor's begin, middle and end.
        file.seek(int(tensor.data_offset) + 10000 * row)
        rows = bytearray(file.read(2000 * row))
        rows[::7] = bytes(b ^ 1 for b in rows[::7])
        file.seek(int(tensor.data_offset) + 10000 * row)
        file.write(rows)
    right = answer(serve(model, '-c', 512, kv='off'), prompt)
    assert not right.same_as(first), 'the change changed nothing: this test can not fail'
    for reused in (False, True):
        server = serve(model, '-c', 512)
        found = answer(server, prompt)
        assert found.same_as(right) and (found.cache['tokens_reused'] > 0) == reused, found.cache
        assert server.stop() == 0


@pytest.mark.parametrize('name', ['index.log', 'written-today', 'known-models'])
def test_pipe_in_the_folder(gemma, serve, filled, name):
    """A pipe in place of a file of the store: nobody writes to it, and nobody waits for it."""
    folder, right = filled
    path = next(folder.rglob(name))
    path.unlink()
    os.mkfifo(path)
    assert answer(serve(gemma, kv=folder.name), prompt_of(0)).same_as(right)


def test_folder_vanishes(gemma, serve, workdir, filled):
    """Removed under a running server, between a write and a read."""
    store, right = filled
    server = serve(gemma, kv='filled')
    shutil.rmtree(store)
    assert answer(server, prompt_of(0)).same_as(right)
    answer(server, prompt_of(5))
    time.sleep(2.5)
    assert answer(server, prompt_of(0)).same_as(right)
    assert server.stop() == 0
    server = serve(gemma, kv='filled')
    assert answer(server, prompt_of(0)).same_as(right)


class Tmpfs:
    """A small disk of its own; needs root and leave to mount."""

    def __init__(self, path, options):
        path.mkdir()
        self.path = path
        if os.geteuid() != 0:
            pytest.skip('mounting a small disk needs root')
        done = subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', str(path)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f'a small disk could not be mounted: {done.stderr.strip()}')

    def __enter__(self):
        return self

    def remount(self, options):
        subprocess.run(['mount', '-o', f'remount,{options}', str(self.path)], check=True)

    def __exit__(self, *_):
        subprocess.run(['umount', '-l', str(self.path)], check=False)


@pytest.mark.parametrize('size, said', [
    # Under the free-space floor, which the plan says,, and (no inode for another file) an ENOSPC in the middle of it.
    ('size=3m', 'must stay free'), ('size=4g,nr_inodes=12', 'No space left'),
], ids=['floor', 'enospc'])
def test_full_disk(gemma, serve, workdir, filled, size, said):
    """F06: writes that find no room publish nothing, change no answer, and are told of."""
    _, right = filled
    with Tmpfs(workdir / 'small', size):
        server = serve(gemma, kv='small')
        for _ in range(2):
            assert answer(server, prompt_of(0)).same_as(right)
            answer(server, prompt_of(6))
            time.sleep(2.5)
        server.stop()
        assert said in server.output(), server.output()
        server = serve(gemma, kv='small')
        assert answer(server, prompt_of(0)).same_as(right)
        server.kill()


def test_read_only_disk(gemma, serve, workdir, filled):
    store, right = filled
    with Tmpfs(workdir / 'ro', 'size=200m') as disk:
        shutil.copytree(store, workdir / 'ro' / 'kv')
        disk.remount('ro')
        server = serve(gemma, kv='ro/kv')
        assert answer(server, prompt_of(0)).same_as(right)
        assert answer(server, prompt_of(7)).usage['prompt_tokens'] > 0
        assert server.stop() == 0


def test_folder_that_cannot_be_used(gemma, serve, workdir, filled):
    """The server runs without a disk tier and says why."""
    _, right = filled
    (workdir / 'occupied').write_text('a file where a folder should be')
    server = serve(gemma, kv='occupied')
    assert answer(server, prompt_of(0)).same_as(right)
    assert 'occupied' in server.output()


def test_two_servers_one_folder(gemma, serve, workdir, filled):
    """One writes, the other only reads; both answer right, and the first loses nothing."""
    _, right = filled
    first, second = serve(gemma, kv='filled'), serve(gemma, kv='filled')
    for server in (first, second, first):
        assert answer(server, prompt_of(0)).same_as(right)
    new = answer(second, prompt_of(8))
    assert answer(first, prompt_of(8)).same_as(new)
    assert second.stop() == 0 and first.stop() == 0


def test_quota_holds(gemma, serve, workdir):
    """The store never takes more than it may, whatever is asked."""
    server = serve(gemma, '--kv-disk-max', '20MiB', kv='quota')
    most = 0
    for n in range(6):
        answer(server, prompt_of(n))
        time.sleep(0.3)
        most = max(most, sum(f.stat().st_blocks * 512 for f in (workdir / 'quota').rglob('*') if f.is_file()))
    server.stop()
    most = max(most, sum(f.stat().st_blocks * 512 for f in (workdir / 'quota').rglob('*') if f.is_file()))
    assert 0 < most <= 20 * 2**20, f'{most / 2**20:.1f} MiB of a quota of 20'
