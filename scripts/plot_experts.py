#!/usr/bin/env python3
"""Draws docs/expert-cache-*.svg, hit rate against size, from what bench/expert_sim wrote with --json.

  build/expert_sim --json runs.json ROUTING.npy...; scripts/plot_experts.py runs.json docs
"""
import json
import pathlib
import sys

COLOURS = {'lru': '#8c8c8c', 'slru 80%': '#4c9a6a', 'lfu': '#c2a33a', 'lfru': '#7a5ba8', 'static hot': '#b0b7c3',
           'mixture': '#4273b8', 'lode': '#c8452f', 'belady': '#222222'}
TEXT = 'font-family="sans-serif" font-size="11"'
WIDTH, HEIGHT, LEFT, TOP, PLOT = 560, 330, 46, 34, 220


def draw(runs, title):
    """runs: of one trace, ascending sizes."""
    x = lambda share: LEFT + (WIDTH - LEFT - 120) * share / 0.75
    y = lambda rate: TOP + PLOT * (1 - rate)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><text x="{LEFT}" y="16" {TEXT}>{title}</text>']
    for rate in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line x1="{LEFT}" x2="{x(0.75):.0f}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#ddd"/>'
                   f'<text x="6" y="{y(rate) + 4:.1f}" {TEXT}>{rate:.0%}</text>')
    for run in runs:
        out.append(f'<text x="{x(run["share"]) - 12:.1f}" y="{TOP + PLOT + 16}" {TEXT}>{run["share"]:.0%}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP + PLOT + 36}" {TEXT}>share of all experts that memory holds</text>')
    for i, (rule, colour) in enumerate(COLOURS.items()):
        points = ' '.join(f'{x(r["share"]):.1f},{y(r["rates"][rule]):.1f}' for r in runs)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + 14 * i
        out.append(f'<rect x="{WIDTH - 100}" y="{at}" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{WIDTH - 84}" y="{at + 9}" {TEXT}>{rule}</text>')
    return '\n'.join(out) + '</svg>\n'


def main():
    runs = json.loads(pathlib.Path(sys.argv[1]).read_text())['runs']
    for trace in dict.fromkeys(r['trace'] for r in runs):
        name = trace.removesuffix('.npy')
        text = draw([r for r in runs if r['trace'] == trace], f'{trace}: hit rate by size')
        (pathlib.Path(sys.argv[2]) / f'expert-cache-{name}.svg').write_text(text)


if __name__ == '__main__':
    main()
