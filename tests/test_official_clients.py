"""Every feature that agents use, through the official clients as they are: openai's chat and responses, anthropic's
messages. On SmolLM2 with a template that knows tools. Names such as D11 are field reports.
"""
import json
import os

import jsonschema
import pytest

import lode_client as lc
from test_chat import TOOL_TEMPLATE

try:
    import anthropic
    import openai
except ImportError:
    if os.environ.get('CI') == 'true':
        raise
    pytest.skip('the openai or anthropic package is missing: run scripts/setup.sh --tests', allow_module_level=True)

CITY = {'type': 'object', 'properties': {'city': {'type': 'string', 'maxLength': 12}}, 'required': ['city'], 'additionalProperties': False}
PERSON = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 12}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 120}},
          'required': ['name', 'age'], 'additionalProperties': False}
ASKED = 'What is the weather in Paris?'
FLAT_TOOL = {'type': 'function', 'name': 'get_weather', 'description': 'The weather in a city', 'parameters': CITY, 'strict': True}
HER_TOOL = {'name': 'get_weather', 'description': 'The weather in a city', 'input_schema': CITY}
TEXT = lc.long_text(3000)


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    if not lc.SMOLLM2.exists():
        if os.environ.get('CI') == 'true':
            pytest.fail(f'{lc.SMOLLM2.name} is not in models/')
        pytest.skip(f'{lc.SMOLLM2.name} is not in models/: run scripts/setup.sh')
    folder = tmp_path_factory.mktemp('clients')
    (folder / 'tools.jinja').write_text(TOOL_TEMPLATE)
    server = lc.Server(lc.SMOLLM2, '-t', 2, '--kv-disk', 'off', '--chat-template-file', folder / 'tools.jinja', '-np', 2,
                       log=folder / 'server.log').start()
    yield server
    server.stop()


@pytest.fixture
def theirs(server):
    return openai.OpenAI(base_url=f'http://127.0.0.1:{server.port}/v1', api_key='none', max_retries=0, timeout=300)


@pytest.fixture
def hers(server):
    return anthropic.Anthropic(base_url=f'http://127.0.0.1:{server.port}', api_key='none', max_retries=0, timeout=300)


def say(client, content, **options):
    return client.messages.create(**{'model': 'any', 'max_tokens': 24, 'messages': [{'role': 'user', 'content': content}],
                                     'extra_body': {'temperature': 0}, **options})


# ---- Anthropic's messages


def test_messages_whole_and_streamed_alike(hers):
    whole = say(hers, 'What is 2+2?', system='Be brief.')
    assert whole.type == 'message' and whole.role == 'assistant' and whole.content[0].text
    with hers.messages.stream(model='any', max_tokens=24, system='Be brief.', messages=[{'role': 'user', 'content': 'What is 2+2?'}],
                              extra_body={'temperature': 0}) as stream:
        events = [e.type for e in stream if not e.type == 'ping']
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens
    raw = [e for e in events if e not in ('text', 'content_block_delta')]
    assert raw == ['message_start', 'content_block_start', 'content_block_stop', 'message_delta', 'message_stop'], events
    blocks = [{'type': 'text', 'text': 'What is'}, {'type': 'text', 'text': '2+2?'}]
    assert say(hers, blocks, system=[{'type': 'text', 'text': 'Be brief.'}]).content[0].text


def test_messages_lengths_stops_and_counts(hers):
    assert say(hers, 'Tell me a long story.', max_tokens=3).stop_reason == 'max_tokens'
    full = say(hers, 'Count: one two three four', max_tokens=30).content[0].text
    stop = ' '.join(full.split(' ')[3:5])
    cut = say(hers, 'Count: one two three four', max_tokens=30, stop_sequences=[stop])
    assert (cut.stop_reason, cut.stop_sequence, cut.content[0].text) == ('stop_sequence', stop, full[:full.index(stop)])
    counted = hers.messages.count_tokens(model='any', messages=[{'role': 'user', 'content': 'Count: one two three four'}])
    usage = say(hers, 'Count: one two three four', max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_messages_cache_control_is_reused(hers):
    system = [{'type': 'text', 'text': TEXT, 'cache_control': {'type': 'ephemeral'}}]
    first = say(hers, 'Who wrote this?', system=system, max_tokens=2).usage
    again = say(hers, 'And when, if one may ask?', system=system, max_tokens=2).usage
    assert first.cache_creation_input_tokens > 300 and first.cache_read_input_tokens == 0, first
    assert again.cache_read_input_tokens > first.cache_creation_input_tokens - 64, (first, again)


def test_messages_tools(hers):
    forced = {'type': 'tool', 'name': 'get_weather'}
    whole = say(hers, ASKED, tools=[HER_TOOL], tool_choice=forced, max_tokens=64)
    call = whole.content[-1]
    assert (call.type, call.name, whole.stop_reason) == ('tool_use', 'get_weather', 'tool_use'), whole
    jsonschema.validate(call.input, CITY)
    with hers.messages.stream(model='any', max_tokens=64, tools=[HER_TOOL], tool_choice=forced,
                              messages=[{'role': 'user', 'content': ASKED}], extra_body={'temperature': 0}) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == call.input and final.stop_reason == 'tool_use'
    history = [{'role': 'user', 'content': ASKED}, {'role': 'assistant', 'content': [b.model_dump(exclude_none=True) for b in whole.content]},
               {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': call.id, 'content': 'sunny'}]}]
    assert say(hers, '', messages=history, tools=[HER_TOOL]).role == 'assistant'
    none = say(hers, ASKED, tools=[HER_TOOL], tool_choice={'type': 'none'})
    assert all(b.type != 'tool_use' for b in none.content)


def test_messages_schema_and_thinking(hers):
    text = say(hers, 'Tell me about a person.', max_tokens=100,
               extra_body={'temperature': 1, 'output_config': {'format': {'type': 'json_schema', 'schema': PERSON}}}).content[0].text
    jsonschema.validate(json.loads(text), PERSON)
    assert say(hers, 'Hi', thinking={'type': 'disabled'}).content


def test_messages_errors(hers):
    for options, word in [({'messages': []}, 'messages'), ({'max_tokens': 0}, 'max_tokens'),
                          ({'extra_body': {'temperature': 'hot'}}, 'temperature'),
                          ({'messages': [{'role': 'user', 'content': 'word ' * 40000}]}, 'context')]:
        with pytest.raises(anthropic.BadRequestError) as e:
            say(hers, 'x', **options)
        assert e.value.body['type'] == 'error' and e.value.body['error']['type'] == 'invalid_request_error'
        assert word in e.value.body['error']['message']


# ---- OpenAI's responses


def respond(client, **options):
    return client.responses.create(**{'model': 'any', 'temperature': 0, 'max_output_tokens': 24, **options})


def test_responses_whole_and_streamed_alike(theirs):
    whole = respond(theirs, input='What is 2+2?', instructions='Be brief.')
    assert whole.object == 'response' and whole.output_text and whole.usage.total_tokens
    with theirs.responses.stream(model='any', input='What is 2+2?', instructions='Be brief.', temperature=0, max_output_tokens=24) as stream:
        events = list(stream)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert ''.join(e.delta for e in events if e.type == 'response.output_text.delta') == whole.output_text
    assert events[-1].type == f'response.{whole.status}' and events[-1].response.output_text == whole.output_text
    items = [{'role': 'developer', 'content': 'Be brief.'}, {'role': 'user', 'content': [{'type': 'input_text', 'text': 'Hi'}]}]
    first = respond(theirs, input=items)
    assert respond(theirs, input=[*items, *[o.model_dump() for o in first.output], {'role': 'user', 'content': 'More.'}]).output_text
    cut = respond(theirs, input='Tell me a long story.', max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason) == ('incomplete', 'max_output_tokens')


def test_responses_tools(theirs):
    forced = {'type': 'function', 'name': 'get_weather'}
    whole = respond(theirs, input=ASKED, tools=[FLAT_TOOL], tool_choice=forced, max_output_tokens=64)
    call = whole.output[-1]
    assert (call.type, call.name, whole.status) == ('function_call', 'get_weather', 'completed'), whole
    jsonschema.validate(json.loads(call.arguments), CITY)
    events = list(respond(theirs, input=ASKED, tools=[FLAT_TOOL], tool_choice=forced, max_output_tokens=64, stream=True))
    assert ''.join(e.delta for e in events if e.type == 'response.function_call_arguments.delta') == call.arguments
    back = [{'role': 'user', 'content': ASKED}, *[o.model_dump() for o in whole.output],
            {'type': 'function_call_output', 'call_id': call.call_id, 'output': 'sunny'}]
    assert respond(theirs, input=back, tools=[FLAT_TOOL], tool_choice='none').output_text is not None


def test_responses_schema_and_errors(theirs):
    form = {'format': {'type': 'json_schema', 'name': 'person', 'schema': PERSON, 'strict': True}}
    for seed in range(3):
        text = respond(theirs, input='Tell me about a person.', text=form, temperature=1, max_output_tokens=100,
                       extra_body={'seed': seed}).output_text
        jsonschema.validate(json.loads(text), PERSON)
    for options, param in [({'input': []}, 'input'), ({'input': 'x', 'previous_response_id': 'resp_1'}, 'previous_response_id'),
                           ({'input': 'x', 'extra_body': {'temperature': 'hot'}}, 'temperature')]:
        with pytest.raises(openai.BadRequestError) as e:
            respond(theirs, **options)
        assert e.value.body['param'] == param
    with pytest.raises(openai.BadRequestError) as e:
        theirs.embeddings.create(model='any', input='x')
    assert e.value.status_code == 400 and e.value.code == 'embeddings_unsupported'


# ---- Tools of chat


TWO = [{'type': 'function', 'function': {'name': 'get_weather', 'parameters': CITY}},
       {'type': 'function', 'function': {'name': 'get_weather_of_day', 'parameters': PERSON}}]  # One name begins the other.


def test_e15_a_required_calls_arguments_keep_to_their_schema(theirs):
    """At temperature 1, with names that share a beginning, whole and streamed."""
    schemas = {t['function']['name']: t['function']['parameters'] for t in TWO}
    for choice in ('required', {'type': 'function', 'function': {'name': 'get_weather_of_day'}}):
        for seed in range(4):
            options = dict(model='any', messages=[{'role': 'user', 'content': ASKED}], tools=TWO, tool_choice=choice, temperature=1,
                           seed=seed, max_tokens=100)
            reply = theirs.chat.completions.create(**options).choices[0]
            assert reply.finish_reason == 'tool_calls', reply
            for call in reply.message.tool_calls:
                jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
                assert choice == 'required' or call.function.name == 'get_weather_of_day'
            parts = [c for e in theirs.chat.completions.create(**options, stream=True) for c in e.choices[0].delta.tool_calls or []]
            assert ''.join(p.function.arguments or '' for p in parts) == ''.join(c.function.arguments for c in reply.message.tool_calls)
