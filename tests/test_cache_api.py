"""/v1/cache: what is stored, why a prompt misses, pins and purges; and that no user sees another's."""
import json
import http.client
import os
import stat

import pytest

import lode_client as lc

CTX = ('-c', 4096)


def call(server, method, path, body=None, key=None, wanted=200):
    """A request with an API key; the reply's JSON, whose status must be `wanted`."""
    link = http.client.HTTPConnection('127.0.0.1', server.port, timeout=60)
    try:
        headers = {'Content-Type': 'application/json'}
        if key:
            headers['Authorization'] = f'Bearer {key}'
        link.request(method, path, json.dumps(body) if body is not None else None, headers)
        reply = link.getresponse()
        text = reply.read().decode()
        assert reply.status == wanted, f'{method} {path}: {reply.status} {text}'
        return json.loads(text)
    finally:
        link.close()


def explain(server, body, key=None):
    return call(server, 'POST', '/v1/cache/explain', body, key)


def listed(server, query='', key=None):
    return call(server, 'GET', '/v1/cache' + query, key=key)


@pytest.fixture
def server(smollm2, serve):
    return serve(smollm2, *CTX, '-np', 2)


def test_explain_says_what_a_request_then_gets(server):
    text = lc.long_text(3000)
    assert explain(server, {'prompt': text})['stop'] == 'nothing_stored'
    assert listed(server)['total'] == 0, 'asking stores nothing'
    lc.complete(server.port, text, max_tokens=1)
    changed = text[:1500] + ' banana ' + text[1500:]
    for prompt in [text, text + ' And more?', changed, text[:40]]:
        said = explain(server, {'prompt': prompt})
        assert said == explain(server, {'prompt': prompt}), 'asking changes nothing'
        got = lc.complete(server.port, prompt, max_tokens=1)
        assert said['tokens_reused'] == got.cache['tokens_reused']
        assert said['by_tier'] == got.cache['by_tier']
        assert got.cache['reason'].startswith(said['reason'])
        assert said['prompt_tokens'] == got.usage['prompt_tokens']


def test_raw_tokens_are_the_same_question(server):
    text = lc.long_text(2000)
    lc.complete(server.port, text, max_tokens=1)
    ids = call(server, 'POST', '/tokenize', {'content': text, 'add_special': True})['tokens']
    a, b = explain(server, {'tokens': ids}), explain(server, {'prompt': text})
    assert a == b
    for bad in [{}, {'tokens': []}, {'tokens': 'x'}, {'tokens': [10 ** 9]}, {'prompt': ['a', 'b']}, {'prompt': text * 30},
                {'messages': 5}, {'prompt': 'x', 'compare_with': 5}]:
        call(server, 'POST', '/v1/cache/explain', bad, wanted=400)


def test_the_first_difference_is_shown_on_both_sides(server):
    text = lc.long_text(3000)
    lc.complete(server.port, text, max_tokens=1)
    said = explain(server, {'prompt': text[:1500] + ' banana ' + text[1500:]})
    d = said['difference']
    assert said['stop'] == 'differs' and f"token {d['position']} differs" in said['reason']
    assert 'banana' in d['asked']['text'] and 'banana' not in d['stored']['text']
    assert d['before'] in text and d['asked']['id'] != d['stored']['id']
    assert text.find(d['before'] + d['stored']['text']) >= 0, 'the stored side is the stored text'
    got = lc.complete(server.port, text[:1500] + ' banana ' + text[1500:], max_tokens=1)
    assert repr(d['asked']['token'])[1:-1] in got.cache['reason']


SYSTEM = 'You answer questions about the sea, about ships and about the stars above both. ' * 3
TEMPLATE = ("{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tool(name):
    return {'type': 'function', 'function': {'name': name, 'description': 'Looks up a fact that is stored somewhere. ' * 4,
                                             'parameters': {'type': 'object', 'properties': {}}}}


def test_the_part_that_changed_is_named(smollm2, serve, workdir):
    (workdir / 'chat.jinja').write_text(TEMPLATE)
    server = serve(smollm2, *CTX, '--chat-template-file', workdir / 'chat.jinja')
    base = {'max_tokens': 1, 'tools': [tool('look_up'), tool('measure')],
            'messages': [{'role': 'system', 'content': SYSTEM}, {'role': 'user', 'content': 'Which star is the brightest? ' * 8},
                         {'role': 'assistant', 'content': 'Sirius is. ' * 10}, {'role': 'user', 'content': 'And the next one?'}]}
    call(server, 'POST', '/v1/chat/completions', base)
    same = explain(server, base)
    assert same['stop'] == 'whole_prompt' and same['difference'] is None

    def part(change):
        body = json.loads(json.dumps(base))
        change(body)
        return explain(server, body)['difference']['part']

    assert part(lambda b: b['tools'][1]['function'].update(name='weigh')) == {'in': 'tools'}
    assert part(lambda b: b['messages'][0].update(content=SYSTEM.replace('ships', 'boats'))) == \
        {'in': 'message', 'index': 0, 'role': 'system'}
    assert part(lambda b: b['messages'][1].update(content='Which moon is the brightest? ' * 8)) == \
        {'in': 'message', 'index': 1, 'role': 'user'}
    assert part(lambda b: b['messages'][2].update(role='user'))['in'] == 'template'
    assert part(lambda b: b['messages'][2].update(role='user'))['before_message'] == 2


def test_other_salts_show_only_to_who_may_ask_there(server):
    text = lc.long_text(2000)
    lc.complete(server.port, text, max_tokens=1)
    lc.complete(server.port, text, max_tokens=1, cache_salt='mine')
    said = explain(server, {'prompt': text, 'cache_salt': 'new'})
    assert said['tokens_reused'] == 0 and said['stop'] == 'nothing_stored'
    assert [e['where'] for e in said['elsewhere']] == ['without cache_salt']
    said = explain(server, {'prompt': text, 'cache_salt': 'new', 'compare_with': [{'cache_salt': 'mine'}]})
    assert [e['where'] for e in said['elsewhere']] == ['without cache_salt', 'compare_with[0]']


def test_what_was_evicted_says_when_and_why(smollm2, serve):
    server = serve(smollm2, *CTX, '--kv-ram', '0', kv='off')
    text = lc.long_text(2000)
    lc.complete(server.port, text, max_tokens=1)
    said = explain(server, {'prompt': text})
    assert said['stop'] == 'evicted' and said['tokens_reused'] == 0
    assert said['removed']['ram']['seconds_ago'] < 60 and '--kv-ram' in said['reason'] and '--kv-disk' in said['reason']


@pytest.mark.parametrize('name', ['llama', 'gemma3', 'qwen35', 'qwen3'])
def test_every_family_explains_lists_and_pins(shared_data, serve, name):
    ids = json.loads((shared_data / 'arch' / f'{name}.tokens.json').read_text())
    prompt = (ids * 20)[:300]
    model = shared_data / 'arch' / f'{name}.gguf'
    server = serve(model)
    body = {'prompt': prompt, 'max_tokens': 1, 'temperature': 0, 'ignore_eos': True}
    call(server, 'POST', '/v1/completions', body)
    for asked in [prompt, prompt[:250], prompt + [7] * 40]:
        said = explain(server, {'prompt': asked})
        got = call(server, 'POST', '/v1/completions', {**body, 'prompt': asked})
        assert said['tokens_reused'] == got['cache']['tokens_reused'], (said, got['cache'])
    pin = call(server, 'POST', '/v1/cache/pin', {'prompt': prompt, 'name': 'p'})
    assert 256 <= pin['tokens'] <= 288
    assert server.stop() == 0
    server = serve(model)
    assert [p['name'] for p in listed(server)['pins']] == ['p']
    purged = call(server, 'POST', '/v1/cache/purge', {'all': True})
    assert purged['kept_pinned'] > 0
    said = explain(server, {'prompt': prompt + [7]})
    assert said['tokens_reused'] == pin['tokens'] == said['by_tier']['disk']


def test_list_pages_and_shows_the_text(server):
    for i in range(5):
        lc.complete(server.port, f'Number {i}. ' + lc.long_text(600), max_tokens=1)
    whole = listed(server)
    assert whole['total'] == 5 and len(whole['data']) == 5 and not whole['truncated']
    assert {p['text'][:9] for p in whole['data']} == {f'Number {i}.' for i in range(5)}
    assert all(p['tokens'] % 32 == 0 and p['bytes']['ram'] > 0 for p in whole['data'])
    pages = [p['key'] for at in (0, 2, 4) for p in listed(server, f'?limit=2&offset={at}')['data']]
    assert pages == [p['key'] for p in whole['data']]
    assert listed(server, '?cache_salt=x%20y')['total'] == 0
    call(server, 'GET', '/v1/cache?limit=-1', wanted=400)
    call(server, 'GET', '/v1/cache?offset=9999999999999999999999', wanted=400)


def test_pins_outlive_purges_and_restarts_and_figures_come_with_a_refusal(smollm2, serve):
    # 16 blocks of SmolLM2 are 11.25 MiB: a quota of 64 MiB lets pins take 48.
    args = (*CTX, '--kv-disk-max', '64MiB', '--kv-ram', '40MiB')
    server = serve(smollm2, *args)
    a, b = lc.long_text(5000), 'Another one. ' + lc.long_text(5500)
    lc.complete(server.port, a, max_tokens=1)
    pin = call(server, 'POST', '/v1/cache/pin', {'prompt': a, 'name': 'doc'})
    assert listed(server)['pins'][0]['key'] == pin['key']
    lc.complete(server.port, b, max_tokens=1)
    refused = call(server, 'POST', '/v1/cache/pin', {'prompt': b}, wanted=503)['error']['message']
    assert '48.0 MiB' in refused and '64.0 MiB' in refused, refused
    for i in range(3):
        lc.complete(server.port, f'{i} ' + lc.long_text(4000), max_tokens=1)
    assert server.stop() == 0
    server = serve(smollm2, *args)
    said = explain(server, {'prompt': a})
    assert said['stop'] == 'whole_prompt', said
    call(server, 'POST', '/v1/cache/unpin', {'key': pin['key']})
    call(server, 'POST', '/v1/cache/unpin', {'key': pin['key']}, wanted=404)
    call(server, 'POST', '/v1/cache/purge', {'all': True})
    said = explain(server, {'prompt': a})
    assert said['tokens_reused'] == 0 and listed(server)['total'] == 0
    call(server, 'POST', '/v1/cache/pin', {'prompt': a}, wanted=404)
    call(server, 'POST', '/v1/cache/purge', {}, wanted=400)
    call(server, 'POST', '/v1/cache/pin', {'key': 'zz'}, wanted=400)


def test_no_user_sees_anothers(smollm2, serve, workdir):
    """F15, both ways: the same user hits, another misses, through every endpoint."""
    server = serve(smollm2, *CTX, '-np', 2, '--api-key', 'A', '--api-key', 'B', '--slot-save-path', workdir / 'slots')
    secret, never = lc.long_text(2000), 'Never sent. ' + lc.long_text(1990)
    ids = {t: call(server, 'POST', '/tokenize', {'content': t, 'add_special': True}, 'A')['tokens'] for t in (secret, never)}
    body = {'prompt': secret, 'max_tokens': 1}
    call(server, 'POST', '/v1/completions', body, 'A')
    mine = call(server, 'POST', '/v1/completions', body, 'A')
    assert mine['usage']['prompt_tokens_details']['cached_tokens'] > 300
    pin = call(server, 'POST', '/v1/cache/pin', {'prompt': secret, 'name': 'doc'}, 'A')
    call(server, 'POST', '/slots/0?action=save', {'filename': 's.bin'}, 'A')

    shape = [{k: v for k, v in explain(server, {'tokens': ids[t]}, 'B').items() if k != 'prompt_tokens'} for t in (secret, never)]
    assert shape[0] == shape[1] and shape[0]['stop'] == 'nothing_stored'
    # The salt that the server makes of A's key is no salt that B can name.
    assert listed(server, key='B')['total'] == 0 and listed(server, key='B')['pins'] == []
    for path, what in [('/v1/cache/pin', {'key': pin['key']}), ('/v1/cache/unpin', {'key': pin['key']}),
                       ('/v1/cache/unpin', {'name': 'doc'}), ('/v1/cache/pin', {'prompt': secret})]:
        theirs = call(server, 'POST', path, what, 'B', wanted=404)
        unknown = {**what, **({'key': '00' * 32} if 'key' in what else {}), **({'prompt': never} if 'prompt' in what else {})}
        assert theirs == call(server, 'POST', path, unknown, 'B', wanted=404)
    for what in [{'all': True, 'include_pinned': True}, {'key': pin['key']}]:
        purged = call(server, 'POST', '/v1/cache/purge', what, 'B')
        assert purged['blocks'] == purged['kept_pinned'] == purged['kept_in_use'] == 0
    slot = call(server, 'GET', '/slots?prompt=1', key='B')[0]
    assert slot['n_prompt_tokens'] == 0 and slot['prompt'] == ''
    assert call(server, 'GET', '/slots?prompt=1', key='A')[0]['prompt'].startswith(secret[:20])
    assert call(server, 'POST', '/slots/0?action=restore', {'filename': 's.bin'}, 'B', wanted=404)
    assert call(server, 'POST', '/slots/0?action=save', {'filename': 's.bin'}, 'B')['n_saved'] == 0
    assert call(server, 'POST', '/slots/0?action=erase', {}, 'B')['n_erased'] == 0
    assert call(server, 'POST', '/slots/0?action=restore', {'filename': 's.bin'}, 'A')['n_restored'] > 300
    theirs = call(server, 'POST', '/v1/completions', body, 'B')
    assert theirs['usage']['prompt_tokens_details']['cached_tokens'] == 0
    call(server, 'POST', '/v1/cache/explain', {'prompt': secret, 'compare_with': [{'api_key': 'no'}]}, 'B', wanted=400)
    both = explain(server, {'prompt': never + 'x', 'compare_with': [{'api_key': 'A'}]}, 'B')
    assert both['elsewhere'] == []
    call(server, 'GET', '/v1/cache', wanted=401)


def test_files_are_for_their_owner_alone(smollm2, serve, workdir):
    server = serve(smollm2, *CTX, '--slot-save-path', workdir / 'slots')
    lc.complete(server.port, lc.long_text(2000), max_tokens=1)
    call(server, 'POST', '/v1/cache/pin', {'prompt': lc.long_text(2000)})
    call(server, 'POST', '/slots/0?action=save', {'filename': 'a'})
    assert server.stop() == 0
    names = set()
    for folder in (workdir / 'kv', workdir / 'slots'):
        for at, folders, files in os.walk(folder):
            assert stat.S_IMODE(os.stat(at).st_mode) == 0o700, at
            for name in files:
                names.add(name)
                assert stat.S_IMODE(os.stat(os.path.join(at, name)).st_mode) == 0o600, name
    assert {'pins', 'a', 'index.log'} <= names
