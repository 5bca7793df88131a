"""--kv-key-file: what the server stores on disk is encrypted, restores as before, and a wrong key is a miss."""
import os
import subprocess

import lode_client as lc

PROMPT = lc.ask('A letter about ' + lc.long_text(3000), 'What is the secret code of the lighthouse?')


def key_file(path, fill, mode=0o600):
    path.write_bytes(bytes([fill]) * 32)
    os.chmod(path, mode)
    return path


def answer(server, prompt=PROMPT):
    return lc.complete(server.port, prompt, max_tokens=8, logprobs=2)


def ids_of(server, prompt):
    status, reply = lc.request(server.port, 'POST', '/tokenize', {'content': prompt})[:2]
    assert status == 200
    return reply['tokens']


def test_encrypted_store(gemma, serve, workdir):
    """Restored bit for bit; no file holds the prompt's tokens; another key, or none, is a miss that is said and harms nothing."""
    right, wrong = key_file(workdir / 'right.key', 1), key_file(workdir / 'wrong.key', 2)
    server = serve(gemma, '--kv-key-file', right)
    cold = answer(server)
    tokens = ids_of(server, PROMPT)
    assert server.stop() == 0

    needle = b''.join(t.to_bytes(4, 'little') for t in tokens[40:48])
    files = [f for f in (workdir / 'kv').rglob('*') if f.is_file()]
    assert any(f.suffix == '.kvx' for f in files) and not any(needle in f.read_bytes() for f in files)

    server = serve(gemma, '--kv-key-file', right)
    restored = answer(server)
    assert restored.same_as(cold) and restored.cache['by_tier']['disk'] > 0, restored.cache
    assert server.stop() == 0

    for args, said in (((), 'there is no --kv-key-file'), (('--kv-key-file', wrong), 'encrypted with another key')):
        before = (workdir / 'server.log').read_text().count(said)
        server = serve(gemma, *args)
        missed = answer(server)
        assert missed.same_as(cold) and missed.cache['tokens_reused'] == 0, missed.cache
        assert server.stop() == 0
        assert (workdir / 'server.log').read_text().count(said) == before + 1

    server = serve(gemma, '--kv-key-file', right)
    again = answer(server)
    assert again.same_as(cold) and again.cache['by_tier']['disk'] > 0, again.cache
    assert server.stop() == 0
    listing = subprocess.run([lc.BINARY, 'cache', 'ls', '--kv-disk', workdir / 'kv'], capture_output=True, text=True)
    assert listing.returncode == 0 and '(encrypted)' in listing.stdout, listing.stdout + listing.stderr
    verified = subprocess.run([lc.BINARY, 'cache', 'verify', '--kv-disk', workdir / 'kv'], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_key_files_that_are_refused(smollm2, workdir):
    """One clear line, and no server: others may read it, it is no key, it is not there."""
    for path, said in ((key_file(workdir / 'open.key', 1, 0o644), 'expected 0600'),
                       (workdir / 'absent.key', 'absent.key'), (workdir / 'short.key', 'expected 32 random bytes')):
        if path.name == 'short.key':
            path.write_text('secret')
            os.chmod(path, 0o600)
        run = subprocess.run([lc.BINARY, 'serve', smollm2, '--port', str(lc.free_port()), '--kv-disk', workdir / 'kv',
                              '--kv-key-file', path], capture_output=True, text=True, timeout=60)
        assert run.returncode != 0 and said in run.stderr, run.stderr


def test_the_daily_write_cap(smollm2, serve, workdir):
    """--kv-disk-writes: a day writes no more than that, over restarts too."""
    cap = 6 * 2**20
    for n in range(2):
        server = serve(smollm2, '--kv-disk-writes', '6MiB')
        for document in range(3):
            answer(server, f'{n} {document} ' + lc.long_text(2500))
        assert server.stop() == 0
    written = sum(f.stat().st_blocks * 512 for f in (workdir / 'kv').rglob('*.kvx'))
    assert 0 < written <= cap, f'{written / 2**20:.1f} MiB of 6'
    assert 'written today' in (workdir / 'server.log').read_text() or 'a day' in (workdir / 'server.log').read_text()
