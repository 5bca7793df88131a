"""Runs `lode eval` and reads its logits."""
import json
import subprocess

import numpy as np

import lode_client as lc


def logits(model, ids, folder, *args, timeout=300):
    """float32 [len(ids), vocab]; the file is removed at once, since a long one has hundreds of megabytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens, out = folder / 'ids.json', folder / 'logits.npy'
    tokens.write_text(json.dumps([int(i) for i in ids]))
    done = subprocess.run([str(lc.BINARY), 'eval', str(model), '--tokens', str(tokens), '--logits', str(out), *map(str, args)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f'lode eval {model.name} {args}: code {done.returncode}: {done.stderr.strip()[-500:]}'
    found = np.load(out)
    out.unlink()
    assert found.dtype == np.float32 and found.shape[0] == len(ids), (found.dtype, found.shape)
    return found


def bits(array):
    """For comparisons bit for bit: as floats, NaN would differ from itself and -0 equal 0."""
    return array.view(np.uint32)
