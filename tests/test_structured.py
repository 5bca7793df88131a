"""Answers that keep to a schema, a regex, a grammar or a list of choices: over HTTP, on SmolLM2, which writes nothing of
the kind by itself.

    pytest tests/test_structured.py            a quarter of the schemas
    pytest tests/test_structured.py --full     all of tests/data/schemas.jsonl
"""
import concurrent.futures
import json
import re

import openai
import pytest

import lode_client as lc
from test_grammar import SCHEMAS, problems, strict

PERSON = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 20}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 120}},
          'required': ['name', 'age'], 'additionalProperties': False}


@pytest.fixture
def server(smollm2, serve):
    return serve(smollm2, '-np', 4, kv='off')


def post(server, path, body):
    status, reply = lc.request(server.port, 'POST', path, body, timeout=300)
    assert status == 200, reply
    return reply


def chat(server, question='Tell me about a person.', **options):
    body = {'messages': [{'role': 'user', 'content': question}], 'temperature': 1, 'max_tokens': 160, **options}
    return post(server, '/v1/chat/completions', body)


def choice(reply):
    return reply['choices'][0]


def format_of(schema):
    return {'type': 'json_schema', 'json_schema': {'name': 'it', 'schema': schema, 'strict': True}}


def test_every_schema_gives_valid_documents_at_temperature_1(server, request):
    schemas = SCHEMAS if request.config.getoption('--full') else SCHEMAS[::4]

    def ask(k):
        schema = schemas[k]
        reply = chat(server, 'Answer in JSON: ' + json.dumps(schema)[:300], response_format=format_of(schema), max_tokens=400, seed=k)
        end = choice(reply)['finish_reason']
        return schema, choice(reply)['message']['content'], end, problems(schema, choice(reply)['message']['content'])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(len(schemas))))
    wrong = [a for a in answers if a[3]]
    for schema, text, end, why in wrong[:10]:
        print(json.dumps(schema)[:300], '\n ', end, repr(text)[:300], '\n ', why)
    assert not wrong
    assert len({text for _, text, _, _ in answers}) > len(answers) // 3  # They are not all the shortest document.


def test_a_short_budget_still_closes_the_document(server):
    for most in (24, 32, 48, 64):
        reply = chat(server, response_format=format_of(PERSON), max_tokens=most, seed=most)
        assert problems(PERSON, choice(reply)['message']['content']) is None, reply
    reply = chat(server, response_format=format_of(PERSON), max_tokens=3)
    assert choice(reply)['finish_reason'] == 'length'


def test_the_same_document_streamed_and_through_every_field(server):
    whole = choice(chat(server, response_format=format_of(PERSON), seed=5))['message']['content']
    assert problems(PERSON, whole) is None
    client = openai.OpenAI(base_url=f'http://127.0.0.1:{server.port}/v1', api_key='none', max_retries=0, timeout=300)
    events = client.chat.completions.create(model='any', messages=[{'role': 'user', 'content': 'Tell me about a person.'}], temperature=1,
                                            max_tokens=160, response_format=format_of(PERSON), seed=5, stream=True)
    assert ''.join(e.choices[0].delta.content or '' for e in events if e.choices) == whole
    for field in ({'json_schema': PERSON}, {'guided_json': PERSON}, {'guided_json': json.dumps(PERSON)},
                  {'structured_outputs': {'json': PERSON}}, {'response_format': {'type': 'json_object', 'schema': PERSON}}):
        assert choice(chat(server, seed=5, **field))['message']['content'] == whole, field


def test_regex_choice_grammar_and_any_object(server):
    assert re.fullmatch(r'[a-f]{3}-\d{2,4}', choice(chat(server, guided_regex=r'[a-f]{3}-\d{2,4}'))['message']['content'])
    for seed in range(6):
        assert choice(chat(server, guided_choice=['red', 'dark green'], seed=seed))['message']['content'] in ('red', 'dark green')
    text = choice(chat(server, grammar='root ::= ("yes" | "no") " " [0-9]+ "%"'))['message']['content']
    assert re.fullmatch(r'(yes|no) [0-9]+%', text)
    assert isinstance(strict(choice(chat(server, response_format={'type': 'json_object'}))['message']['content']), dict)
    reply = post(server, '/v1/completions', {'prompt': 'The answer is', 'max_tokens': 16, 'guided_choice': [' yes', ' no'], 'n': 3, 'seed': 1})
    assert {c['text'] for c in reply['choices']} <= {' yes', ' no'} and all(c['finish_reason'] == 'stop' for c in reply['choices'])


def test_what_cannot_be_kept_to_is_a_400_that_names_it(server):
    for options, param, word in [({'response_format': format_of({'type': 'string', 'contentEncoding': 'base64', 'not': {}})}, 'response_format.json_schema.schema', 'not'),
                                 ({'guided_regex': '('}, 'guided_regex', ''), ({'grammar': 'root ::= other'}, 'grammar', 'other'),
                                 ({'guided_regex': 'a', 'grammar': 'root ::= "a"'}, 'guided_regex', 'grammar')]:
        status, reply = lc.request(server.port, 'POST', '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'x'}], **options})
        error = reply['error']
        assert status == 400 and error['param'] == param and word in error['message'], error
