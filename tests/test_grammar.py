"""Constrained output against an independent validator: random walks through the masks of 200 schemas, over real
vocabularies, give documents that Python's jsonschema accepts, each of them.

    pytest tests/test_grammar.py            every schema over SmolLM2's vocabulary, a part over the others
    pytest tests/test_grammar.py --full     every schema over every vocabulary, more walks
"""

import datetime
import json
import math
import pathlib
import re
import subprocess

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
WALK = ROOT / "build" / "grammar_walk"
SCHEMAS = [json.loads(line) for line in (ROOT / "tests/data/schemas.jsonl").read_text().splitlines()]
SHARED = ROOT.parent / "shared" / "data" / "vocab"
VOCABULARIES = {
    "smollm2": ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": ROOT / "models/gemma-3-270m-q4_k_m.gguf",
    "qwen2": SHARED / "qwen2.gguf",
    "llama-bpe": SHARED / "llama-bpe.gguf",
    "phi-3": SHARED / "phi-3.gguf",
    "gemma-4": SHARED / "gemma-4.gguf",
}


def run(vocabulary, cases):
    """grammar_walk's answer to each case."""
    path = VOCABULARIES[vocabulary]
    if not path.exists():
        pytest.skip(f"{path} is absent")
    lines = "\n".join(json.dumps(case) for case in cases) + "\n"
    done = subprocess.run([WALK, path], input=lines, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def strict(text):
    """The JSON value, read as strictly as JSON is defined; the Python reader lets more through."""

    def refuse(what):
        raise ValueError(what)

    value = json.loads(text, parse_constant=refuse)
    text.encode("utf-8")  # No half of a surrogate pair.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def problems(schema, text):
    """What is wrong with a document; nothing where it is right."""
    if text is None:
        return "the walk did not end"
    try:
        value = strict(text)
    except (ValueError, UnicodeError) as error:
        return f"not JSON: {error}"
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    error = next(validator.iter_errors(value), None)
    return error and error.message


def walks_are_valid(vocabulary, schemas, walks, seed):
    answers = run(vocabulary, [{"schema": s, "walks": walks, "seed": seed + k} for k, s in enumerate(schemas)])
    assert len(answers) == len(schemas)
    wrong, documents = [], 0
    for schema, answer in zip(schemas, answers):
        if "error" in answer:
            wrong.append((schema, answer["error"], None))
            continue
        for text in answer["documents"]:
            documents += 1
            if found := problems(schema, text):
                wrong.append((schema, found, text))
    for schema, why, text in wrong[:20]:
        print(json.dumps(schema, ensure_ascii=False)[:300], "\n  ", why[:200], "\n  ", repr(text)[:300])
    assert not wrong
    assert documents == walks * len(schemas)


def test_there_are_200_schemas():
    assert len(SCHEMAS) >= 200
    assert len({json.dumps(s, sort_keys=True) for s in SCHEMAS}) == len(SCHEMAS)


def test_walks_over_smollm2_are_valid(request):
    walks_are_valid("smollm2", SCHEMAS, 60 if request.config.getoption("--full") else 12, seed=1)


@pytest.mark.parametrize("vocabulary", [v for v in VOCABULARIES if v != "smollm2"])
def test_walks_over_other_vocabularies_are_valid(vocabulary, request):
    full = request.config.getoption("--full")
    walks_are_valid(vocabulary, SCHEMAS if full else SCHEMAS[::6], 10 if full else 3, seed=2)
