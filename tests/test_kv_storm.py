"""scripts/kv_storm.py for some seconds: budgets hold and answers are the cold ones, whatever is evicted meanwhile."""
import lode_client as lc
from kv_storm import MIB, storm


def test_budgets_hold_in_a_storm_of_sessions(smollm2, serve, tmp_path):
    folder = tmp_path / 'storm'
    server = serve(smollm2, '-np', 4, '--kv-ram', '24MiB', '--kv-disk', folder, '--kv-disk-max', '64MiB')
    report = storm(server, folder, 64 * MIB, seconds=12, clients=4, context_chars=4000, colds=4)
    assert not report['faults'], report['faults'][:3]
    assert report['requests'] > 10 and report['reused_tokens'] > 0 and report['compared_with_cold'] == 4
    assert report['peak']['disk'] > 0 and report['peak']['kv'] > 0


def test_f08_what_a_killed_server_wrote_is_found_again(smollm2, serve, tmp_path):
    """F08: after a restart the files were there and never found. Killed in mid-write, and stopped."""
    folder, prompt = tmp_path / 'kv8', lc.ask(lc.long_text(6000), 'Why?')
    server = serve(smollm2, '--kv-disk', folder)
    lc.complete(server.port, prompt)
    server.stop()
    server = serve(smollm2, '--kv-disk', folder)
    assert lc.complete(server.port, prompt).cache['by_tier']['disk'] > 1000
    lc.complete(server.port, lc.ask(lc.long_text(20000)[9000:], 'Who?'))
    server.kill()  # While this one's blocks are written.
    (folder / next(p.name for p in folder.iterdir() if p.is_dir() and len(p.name) == 64) / '7.tmp').write_bytes(b'half')
    server = serve(smollm2, '--kv-disk', folder)
    assert lc.complete(server.port, prompt).cache['by_tier']['disk'] > 1000
    server.stop()
    assert not list(folder.rglob('*.tmp')), 'half written files stay'
