"""Fixtures of the end-to-end tests: the binary, the models, the shared data, servers, and how long a run may take.

    .venv/bin/python -m pytest tests [--full] [--kills N] [--seed N] [--binary FILE]
"""
import os
import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'scripts'))
sys.path.insert(0, str(ROOT / 'tests'))

import lode_client as lc  # noqa: E402  (the path is set above)

TEST_SECONDS_MAX = 600


def pytest_addoption(parser):
    parser.addoption('--full', action='store_true', help='ten questions and long prompts where a short run takes fewer')
    parser.addoption('--kills', type=int, default=10, help='how often the server is killed (a closing check takes 200)')
    parser.addoption('--binary', default='', help='what to test instead of build/lode')
    parser.addoption('--seed', type=int, default=1, help='of everything random')


def missing(what):
    """CI must have everything; elsewhere a test without its inputs is skipped."""
    if os.environ.get('CI') == 'true':
        pytest.fail(f'{what}, and CI may not run without it')
    pytest.skip(what)


@pytest.fixture(scope='session', autouse=True)
def binary(request):
    if request.config.getoption('--binary'):
        lc.BINARY = pathlib.Path(request.config.getoption('--binary')).resolve()
    if not lc.BINARY.exists():
        missing(f'{lc.BINARY} is not built: run scripts/setup.sh')
    return lc.BINARY


@pytest.fixture(scope='session')
def shared_data():
    path = ROOT.parent / 'shared' / 'data'
    if not path.is_dir():
        missing(f'the shared test data is not at {path}')
    return path


@pytest.fixture(scope='session', params=['gemma', 'smollm2'])
def model(request):
    """Each real model in turn."""
    return need_model({'gemma': lc.GEMMA, 'smollm2': lc.SMOLLM2}[request.param])


@pytest.fixture(scope='session')
def gemma():
    return need_model(lc.GEMMA)


@pytest.fixture(scope='session')
def smollm2():
    return need_model(lc.SMOLLM2)


def need_model(path):
    if not path.exists():
        missing(f'{path.name} is not in models/: run scripts/setup.sh')
    return path


@pytest.fixture(autouse=True)
def time_limit(request):
    """No test may hang: after ten minutes (an hour with --full) it fails where it stands."""
    def give_up(*_):
        raise TimeoutError(f'{request.node.name} took too long')
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TEST_SECONDS_MAX * (6 if request.config.getoption('--full') else 1))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def workdir(request):
    """A folder on the checkout's disk (pytest's own is in /tmp, which may be memory); kept if the test fails."""
    import shutil
    path = ROOT / 'build' / 'e2e' / request.node.name.replace('[', '-').replace(']', '').replace('/', '_')
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    yield path
    if not getattr(request.node, 'failed', False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True


@pytest.fixture
def serve(workdir):
    """Starts servers that end with the test: serve(model, '-np', 2, kv='name') -> lode_client.Server."""
    started = []

    def start(model, *args, kv='kv', **options):
        disk = kv if kv == 'off' else workdir / kv
        server = lc.Server(model, '-t', 2, '--kv-disk', disk, *args, log=workdir / 'server.log', **options)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()
