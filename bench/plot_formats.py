#!/usr/bin/env python3
"""Draws KL over bits per weight of formats and methods, a panel for each model.

usage: plot_formats.py RESULTS OUT.svg      RESULTS: the folder of quality_formats.csv and quality_peers.csv
"""
import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mixtape"})
import matplotlib.pyplot as plt

# Name in the legend -> colour, marker, line.
STYLES = {
    "MLX formats: plain rounding": ("#9a9a9a", "s", ":"),
    "MLX formats: fast": ("#7fb3d5", "o", "--"),
    "MLX formats: good": ("#1f5f99", "o", "-"),
    "MLX formats: good, chosen by matrix": ("#1f5f99", "*", "None"),
    "GGUF types: llama-quantize with imatrix": ("#c9a227", "s", ":"),
    "GGUF types: good": ("#b5533c", "D", "-"),
    "GGUF types: best": ("#7a2e1d", "D", "None"),
    "GGUF types: good, chosen by matrix": ("#b5533c", "*", "None"),
    "other programs": ("#4c9a4c", "x", "None"),
}


def rows_of(path):
    with open(path) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def mean_kl(row):
    return (float(row["wikitext2_kl"]) + float(row["shakespeare_kl"])) / 2


def series_of_format(row):
    form = "MLX formats" if row["form"] == "mlx" else "GGUF types"
    if row["setting"].startswith("chosen"):
        return f"{form}: good, chosen by matrix"
    method = {"rounding": "plain rounding", "llama-quantize": "llama-quantize with imatrix"}.get(row["method"], row["method"])
    return f"{form}: {method}"


def series_of_peer(row):
    method, setting = row["method"], row["setting"]
    if "MLX rounding" in method:
        return "MLX formats: plain rounding"
    if not method.startswith("mixtape"):
        return "other programs"
    form = "GGUF types" if setting.startswith("GGUF") else "MLX formats"
    if "chosen" in method or "chosen" in setting:
        return f"{form}: good, chosen by matrix" if "good" in method else ""
    return f"{form}: {method.removeprefix('mixtape ').split(',')[0]}"


def panels(results):
    """Model -> series -> points."""
    found = {}
    for row in rows_of(results / "quality_formats.csv"):
        found.setdefault(row["model"], []).append((series_of_format(row), row))
    for row in rows_of(results / "quality_peers.csv"):
        plain = "embedding" not in row["setting"]  # formats that leave it in float lie apart
        if row["model"] == "stories260k" and plain:
            found.setdefault(row["model"], []).append((series_of_peer(row), row))
    return found


def draw(axes, model, points):
    for name, (colour, marker, line) in STYLES.items():
        own = sorted({(float(r["bits_per_weight"]), mean_kl(r)) for series, r in points if series == name})
        if own:
            axes.plot(*zip(*own), color=colour, marker=marker, linestyle=line, markersize=9 if marker == "*" else 5,
                      linewidth=1.2, label=name)
    axes.set_yscale("log")
    axes.set_title(model, fontsize=10)
    axes.set_xlabel("bits per weight of the whole model")
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)


def main():
    results, target = Path(sys.argv[1]), sys.argv[2]
    found = panels(results)
    figure, all_axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 5.2))
    for axes, (model, points) in zip(all_axes, found.items()):
        draw(axes, model, points)
    all_axes[0].set_ylabel("KL to the model, mean of two unseen texts")
    handles = {label: h for axes in all_axes for h, label in zip(*axes.get_legend_handles_labels())}
    ordered = [name for name in STYLES if name in handles]
    figure.legend([handles[n] for n in ordered], ordered, loc="lower center", ncols=3, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
