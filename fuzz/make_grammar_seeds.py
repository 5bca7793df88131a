#!/usr/bin/env python3
"""Writes seeds of the grammar fuzz target: the notation's byte, the walk's byte, a grammar.

    fuzz/make_grammar_seeds.py           writes fuzz/grammar/*
"""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGEXES = [r"[a-c]{2,40}x|(?:ab)*\d+", r"^(\w+)@[\p{L}-]{1,9}\.(com|org)$", r"(a|b)*a(a|b){9}", r"[^\"\\\x00-\x1f]{0,300}é漢?"]
GRAMMARS = ['root ::= root "+" root | [0-9]+ | "(" root ")"', 'root ::= (a | b)+ # x\na ::= "ab" | "a" a\nb ::= [a-z]{3,40} "\\n"',
            'root ::= "a" root "b"? | "c"', 'root ::= "{" ws (p ("," ws p)*)? "}"\np ::= "\\"" [^"]* "\\":" ws root\nws ::= " "?']


def main():
    folder = ROOT / "fuzz" / "grammar"
    folder.mkdir(exist_ok=True)
    schemas = (ROOT / "tests/data/schemas.jsonl").read_text().splitlines()
    kinds = {"schema": schemas[::9], "regex": REGEXES, "gbnf": GRAMMARS, "choice": ["true\ntrial\nnull", "a\nab\nabc"]}
    for kind, (name, texts) in enumerate(kinds.items()):
        for i, text in enumerate(texts):
            (folder / f"{name}{i:02}").write_bytes(bytes([kind, i]) + text.encode())


main()
