#!/usr/bin/env python3
"""Generated requests against a running `lode serve`: whatever /openapi.json allows, and what it does not.

    .venv/bin/python scripts/schemathesis_run.py [--cases 2000] [--seed 1] [--port 8080]

Without --port it starts a server of its own with SmolLM2. Every answer must be one that the document names, with the
headers and the body that it names; no 5xx but a 503 with Retry-After, and what the document does not allow must be
refused. Exit code 1 where that is not so. schemathesis (PyPI) makes the requests; setup.sh --tests installs it.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'scripts'))

import lode_client as lc  # noqa: E402  (the path is set above)

CHECKS = ('not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,'
          'response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance')
TOKENS_MAX = 4

# Read by schemathesis. Answers stay short: a request that names no length, or a long one, asks for few tokens. What is
# wrong about a length stays wrong.
HOOKS = f'''
import schemathesis

LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict")


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict) or case.method != "POST":
        return
    for name in LENGTHS:
        value = body.get(name)
        if type(value) is int and not 0 <= value <= {TOKENS_MAX} and -1 <= value <= 2147483647:
            body[name] = {TOKENS_MAX}
    if all(body.get(name) is None for name in LENGTHS):
        body["max_tokens"] = {TOKENS_MAX}


# A queue that is full says when to come again; that is an answer, and documented.
@schemathesis.hook
def after_call(context, case, response):
    if response.status_code == 503 and "retry-after" in response.headers:
        response.status_code = 400
'''


def operations(port):
    status, document = lc.request(port, 'GET', '/openapi.json')
    assert status == 200, f'/openapi.json: {status}'
    return sum(len(methods) for methods in document['paths'].values())


def run(port, cases, seed, folder, phases='examples,coverage,fuzzing'):
    """(exit code, output) of schemathesis."""
    each = max(1, -(-cases // operations(port)))
    (folder / 'lode_hooks.py').write_text(HOOKS)
    command = [str(pathlib.Path(sys.executable).parent / 'st'), 'run', f'http://127.0.0.1:{port}/openapi.json',
               '--checks', CHECKS, '--phases', phases, '-n', str(each), '--seed', str(seed),
               '--workers', '1', '--continue-on-failure', '--request-timeout', '60', '--warnings', 'off',
               '--suppress-health-check', 'all', '--generation-database', 'none', '--no-color']
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env={**os.environ, 'SCHEMATHESIS_HOOKS': 'lode_hooks', 'PYTHONPATH': str(folder)})
    return done.returncode, done.stdout + done.stderr


def counted(output):
    found = re.search(r'([\d,]+) generated', output)
    return int(found.group(1).replace(',', '')) if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--cases', type=int, default=2000, help='at least so many requests')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--port', type=int, default=0, help='of a server that runs already')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / 'build') as name:
        folder = pathlib.Path(name)
        server = None
        if not args.port:
            server = lc.Server(lc.SMOLLM2, '-c', 256, '-np', 4, '-t', 2, '--kv-disk', folder / 'kv', '--kv-disk-max',
                               '256MiB', '--slot-save-path', folder / 'slots', log=folder / 'server.log').start()
        start = time.monotonic()
        try:
            code, output = run(args.port or server.port, args.cases, args.seed, folder)
            print(output)
            alive = lc.complete(args.port or server.port, 'Alive?', max_tokens=1)
            print(f'{counted(output)} cases in {time.monotonic() - start:.0f} s; exit code {code}; '
                  f'then an answer of {alive.usage["completion_tokens"]} token')
        finally:
            if server:
                ended = server.stop()
                print(f'the server ended with {ended}')
                (ROOT / 'build' / 'schemathesis-server.log').write_text(server.output())
                code = code or ended
    return code


if __name__ == '__main__':
    sys.exit(main())
