#!/usr/bin/env python3
"""Writes seeds of the template fuzz target: a few cases of each part of the language, from the golden templates.

    fuzz/make_template_seeds.py           writes fuzz/template/*
"""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = 24  # So many files: few enough to read, each short enough to mutate.


def main():
    lines = (ROOT / "src/text/testdata/templates.golden").read_text().splitlines()
    templates = [case["t"] for case in map(json.loads, lines[1:]) if "o" in case]
    folder = ROOT / "fuzz" / "template"
    folder.mkdir(exist_ok=True)
    for i in range(PARTS):
        (folder / f"golden{i:02}").write_text("\n".join(templates[i::PARTS])[:4000])
    variables = '\n{"a": [1, "x", null, 1.5, true], "d": {"k": {"k": []}}}'
    (folder / "variables").write_text("{% for k, v in d.items() %}{{ k ~ v }}{% endfor %}{{ a|tojson(indent=1) }}" + variables)


main()
