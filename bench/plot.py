#!/usr/bin/env python3
"""Draws a results file of bench/gpu_ops and its peers: how many times as fast as the fastest peer each op is.

usage: plot.py RESULTS.csv OUT.svg
"""
import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt


def main():
    source, target = sys.argv[1:3]
    with open(source) as lines:
        title = next(lines).lstrip("# ").strip()
        rows = list(csv.DictReader(lines))
    ours, best = {}, {}
    for row in rows:
        key, us = (row["op"], row["dtype"], row["shape"]), float(row["us"])
        if row["impl"] == "mixtape":
            ours[key] = us
        else:
            best[key] = min(best.get(key, us), us)
    bars = sorted(((best[k] / ours[k], " ".join(k)) for k in ours if k in best))
    figure, axes = plt.subplots(figsize=(9, 0.26 * len(bars) + 1.2))
    axes.barh([name for _, name in bars], [ratio for ratio, _ in bars], color=["#3b6ea5" if r >= 1 else "#b5533c" for r, _ in bars])
    for i, (ratio, _) in enumerate(bars):
        axes.text(ratio, i, f" {ratio:.2f}", va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("times as fast as the fastest PyTorch variant in the same run")
    axes.set_title(title, fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
