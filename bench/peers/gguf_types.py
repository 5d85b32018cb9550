#!/usr/bin/env python3
"""GGUF types beside llama.cpp's llama-quantize and beside MLX's formats: sizes, types of tensors, weighted errors of the
fits, and mean KL to the float model on texts that nobody has seen, by `mixtape eval` in f32. All take the same importance
matrix.

usage: gguf_types.py MIXTAPE LLAMA_QUANTIZE TEXTS WORK OUT.csv MODEL [--steps N] [--tokens N] TYPE...
  MIXTAPE         the program
  LLAMA_QUANTIZE  llama.cpp's program
  TEXTS           folder of wikitext2_test.txt and tinyshakespeare.txt (report), moby_dick.txt and tiny_stories.txt
  WORK            folder for models; what is there already is used again
  OUT.csv         gets the rows of each TYPE that it doesn't have yet: q4_k_m; 4:64, bits and group of MLX's format; "gguf
                  4.5", "mlx 4.5": types or formats chosen for so many bits per weight
  MODEL           a model whose tokens the texts fit
  --steps N       of training, rows "calibrated"; 0: none (default)
  --tokens N      of each text that are evaluated (default 8192)
Needs gguf and numpy.
"""
import argparse
import csv
import json
import subprocess
import time
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from stored_bytes import stored

REPORT = {"wikitext2": "wikitext2_test.txt", "shakespeare": "tinyshakespeare.txt"}
COLUMNS = ["model", "type", "method", "bytes", "bits_per_weight", "other_types", "worst_error", "mean_error", "wikitext2_kl",
           "wikitext2_error", "shakespeare_kl", "shakespeare_error", "seconds"]
LENGTH = 256
NOT_IMPROVED = 3  # the program's status where plain rounding was as good


class Importance:
    """Mean squares of the inputs of each tensor, [E, K]."""

    def __init__(self, path):
        self.squares = {}
        tensors = {t.name: t for t in GGUFReader(path).tensors}
        for name, t in tensors.items():
            if not name.endswith(".in_sum2"):
                continue
            module = name[:-len(".in_sum2")]
            counts = tensors[module + ".counts"].data.astype(np.float64).reshape(-1, 1)
            sums = t.data.astype(np.float64).reshape(len(counts), -1)
            self.squares[module] = np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0)

    def error(self, name, difference):
        """Sum over a matrix [..., N, K] of h * d^2."""
        h = self.squares.get(name)
        d = difference.astype(np.float64) ** 2
        if h is None:
            return d.sum()
        return (d.reshape(len(h), -1, d.shape[-1]) * h[:, None, :]).sum()


def values(tensor):
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def output_options(kind):
    """Of quantize and calibrate, and the end of the output's name."""
    if " " in kind:
        form, budget = kind.split()
        return ["--bpw", budget], ".gguf" if form == "gguf" else ""
    if ":" in kind:
        bits, group = kind.split(":")
        return ["--bits", bits, "--group-size", group], ""
    return ["--type", kind], ".gguf"


class Bench:
    def __init__(self, o):
        self.o = o
        o.work.mkdir(parents=True, exist_ok=True)
        self.floats = self.made("f32.gguf", lambda out: self.ours("convert", "--floats", "f32", "-o", out))
        self.importance_file = o.work / "imatrix.gguf"
        if not self.importance_file.exists():
            self.calibrate(o.work / "by_the_way.gguf", "--type", "q8_0", "--recipe", "fast", "--fit", "least-squares",
                           "--save-imatrix", self.importance_file)
        self.importance = Importance(self.importance_file)
        tensors = GGUFReader(self.floats).tensors
        self.weights = sum(t.n_elements for t in tensors)
        self.originals = {t.name: values(t) for t in tensors if len(t.shape) > 1}

    def ours(self, command, *options):
        argv = [self.o.mixtape, command, "-m", self.o.model, *options]
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
        if done.returncode not in (0, NOT_IMPROVED):
            raise RuntimeError(f"{argv}: {done.stderr}")

    def calibrate(self, out, *options):
        texts = [w for t in ("moby_dick.txt", "tiny_stories.txt") for w in ("--text", self.o.texts / t)]
        self.ours("calibrate", "-o", out, *texts, "--length", LENGTH, "--rows", 128,
                  "--validation-rows", 8, "--report-rows", 8, "--batch", 4, *options)

    def made(self, name, make):
        out = self.o.work / name
        if not out.exists():
            make(out)
        return out

    def makers(self, kind):
        """By method."""
        options, end = output_options(kind)
        quantize = [self.o.llama_quantize, "--imatrix", self.importance_file, self.floats]
        makers = {
            "llama-quantize": lambda out: subprocess.run(
                [str(a) for a in [*quantize, out, kind.upper(), 2]], check=True, capture_output=True),
            "rounding": lambda out: self.ours("quantize", "-o", out, *options),
            "fit": lambda out: self.ours("quantize", "-o", out, *options, "--imatrix", self.importance_file),
            "fast": lambda out: self.calibrate(out, *options, "--recipe", "fast"),
        }
        if self.o.steps > 0:
            makers["calibrated"] = lambda out: self.calibrate(out, *options, "--steps", self.o.steps)
        wanted = ("fast", "calibrated") if " " in kind else ("rounding", "fit", "fast", "calibrated") if not end else (
            "llama-quantize", "fit", "fast", "calibrated")
        return {method: make for method, make in makers.items() if method in wanted}

    def kl(self, path):
        figures = {}
        for text, file in REPORT.items():
            report = self.o.work / "eval.json"
            report.unlink(missing_ok=True)
            subprocess.run([str(a) for a in [
                self.o.mixtape, "eval", "-m", path, "--teacher", self.floats, "--text", self.o.texts / file, "--length",
                LENGTH, "--max-tokens", self.o.tokens, "--dtype", "f32", "--json", report]], check=True,
                capture_output=True)
            found = json.loads(report.read_text())["result"]
            figures[text + "_kl"], figures[text + "_error"] = found["kl"]["mean"], found["kl"]["mean_error"]
        return figures

    def types_and_errors(self, path):
        """Of each tensor of a GGUF file."""
        tensors = {t.name: t for t in GGUFReader(path).tensors}
        return ({n: t.tensor_type for n, t in tensors.items()},
                {n: self.importance.error(n, values(tensors[n]) - w) for n, w in self.originals.items()})

    def beside_peer(self, path, peer):
        types, errors = self.types_and_errors(path)
        ratios = [errors[n] / peer[1][n] for n in errors if peer[1][n] > 0 and types[n] == peer[0][n]]
        return {"other_types": sum(types[n] != peer[0][n] for n in types), "worst_error": f"{max(ratios):.4f}",
                "mean_error": f"{np.mean(ratios):.4f}"}

    def rows(self, kind, done):
        """Of what is not done; what llama-quantize makes comes first, and is always there."""
        _, end = output_options(kind)
        peer = None
        for method, make in self.makers(kind).items():
            is_done = (self.o.model.name, kind, method) in done
            if is_done and method != "llama-quantize":
                continue
            start = time.time()
            path = self.made(f"{kind} {method}{end}", make)
            seconds = time.time() - start
            if method == "llama-quantize":
                peer = self.types_and_errors(path)
            if not is_done:
                yield self.row(kind, method, path, seconds, peer)

    def row(self, kind, method, path, seconds, peer):
        size = stored(path)
        return {"model": self.o.model.name, "type": kind, "method": method,
                "bytes": path.stat().st_size if path.is_file() else size,
                "bits_per_weight": f"{8 * size / self.weights:.3f}", "seconds": f"{seconds:.1f}",
                **(self.beside_peer(path, peer) if peer else {}), **self.kl(path)}


def arguments():
    p = argparse.ArgumentParser(usage=__doc__)
    for name in ("mixtape", "llama_quantize", "texts", "work", "out", "model"):
        p.add_argument(name, type=Path)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--tokens", type=int, default=8192)
    p.add_argument("types", nargs="+")
    return p.parse_args()


def main():
    o = arguments()
    done = set()
    if o.out.exists():
        lines = [line for line in o.out.read_text().splitlines() if not line.startswith("#")]
        done = {(r["model"], r["type"], r["method"]) for r in csv.DictReader(lines)}
    else:
        o.out.write_text(",".join(COLUMNS) + "\n")
    bench = Bench(o)
    for kind in o.types:
        for row in bench.rows(kind, done):
            with o.out.open("a") as out:
                csv.DictWriter(out, COLUMNS, lineterminator="\n").writerow(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
