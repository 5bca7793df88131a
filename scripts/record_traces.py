#!/usr/bin/env python3
"""Records traces for bench/kv_sim: real requests to a server whose --kv-trace notes what they share.

    build/lode serve MODEL --port 8090 --kv-trace agent.trace & scripts/record_traces.py agent 8090 100
    KIND PORT REQUESTS; kinds: agent, chat, batch, users; the trace is complete once the server has stopped

The texts are made up of words, the answers are the model's own, and what an agent or a chat sends next holds them.
"""
import json
import random
import sys
import urllib.request

NOUNS = ('harbour lantern orchard ledger engine valley copper signal window market river archive compass garden '
         'needle tunnel quarry bridge station cellar').split()
VERBS = 'carries measures hides repairs follows counts forgets opens weighs paints answers moves'.split()


def words(rng, sentences):
    return ' '.join(f'The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {rng.randrange(1000)}.'
                    for _ in range(sentences))


def ask(port, messages, tokens):
    body = json.dumps({'messages': messages, 'max_tokens': tokens, 'temperature': 0.8}).encode()
    request = urllib.request.Request(f'http://127.0.0.1:{port}/v1/chat/completions', body,
                                     {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return {'role': 'assistant', 'content': json.load(reply)['choices'][0]['message']['content']}


def user(text):
    return {'role': 'user', 'content': text}


def agent(port, rng, requests):
    """Three agents on one system prompt of some 15,000 tokens; each step adds a tool's output; some are tried again."""
    system = {'role': 'system', 'content': 'You are an agent with tools. ' + words(rng, 1150)}
    agents = [[] for _ in range(3)]
    for _ in range(requests):
        i = rng.randrange(3)
        if not agents[i] or len(agents[i]) > rng.randrange(8, 30):
            agents[i] = [user('Task: ' + words(rng, rng.randrange(5, 40)))]
        elif rng.random() < 0.12 and len(agents[i]) > 2:
            agents[i] = agents[i][:-2] + [user('Tool output, again: ' + words(rng, rng.randrange(2, 30)))]
        else:
            agents[i].append(user('Tool output: ' + words(rng, int(rng.paretovariate(1.1) * 3) % 60 + 1)))
        agents[i].append(ask(port, [system] + agents[i], rng.randrange(8, 24)))


def chat(port, rng, requests):
    """People who chat in turns; some say the last thing again in other words, some come back late."""
    system = {'role': 'system', 'content': 'You are a helpful assistant. ' + words(rng, 20)}
    chats = []
    for _ in range(requests):
        if len(chats) < 8 or rng.random() < 0.12:
            chats.append([])
        mine = chats[-1] if not chats[-1] else chats[int(len(chats) * rng.random() ** 0.5)]
        if len(mine) > 2 and rng.random() < 0.15:
            del mine[-2:]
        if len(mine) > 16:
            chats.remove(mine)
            continue
        mine.append(user(words(rng, rng.randrange(1, 12))))
        mine.append(ask(port, [system] + mine, rng.randrange(8, 12)))


def batch(port, rng, requests):
    """Extraction: long instructions, many documents seen once, some asked a second question; then another job."""
    jobs = [words(rng, 150), words(rng, 90)]
    for n in range(requests):
        job = jobs[0] if n < requests // 3 or n >= requests * 2 // 3 else jobs[1]
        document = words(rng, int(rng.paretovariate(1.3) * 8) % 70 + 5)
        prompt = [{'role': 'system', 'content': 'Extract the fields. ' + job}, user('Document: ' + document)]
        first = ask(port, prompt, 12)
        if rng.random() < 0.15:
            ask(port, prompt + [first, user('And the totals?')], 12)


def users(port, rng, requests):
    """Many users, a few of them busy, each with instructions of his own."""
    everyone = [{'own': words(rng, rng.randrange(5, 40)), 'turns': []} for _ in range(40)]
    for _ in range(requests):
        who = everyone[min(39, int(rng.paretovariate(0.9)) - 1)]
        if len(who['turns']) > 12 or rng.random() < 0.15:
            who['turns'] = []
        who['turns'].append(user(words(rng, rng.randrange(1, 10))))
        messages = [{'role': 'system', 'content': who['own']}] + who['turns']
        who['turns'].append(ask(port, messages, rng.randrange(8, 24)))


if __name__ == '__main__':
    {'agent': agent, 'chat': chat, 'batch': batch, 'users': users}[sys.argv[1]](
        int(sys.argv[2]), random.Random(7), int(sys.argv[3]))
