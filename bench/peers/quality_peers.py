#!/usr/bin/env python3
"""Quality at equal bytes beside other programs: mean KL to the float model on texts that no program has seen, by
`mixtape eval` in f32, for mlx-lm's dwq, gptq, awq and dynamic_quant, AutoRound and `mixtape calibrate`.

usage: quality_peers.py MIXTAPE TEXTS WORK OUT.csv MODEL [FILTER]
  MIXTAPE   the program
  TEXTS     folder of wikitext2_test.txt and tinyshakespeare.txt (report), moby_dick.txt and tiny_stories.txt
  WORK      folder for models, rows and results; what is there already is used again
  OUT.csv   gets a row for each case that it doesn't have yet
  MODEL     stories260k, tiny-moe or a GGUF file of a llama
  FILTER    regular expression for "setting, method"
Needs mlx-lm, gguf, torch, safetensors and tokenizers; for AutoRound auto-round too. Everybody calibrates on the same
texts (quality_models.py), in rows of the length that is evaluated.
"""
import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from quality_models import Calibration, llama_from_gguf, mixture, stories
from stored_bytes import stored

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REPORT = {"wikitext2": "wikitext2_test.txt", "shakespeare": "tinyshakespeare.txt"}
COLUMNS = ["model", "setting", "method", "bits_per_weight", "bytes", "wikitext2_kl", "wikitext2_error", "shakespeare_kl",
           "shakespeare_error", "calibration_tokens", "seconds", "cpu_seconds", "peak_mib"]


class Ours:
    """`mixtape quantize` or `calibrate` with these options, a GGUF file where they name one of its types."""

    def __init__(self, method, command, *options):
        self.method, self.command, self.options = method, command, options
        self.end = ".gguf" if "--type" in options or "gguf" in options else ""

    def argv(self, bench, out):
        base = [bench.mixtape, self.command, "-m", bench.model, "-o", out, *self.options]
        if self.command == "quantize":
            return base
        texts = [word for file in bench.calibration.files for word in ("--text", file)]
        return base + texts + ["--length", bench.length, "--rows", bench.rows, "--validation-rows", bench.validation,
                               "--report-rows", 6]

    def tokens(self, bench):
        return 0 if self.command == "quantize" else bench.rows * bench.length


class Peer:
    """peer_quantizers.py with these options."""
    end = ""

    def __init__(self, method, name, **options):
        self.method, self.name, self.options = method, name, options

    def argv(self, bench, out):
        options = [f"{key}={value}" for key, value in self.options.items()]
        return [sys.executable, HERE / "peer_quantizers.py", self.name, bench.model, bench.calibration.rows_file, out,
                *options]

    def tokens(self, bench):
        return self.options.get("rows", bench.rows) * bench.length


def recipes(*options, names=("fast", "good")):
    return [Ours(f"mixtape {recipe}", "calibrate", "--recipe", recipe, *options) for recipe in names]


def uniform(bits, rates, batch, more):
    """Everything, embeddings too, in groups of 64."""
    size = ("--bits", bits, "--group-size", 64)
    cases = [Ours("MLX rounding", "quantize", *size)]
    cases += [Peer(f"mlx_lm.dwq, rate {rate}", "dwq", bits=bits, group=64, lr=rate, batch=batch, **more.get("dwq", {}))
              for rate in rates]
    if bits != 3:  # which mlx_lm.gptq can't pack
        cases.append(Peer("mlx_lm.gptq", "gptq", bits=bits, group=64, fallback_bits=bits, fallback_group=64))
    cases.append(Peer("mlx_lm.awq", "awq", bits=bits, group=64, embed_bits=bits, embed_group=64, **more.get("awq", {})))
    return cases + recipes(*size)


def embedding_apart(embedding, peers):
    """4 bits, and the embedding as a peer's defaults have it."""
    return peers + recipes("--bits", 4, "--group-size", 64, "--bits-for", f"lm_head={embedding}")


def with_float_embedding(bits, more):
    size = ("--bits", bits, "--group-size", 64, "--bits-for", "lm_head=float")
    peers = [Peer(f"AutoRound, {name}", "autoround", bits=bits, group=64, sym=sym, **more.get("autoround", {}))
             for name, sym in (("asymmetric", "no"), ("symmetric", "yes"))]
    return ([Ours("MLX rounding", "quantize", *size)] + peers + recipes(*size, names=("fast", "good", "best"))
            + [Ours("mixtape best, 2400 steps", "calibrate", "--recipe", "best", "--steps", 2400, *size)])


def mixed(bpw, low, high, bits, group, more):
    """mlx_lm.dynamic_quant at the bytes of a uniform copy."""
    return ([Peer(f"mlx_lm.dynamic_quant, {low} and {high} bits", "dynamic", bpw=bpw, low=low, high=high, group=64,
                  **more.get("dynamic", {}))] + recipes("--bits", bits, "--group-size", group)
            + [Ours(f"mixtape {recipe}, chosen bits", "calibrate", "--recipe", recipe, "--bpw", bpw)
               for recipe in ("fast", "good")])


def frontier():
    """What else lies between 2 and 8 bits per weight, in MLX's format and in GGUF's types."""
    settings = {}
    for bits, group in ((2, 64), (2, 32), (3, 32), (4, 32), (5, 64), (6, 64)):
        size = ("--bits", bits, "--group-size", group)
        settings[f"{bits} bits, group {group}"] = [Ours("MLX rounding", "quantize", *size)] + recipes(*size)
    for bpw in (2.75, 3.5, 5, 6):
        settings[f"chosen bits, {bpw} bits per weight"] = recipes("--bpw", bpw)
    for kind in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
        settings[f"GGUF {kind}"] = recipes("--type", kind)
    for bpw in (5, 6):
        settings[f"GGUF chosen types, {bpw} bits per weight"] = recipes("--format", "gguf", "--bpw", bpw)
    return settings


def cases(rates, batch, more):
    gptq = Peer("mlx_lm.gptq", "gptq", bits=4, group=64, fallback_bits=6, fallback_group=64)
    awq = Peer("mlx_lm.awq", "awq", bits=4, group=64, embed_bits=4, embed_group=32, **more.get("awq", {}))
    return {
        "4 bits": uniform(4, rates, batch, more),
        "3 bits": uniform(3, rates, batch, more),
        "4 bits, embedding 6 bits": embedding_apart("6:64", [gptq]),
        "4 bits, embedding group 32": embedding_apart("4:32", [awq]),
        "4 bits, embedding float": with_float_embedding(4, more),
        "3 bits, embedding float": with_float_embedding(3, more),
        "5 bits per weight": mixed(5.0, 4, 5, 4, 32, more),
        "4.5 bits per weight": mixed(4.5, 3, 5, 4, 64, more),
        "3.5 bits per weight": mixed(3.5, 2, 4, 3, 64, more),
        **frontier(),
    }


def measured(argv, log):
    """Wall seconds, seconds of all cores, peak resident MiB: by GNU time, whose child doesn't begin as a copy of this
    process."""
    costs = Path(f"{log}.time")
    with open(log, "w") as out:
        command = ["/usr/bin/time", "-o", costs, "-f", "%e %U %S %M", *argv]
        status = subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT).returncode
    if status != 0:
        raise RuntimeError(f"{log}: {Path(log).read_text()[-600:]}")
    wall, user, system, peak = map(float, costs.read_text().split())
    costs.unlink()
    return wall, user + system, peak / 1024


class Bench:
    def __init__(self, mixtape, texts, work, out, name):
        self.mixtape, self.texts, self.out = mixtape, Path(texts), Path(out)
        self.is_small = not name.endswith(".gguf")
        self.name = name if self.is_small else Path(name).name.split(".")[0]
        self.work = Path(work).resolve() / self.name
        self.model = self.work / "float"
        if not self.model.exists():
            self.make_model(name)
        self.length, self.rows, self.report_rows = (256, 400, 64) if self.is_small else (256, 32, 16)
        self.validation = 16 if self.is_small else 8
        self.calibration = Calibration(mixtape, self.model, self.texts, self.work,
                                       self.rows + 2 * self.validation + 8, self.length)
        self.parameters = stored(self.model) / 2

    def make_model(self, name):
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.is_small:
            llama_from_gguf(self.mixtape, name, self.model)
        elif name == "stories260k":
            stories(ROOT / "tests" / "data" / name, self.model)
        else:
            mixture(ROOT / "models" / name, self.model)

    def cases(self):
        if self.is_small:
            return cases(("1e-6", "1e-4", "3e-4"), 4, {"awq": {"rows": 32}, "dynamic": {"rows": 128}})
        return cases(("1e-6", "3e-5"), 1, {"dwq": {"rows": 16}, "awq": {"rows": 8},
                                           "autoround": {"iters": 50, "lr": 5e-3}})

    def kl(self, student, text):
        report = self.work / "eval.json"
        report.unlink(missing_ok=True)
        command = [self.mixtape, "eval", "-m", student, "--teacher", self.model, "--text", self.texts / REPORT[text],
                   "--length", self.length, "--max-tokens", self.length * self.report_rows, "--dtype", "f32", "--json",
                   report]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        kl = json.loads(report.read_text())["result"]["kl"]
        return [round(kl["mean"], 5), round(kl["mean_error"], 5)]

    def run(self, wanted):
        done = set()
        if self.out.exists():
            with open(self.out) as f:
                done = {(row["model"], row["setting"], row["method"])
                        for row in csv.DictReader(line for line in f if not line.startswith("#"))}
        for setting, methods in self.cases().items():
            for case in methods:
                if (self.name, setting, case.method) in done or not re.search(wanted, f"{setting}, {case.method}"):
                    continue
                try:
                    self.append(self.row(setting, case))
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    print(f"{self.name}, {setting}, {case.method}: {error}", flush=True)

    def row(self, setting, case):
        student = self.work / re.sub("[^A-Za-z0-9.]+", "-", f"{setting} {case.method}{case.end}")
        cost = student.with_name(student.name + ".cost.json")
        if not cost.exists():
            shutil.rmtree(student, ignore_errors=True)
            student.unlink(missing_ok=True)
            costs = measured(case.argv(self, student), student.with_name(student.name + ".log"))
            cost.write_text(json.dumps(costs))
        wall, cpu, peak = json.loads(cost.read_text())
        size = stored(student)
        values = [self.name, setting, case.method, round(8 * size / self.parameters, 3), size]
        for text in REPORT:
            values += self.kl(student, text)
        return values + [case.tokens(self), round(wall, 1), round(cpu, 1), round(peak)]

    def append(self, values):
        is_new = not self.out.exists()
        with open(self.out, "a", newline="") as f:
            writer = csv.writer(f, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow(values)
        print(*values, flush=True)


if __name__ == "__main__":
    Bench(*sys.argv[1:6]).run(sys.argv[6] if len(sys.argv) > 6 else "")
