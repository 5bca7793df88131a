"""llama-server's slots: save, restore, erase on every family, and what is refused."""
import json
import os
import random
import shutil

import pytest

import lode_client as lc
from test_cache_api import call, explain

ARCHES = ['llama', 'gemma3', 'qwen35', 'qwen3']


def arch_model(shared_data, name):
    return shared_data / 'arch' / f'{name}.gguf', json.loads((shared_data / 'arch' / f'{name}.tokens.json').read_text())


def complete(server, prompt, **options):
    return call(server, 'POST', '/v1/completions',
                {'prompt': prompt, 'max_tokens': 8, 'temperature': 0, 'ignore_eos': True, 'logprobs': 2, **options})


def answer(reply):
    choice = reply['choices'][0]
    return choice['text'], choice['logprobs']['token_logprobs']


def act(server, action, slot=0, wanted=200, **body):
    return call(server, 'POST', f'/slots/{slot}?action={action}', body, wanted=wanted)


@pytest.mark.parametrize('name', ARCHES)
def test_save_restart_restore_answers_alike(shared_data, serve, workdir, name):
    model, ids = arch_model(shared_data, name)
    prompt = (ids * 20)[:300]
    args = (model, '-np', 2, '--slot-save-path', workdir / 'slots')
    server = serve(*args)
    cold = complete(server, prompt, id_slot=1, cache_salt='cold')
    complete(server, prompt, id_slot=0)
    saved = act(server, 'save', filename='one.bin')
    assert saved['id_slot'] == 0 and saved['filename'] == 'one.bin' and saved['timings']['save_ms'] >= 0
    assert saved['n_saved'] == 307 and saved['n_stored'] >= 288 and saved['n_written'] > 300 * 4
    assert saved['n_written'] == os.path.getsize(workdir / 'slots' / 'one.bin')
    assert server.stop() == 0
    server = serve(*args)
    assert [s['n_prompt_tokens'] for s in call(server, 'GET', '/slots')] == [0, 0]
    restored = act(server, 'restore', slot=1, filename='one.bin')
    assert restored['id_slot'] == 1 and restored['n_read'] == saved['n_written'] and restored['timings']['restore_ms'] >= 0
    assert restored['n_restored'] == saved['n_saved']
    assert [s['n_prompt_tokens'] for s in call(server, 'GET', '/slots')] == [0, 307]
    warm = complete(server, prompt)
    assert warm['timings']['cache_n'] >= 256
    assert answer(warm) == answer(cold), 'bit for bit'
    saved_again = act(server, 'save', slot=1, filename='two.bin')
    assert saved_again['n_saved'] == 307


def test_the_slot_asked_for_is_the_slot_used(smollm2, serve, workdir):
    server = serve(smollm2, '-c', 2048, '-np', 3, '--slot-save-path', workdir / 'slots')
    texts = [f'{i} ' + lc.long_text(400 + 300 * i) for i in range(3)]
    for i in (2, 0, 1):
        complete(server, texts[i], id_slot=i, max_tokens=1)
    shown = call(server, 'GET', '/slots?prompt=true')
    for i, slot in enumerate(shown):
        assert slot['id'] == i and slot['state'] == 'idle' and not slot['is_processing'] and slot['n_ctx'] == 2048
        assert slot['prompt'].startswith(texts[i])
    assert 'prompt' not in call(server, 'GET', '/slots')[0]
    # A continued prompt finds its slot by itself.
    complete(server, texts[1] + ' and more', max_tokens=1)
    assert call(server, 'GET', '/slots?prompt=true')[1]['prompt'].startswith(texts[1] + ' and more')


def test_empty_slots_and_missing_files(smollm2, serve, workdir):
    """F01: each has a clear answer, and a failed restore leaves a warm slot as it was."""
    server = serve(smollm2, '-c', 2048, '-np', 2, '--slot-save-path', workdir / 'slots')
    assert act(server, 'save', filename='empty.bin')['n_saved'] == 0
    assert act(server, 'restore', filename='empty.bin')['n_restored'] == 0
    assert act(server, 'erase')['n_erased'] == 0
    prompt = lc.long_text(2000)
    first = complete(server, prompt, id_slot=0)
    before = call(server, 'GET', '/slots?prompt=1')
    error = act(server, 'restore', filename='nope.bin', wanted=404)['error']['message']
    assert 'nope.bin' in error and 'nothing was changed' in error
    assert call(server, 'GET', '/slots?prompt=1') == before
    again = complete(server, prompt, id_slot=0)
    assert again['timings']['cache_n'] > 300 and answer(again) == answer(first)


def test_names_that_leave_the_folder_are_refused(smollm2, serve, workdir):
    server = serve(smollm2, '-c', 2048, '--slot-save-path', workdir / 'slots')
    (workdir / 'outside').write_text('x')
    for name in ['', '.', '..', '../outside', 'a/b', '/etc/passwd', 'a\\b', '.hidden', 'a..b', 'x' * 300, 'a\nb', 'a\0b', 'x.tmp',
                 5, None]:
        for action in ('save', 'restore'):
            act(server, action, filename=name, wanted=400)
    for slot, wanted in [(-1, 400), (99, 400), ('x', 400), ('0x', 400), ('99999999999999999999', 400)]:
        act(server, 'save', slot=slot, filename='a', wanted=wanted)
    act(server, 'destroy', filename='a', wanted=400)
    assert (workdir / 'outside').read_text() == 'x'
    assert not (workdir / 'slots').exists() or os.listdir(workdir / 'slots') == []


def test_without_a_folder_or_a_disk_it_says_so(smollm2, serve, workdir):
    server = serve(smollm2, '-c', 2048)
    assert '--slot-save-path' in act(server, 'save', filename='a', wanted=501)['error']['message']
    assert act(server, 'erase')['n_erased'] == 0
    server.stop()
    server = serve(smollm2, '-c', 2048, '--slot-save-path', workdir / 'slots', kv='off')
    complete(server, lc.long_text(500))
    assert '--kv-disk' in act(server, 'save', filename='a', wanted=400)['error']['message']


def test_a_damaged_file_is_refused_and_poisons_nothing(shared_data, serve, workdir):
    """F02: flips and cuts anywhere; the next greedy answer is that of a fresh server."""
    model, ids = arch_model(shared_data, 'llama')
    prompt = (ids * 20)[:300]
    server = serve(model, '--slot-save-path', workdir / 'slots')
    wanted = answer(complete(server, prompt))
    act(server, 'save', filename='a')
    good = (workdir / 'slots' / 'a').read_bytes()
    rng = random.Random(1)
    damaged = [good[:n] for n in (0, 7, 100, len(good) // 2, len(good) - 1)] + [good + b'x']
    for at in [rng.randrange(len(good)) for _ in range(40)]:
        damaged.append(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1:])
    before = call(server, 'GET', '/slots?prompt=1')
    for data in damaged:
        (workdir / 'slots' / 'a').write_bytes(data)
        assert 'nothing was changed' in act(server, 'restore', filename='a', wanted=400)['error']['message']
    assert call(server, 'GET', '/slots?prompt=1') == before
    assert answer(complete(server, prompt)) == wanted
    (workdir / 'slots' / 'a').write_bytes(good)
    assert act(server, 'restore', filename='a')['n_restored'] == 307


def test_another_model_type_or_version_is_refused(shared_data, serve, workdir):
    """F04: nothing is loaded, the reason is named, the slot stays as it was."""
    model, ids = arch_model(shared_data, 'llama')
    prompt = (ids * 20)[:300]
    slots = ('--slot-save-path', workdir / 'slots')
    server = serve(model, *slots)
    complete(server, prompt)
    act(server, 'save', filename='a')
    server.stop()
    # Other weights under the same path: one byte at the file's end, in the last tensor.
    changed = workdir / 'llama.gguf'
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    cases = [((arch_model(shared_data, 'qwen3')[0],), 'another model'), ((changed,), 'another model'),
             ((model, '-ctk', 'q8_0'), 'K cache type'), ((model, '-ctv', 'f32'), 'V cache type')]
    for args, reason in cases:
        server = serve(*args, *slots)
        wanted = answer(complete(server, prompt))
        before = call(server, 'GET', '/slots?prompt=1')
        error = act(server, 'restore', filename='a', wanted=400)['error']['message']
        assert reason in error, error
        assert call(server, 'GET', '/slots?prompt=1') == before
        assert answer(complete(server, prompt)) == wanted
        server.stop()
    data = bytearray((workdir / 'slots' / 'a').read_bytes())
    data[8] += 1
    (workdir / 'slots' / 'a').write_bytes(data)
    server = serve(model, *slots)
    assert 'format' in act(server, 'restore', filename='a', wanted=400)['error']['message']
    server.stop()


def test_other_contexts_restore_what_fits(shared_data, serve, workdir):
    model, ids = arch_model(shared_data, 'llama')
    server = serve(model, '-c', 512, '--slot-save-path', workdir / 'slots')
    complete(server, (ids * 20)[:300])
    act(server, 'save', filename='a')
    server.stop()
    server = serve(model, '-c', 256, '--slot-save-path', workdir / 'slots')
    assert '307' in act(server, 'restore', filename='a', wanted=400)['error']['message']
    server.stop()
    server = serve(model, '-c', 1024, '--slot-save-path', workdir / 'slots')
    assert act(server, 'restore', filename='a')['n_restored'] == 307


def test_a_wiped_folder_is_named_as_the_reason(shared_data, serve, workdir):
    model, ids = arch_model(shared_data, 'gemma3')
    server = serve(model, '--slot-save-path', workdir / 'slots')
    complete(server, (ids * 20)[:300])
    act(server, 'save', filename='a')
    server.stop()
    shutil.rmtree(workdir / 'kv')
    server = serve(model, '--slot-save-path', workdir / 'slots')
    error = act(server, 'restore', filename='a', wanted=404)['error']['message']
    assert 'no longer stored' in error and 'nothing was changed' in error


def test_erase_forgets_but_not_what_was_saved(shared_data, serve, workdir):
    model, ids = arch_model(shared_data, 'qwen35')
    a, b = (ids * 20)[:300], ([5, 9] + ids * 20)[:300]
    server = serve(model, '-np', 2, '--slot-save-path', workdir / 'slots')
    complete(server, a, id_slot=0)
    complete(server, b, id_slot=1)
    assert act(server, 'save', filename='a')['n_saved'] == 307
    assert act(server, 'erase', slot=0)['n_erased'] == 307
    assert act(server, 'erase', slot=1)['n_erased'] == 307
    assert explain(server, {'prompt': b})['tokens_reused'] == 0
    assert explain(server, {'prompt': a})['tokens_reused'] > 0, 'the saved one is pinned'
    assert act(server, 'restore', slot=1, filename='a')['n_restored'] == 307
    # Saved under the same name again, the first chain is let go.
    complete(server, b, id_slot=0)
    act(server, 'save', slot=0, filename='a')
    pins = call(server, 'GET', '/v1/cache')['pins']
    assert [p['name'] for p in pins] == ['slot:a']
    call(server, 'POST', '/v1/cache/unpin', {'name': 'slot:a'})
    call(server, 'POST', '/v1/cache/purge', {'all': True})
    assert act(server, 'restore', filename='a', wanted=404)
