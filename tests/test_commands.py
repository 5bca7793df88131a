"""Commands as a user types them: bench against our own server, and what a wrong call says."""
import json
import subprocess

import lode_client as lc


def lode(*args, timeout=300):
    return subprocess.run([str(lc.BINARY), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def test_bench_a_model(smollm2):
    done = lode('bench', smollm2, '--tests', 'ttft,speed', '--prompt-tokens', 600, '--json', '--', '-t', 2)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rows = {(r['test'], r['arm']): r for r in report['rows']}
    cold, warm, restarted = (rows['ttft', arm] for arm in ('cold', 'warm, other question', 'after restart'))
    assert abs(cold['prompt_tokens'] - 600) < 90
    assert cold['cached_tokens'] == 0
    assert warm['cached_tokens'] >= 500 and restarted['cached_tokens'] >= 500
    assert restarted['resident_bytes'] > 1 << 20
    assert all(rows['speed', arm]['prompt_tokens_per_s'] for arm in ('pp512', 'pp512 @d4096'))
    assert all(rows['speed', arm]['generation_tokens_per_s'] for arm in ('tg64', 'tg64 @d4096'))


def test_bench_a_url(gemma, serve):
    server = serve(gemma)
    done = lode('bench', f'http://127.0.0.1:{server.port}', '--tests', 'ttft', '--prompt-tokens', 1000)
    assert done.returncode == 0, done.stderr
    assert 'first token' in done.stdout and 'skipped: the server belongs to somebody else' in done.stdout


def test_wrong_calls_say_what_is_wrong(workdir):
    for args, words in [(['serve', workdir / 'none.gguf'], 'none.gguf'), (['bench', workdir / 'none.gguf'], 'none.gguf'),
                        (['eval', workdir / 'none.gguf', '--tokens', 'none.json', '--logits', 'y'], 'none.json'), (['frobnicate'], 'frobnicate')]:
        done = lode(*args, timeout=30)
        assert done.returncode not in (0, 134, 139, -6, -11), (args, done)
        assert words in done.stderr + done.stdout, (args, done.stderr)


def test_plan_adds_up(gemma):
    plan = json.loads(lode('plan', gemma, '--memory', '1GiB', '--kv-disk', 'off', '--json').stdout)
    assert sum(line['bytes'] for line in plan['memory']) == plan['memory_bytes'] <= 2**30
    assert plan['weights_bytes'] > 200 * 2**20 and plan['context'] <= plan['context_trained'] == 32768
    assert plan['disk_folder'] is None and plan['arena_bytes_max'] >= plan['sequence_bytes']


def test_plan_of_q8_0_is_smaller_and_advised(gemma):
    """A context that f16 has no room for: the refusal names q8_0, and with it the plan holds."""
    limits = ['--memory', '400MiB', '--kv-disk', 'off', '-c', 32768]
    f16 = lode('plan', gemma, *limits, '--load-mode', 'read')
    assert f16.returncode == 1 and '-c 32768 fits with -ctk q8_0 -ctv q8_0' in f16.stderr, f16
    mapped = json.loads(lode('plan', gemma, *limits, '--json').stdout)  # Weights may be dropped and read again.
    assert any('with -ctk q8_0 -ctv q8_0 they fit whole' in w for w in mapped['warnings']), mapped['warnings']
    plan = json.loads(lode('plan', gemma, *limits, '-ctk', 'q8_0', '-ctv', 'q8_0', '--json').stdout)
    assert plan['k_type'] == plan['v_type'] == 'q8_0' and plan['context'] == 32768 and not plan['warnings']


def test_what_cannot_fit_is_refused_before_it_is_read(gemma):
    """Reading 236 MiB of weights under 100 MiB must be refused with numbers and advice, without reading them first."""
    for command in ('plan', 'serve'):
        done = lode(command, gemma, '--memory', '100MiB', '--load-mode', 'read', '--kv-disk', 'off', timeout=30)
        assert done.returncode == 1, done
        assert 'MiB' in done.stderr and '--load-mode mmap' in done.stderr, done.stderr
    child = subprocess.run(['/usr/bin/env', 'python3', '-c', 'import resource, subprocess, sys; '
                            'subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True); '
                            'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)', str(lc.BINARY), 'serve', str(gemma),
                            '--memory', '100MiB', '--load-mode', 'read', '--kv-disk', 'off'], capture_output=True, text=True, timeout=30)
    assert int(child.stdout) < 100 * 1024, f'{int(child.stdout) // 1024} MiB were resident'


def test_output_that_nobody_gets_is_a_failure(smollm2, workdir):
    """Short output too: what a full disk or a closed pipe did not take must not look like success."""
    (workdir / 'text').write_text('hello')
    for command in (['--version'], ['info', smollm2], ['tokenize', smollm2, workdir / 'text']):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([str(lc.BINARY), *map(str, command)], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and 'cannot write to standard output' in done.stderr, (command, done)
