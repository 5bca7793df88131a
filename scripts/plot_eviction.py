#!/usr/bin/env python3
"""Draws docs/eviction-*.svg from what bench/kv_sim wrote with --json.

  build/kv_sim --json runs.json; scripts/plot_eviction.py runs.json docs
"""
import json
import pathlib
import sys

POLICIES = {'lru': '#8c8c8c', 'lfu': '#c2a33a', 'slru': '#4c9a6a', 'gdsf': '#4273b8', 'lode': '#c8452f'}
TEXT = 'font-family="sans-serif" font-size="11"'


def bars(groups, title):
    """groups: {label: {policy: share of the best}}; one cluster of bars a group."""
    width, height, left, top, bar = 60 + 74 * len(groups), 230, 46, 40, 12
    low = 0.6
    y = lambda share: top + 150 * (1 - (max(share, low) - low) / (1 - low))
    out = [f'<text x="{left}" y="16" {TEXT}>{title}</text>']
    for share in (0.6, 0.7, 0.8, 0.9, 1.0):
        out.append(f'<line x1="{left}" x2="{width}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#ddd"/>'
                   f'<text x="4" y="{y(share) + 4:.1f}" {TEXT}>{share:.0%}</text>')
    for i, (label, shares) in enumerate(groups.items()):
        x = left + 6 + 74 * i
        for j, (policy, colour) in enumerate(POLICIES.items()):
            at = y(shares[policy])
            out.append(f'<rect x="{x + bar * j}" y="{at:.1f}" width="{bar - 2}" height="{y(low) - at:.1f}" '
                       f'fill="{colour}"/>')
        out.append(f'<text x="{x}" y="{y(low) + 16}" {TEXT}>{label}</text>')
    return svg(width + 10, height, out)


def lines(curves, title, labels):
    """curves: {policy: [share at each size]}."""
    width, height, left, top = 420, 230, 46, 40
    step = (width - left - 40) / (len(labels) - 1)
    y = lambda share: top + 150 * (1 - share)
    out = [f'<text x="{left}" y="16" {TEXT}>{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1.0):
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#ddd"/>'
                   f'<text x="4" y="{y(share) + 4:.1f}" {TEXT}>{share:.0%}</text>')
    for i, label in enumerate(labels):
        out.append(f'<text x="{left + step * i - 8:.0f}" y="{top + 166}" {TEXT}>{label}</text>')
    for policy, shares in curves.items():
        points = ' '.join(f'{left + step * i:.1f},{y(s):.1f}' for i, s in enumerate(shares))
        out.append(f'<polyline points="{points}" fill="none" stroke="{POLICIES[policy]}" stroke-width="2"/>')
    return svg(width, height, out)


def svg(width, height, parts):
    legend = ''.join(f'<rect x="{46 + 60 * i}" y="{height - 16}" width="10" height="10" fill="{c}"/>'
                     f'<text x="{60 + 60 * i}" y="{height - 7}" {TEXT}>{p}</text>'
                     for i, (p, c) in enumerate(POLICIES.items()))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
            f'<rect width="{width}" height="{height}" fill="white"/>' + '\n'.join(parts) + legend + '</svg>\n')


def main():
    runs = json.loads(pathlib.Path(sys.argv[1]).read_text())['runs']
    folder = pathlib.Path(sys.argv[2])
    for model in dict.fromkeys(r['model'] for r in runs):
        groups = {}
        for r in (r for r in runs if r['model'] == model):
            sums = groups.setdefault(r['trace'], dict.fromkeys(POLICIES, 0))
            for p in POLICIES:
                sums[p] += r['saved'][p]
        shares = {t: {p: s / max(sums.values()) for p, s in sums.items()} for t, sums in groups.items()}
        (folder / f'eviction-{model}.svg').write_text(
            bars(shares, f'{model}: saved seconds, as a share of the best policy\'s'))
    sizes = sorted({r['share'] for r in runs})
    curves = {p: [] for p in POLICIES}
    for size in sizes:
        at = [r for r in runs if r['share'] == size and not r['ssd']]
        for p in POLICIES:
            curves[p].append(sum(r['saved'][p] / r['unbounded'] for r in at) / len(at))
    (folder / 'eviction-sizes.svg').write_text(
        lines(curves, 'RAM alone: saved / saved without a limit, by size of the RAM', [f'{s:.0%}' for s in sizes]))


if __name__ == '__main__':
    main()
