#!/usr/bin/env python3
"""Draws a results file of bench/gpu_ops or bench/run.sh, ours and the peers': how many times as fast as the fastest peer each op is.

usage: plot.py RESULTS.csv OUT.svg [SHAPE]      SHAPE: a regular expression that a row's shape must match
"""
import csv
import re
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mixtape"})
import matplotlib.pyplot as plt


def main():
    source, target = sys.argv[1:3]
    wanted = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
    with open(source) as lines:
        title = next(lines).lstrip("# ").strip()
        rows = [row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if wanted.search(row["shape"])]
    ours, best = {}, {}
    for row in rows:
        key, us = (row["op"], row["dtype"], row["shape"]), float(row["us"])
        if row["impl"] == "mixtape":
            ours[key] = us
        elif row["impl"] != "registers alone":
            best[key] = min(best.get(key, us), us)
    bars = sorted(((best[k] / ours[k], " ".join(k)) for k in ours if k in best))
    figure, axes = plt.subplots(figsize=(9, 0.26 * len(bars) + 1.2))
    axes.barh([name for _, name in bars], [ratio for ratio, _ in bars], color=["#3b6ea5" if r >= 1 else "#b5533c" for r, _ in bars])
    for i, (ratio, _) in enumerate(bars):
        axes.text(ratio, i, f" {ratio:.2f}", va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("times as fast as the fastest peer in the same run")
    axes.set_title(title, fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.005)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
