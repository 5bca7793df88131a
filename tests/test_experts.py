"""A mixture of experts with less memory than its experts take: the same answers, bounded memory, and a model file that
goes bad fails the requests that needed it and not the server."""
import os
import re
import shutil

import pytest

import lode_client as lc

PROMPT = 'The configuration file is read when the program starts. Each line holds a name and a value, and '


@pytest.fixture
def moe(shared_data):
    return shared_data / 'models' / 'tiny-moe-q4_k_s.gguf'


def metric(server, name):
    return lc.metric(server, 'lode_' + name)


def answer(server, prompt=PROMPT):
    return lc.complete(server.port, prompt, max_tokens=48, logprobs=2)


def test_same_answers_at_every_size(moe, serve):
    whole = serve(moe, '-c', 512, kv='off')
    short, long = answer(whole), answer(whole, PROMPT * 12)
    assert whole.stop() == 0
    for size in ('100%', '50%', '25%', '7%'):
        server = serve(moe, '-c', 512, '--expert-ram', size, kv='off')
        assert answer(server).same_as(short) and answer(server, PROMPT * 12).same_as(long), size
        if size != '100%':  # All of them need no cache.
            slots = metric(server, 'expert_slots')
            assert 0 < metric(server, 'expert_resident') <= slots < 512
            hits, misses = metric(server, 'expert_hits_total'), metric(server, 'expert_misses_total')
            assert hits > 0 and misses > 0 and metric(server, 'expert_read_bytes_total') > misses * 4096
            assert metric(server, 'expert_prefetches_total{outcome="used"}') > 0
            assert metric(server, 'expert_read_errors_total') == 0
        assert server.stop() == 0


def test_memory_is_bounded(moe, serve):
    """The slots bound what experts take: beside them nothing of the file's experts is resident, mapped or not."""
    sizes = {}
    for size in ('75%', '25%'):
        server = serve(moe, '-c', 512, '--expert-ram', size, kv='off')
        for i in range(3):
            answer(server, f'{i} {PROMPT}' * 8)
        sizes[size] = server.memory_kb() * 1024
        slots = metric(server, 'expert_slots_bytes')
        assert server.stop() == 0
        sizes[size + ' slots'] = slots
    saved = sizes['75%'] - sizes['25%']
    promised = sizes['75% slots'] - sizes['25% slots']
    assert saved == pytest.approx(promised, rel=0.1), sizes


def test_less_than_a_token_is_refused(moe, serve, workdir):
    with pytest.raises(Exception):
        serve(moe, '--expert-ram', '1MiB', kv='off')
    said = (workdir / 'server.log').read_text()
    assert re.search(r'--expert-ram 1\.00 MiB holds \d+ experts of .*, fewer than the 32 that one token uses', said), said
    assert '--expert-ram 5MiB is the least' in said, said


def test_a_file_that_shortens_fails_requests_and_not_the_server(moe, serve, workdir):
    copy = workdir / 'model.gguf'
    shutil.copy(moe, copy)
    os.chmod(copy, 0o600)
    server = serve(copy, '-c', 512, '--expert-ram', '10%', kv='off')
    right = answer(server)
    size = copy.stat().st_size
    os.truncate(copy, 30_000_000)
    with pytest.raises(lc.HttpError) as failed:
        for i in range(20):
            answer(server, f'{i} {PROMPT}')
    assert 'could not be read' in failed.value.body and 'expert' in failed.value.body, failed.value.body
    assert failed.value.status >= 500
    assert lc.request(server.port, 'GET', '/health')[0] == 200
    assert metric(server, 'expert_read_errors_total') > 0
    # Whole again, it works again.
    with open(moe, 'rb') as source, open(copy, 'r+b') as target:
        shutil.copyfileobj(source, target)
    assert copy.stat().st_size == size
    assert answer(server).same_as(right)
    # Unlinked, it is still open.
    copy.unlink()
    assert answer(server, PROMPT * 3).text
    assert server.stop() == 0


def test_G06_memory_decides_without_being_asked(moe, serve):
    """G06: a model that does not fit gets an expert cache instead of a mapping that is read again for every token."""
    whole = serve(moe, '-c', 512, kv='off')
    right = answer(whole)
    assert whole.stop() == 0
    server = serve(moe, '-c', 512, '-np', 1, '--memory', '112MiB', kv='off')
    assert answer(server).same_as(right)
    slots = metric(server, 'expert_slots')
    assert 32 <= slots < 512
    assert server.memory_kb() * 1024 < 112 * 1024 * 1024 * 1.05
    assert server.stop() == 0
