#!/usr/bin/env python3
"""Every model type, small and random: what mixtape reads and writes, beside transformers, mlx-lm and llama.cpp.

usage: models.py MIXTAPE PARITY_TEST LLAMA WORK OUT.csv [FILTER]
  MIXTAPE      the program
  PARITY_TEST  the test that holds it against transformers' figures in tests/data/parity
  LLAMA        folder of llama-perplexity, or - to leave llama.cpp out
  WORK         folder for models and files
  OUT.csv      gets a row for each type
  FILTER       regular expression for the types; the others are left out
Needs torch, transformers, mlx-lm, safetensors and numpy. Columns:
  logits, gradient   largest distance from transformers, as a share of the largest; the worst of all tensors' gradients
  loss               the same, absolute
  HF in              those three are within their bounds
  mlx_lm             of a directory of 8 bits, mlx-lm's log-probabilities beside mixtape's: the largest difference, as a
                     share of the largest
  llama_cpp          the same of llama.cpp on a file in F32
  MLX in, MLX out    mixtape reads the directory, mlx-lm too, and they agree
  GGUF in, GGUF out  mixtape reads the file and finds the model that was written; llama.cpp agrees; -: not written
  kl_rounded, kl_dwq mean KL to the model, at 3 bits in groups of 32, of plain rounding and after 60 steps of DWQ
  cut                the share of it that DWQ takes away
"""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from llama_files import log_probability_distance, read_base
from llama_models import GIVE_TOKENIZER, ROOT

PARITY = ROOT / "tests" / "data" / "parity"
COLUMNS = ["type", "HF in", "MLX in", "GGUF in", "MLX out", "GGUF out", "logits", "loss", "gradient", "mlx_lm", "llama_cpp",
           "kl_rounded", "kl_dwq", "cut"]
BOUNDS = {"logits": 1e-4, "loss": 1e-5, "gradient": 1e-3}  # the test's
PEER_BOUND = 1e-3  # a file of log-probabilities has steps of 1/4000
PRE_TOKENIZERS = {"qwen2": "qwen2", "qwen3": "qwen2", "qwen3_moe": "qwen2", "qwen3_next": "qwen2", "qwen3_5_text": "qwen2",
                  "smollm3": "llama-bpe"}
# What llama.cpp has no setting for. It and mlx-lm have whole pairs between yarn's bounds.
CHANGES = {"gpt_oss": {"rope_parameters": {"factor": 4.0, "original_max_position_embeddings": 48, "rope_theta": 150000.0,
                                           "rope_type": "yarn", "truncate": True}},
           "gemma3_text": {"query_pre_attn_scalar": 24}, "phi3": {"sliding_window": None},
           "qwen3_moe": {"mlp_only_layers": [], "norm_topk_prob": True},
           "qwen3_next": {"linear_value_head_dim": 16},
           "qwen3_5_text": {"linear_value_head_dim": 16, "linear_num_key_heads": 4}}
LENGTH = 64
EXACT = ["-fa", "off", "-ctk", "f32", "-ctv", "f32", "-t", "1"]
STEPS = 60


def model_types():
    """How each is called in the GGUF files that are written, - where none is, by type."""
    return dict(re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| ([^|]*) \|", (ROOT / "docs" / "models.md").read_text(), re.M))


def make_model(name, out):
    """A random model with the type's parity config and a tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM
    bare = out.with_name(out.name + "_bare")
    for folder in (bare, out):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PARITY / name, bare)
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps({**config, **CHANGES.get(name, {})}))
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(bare)).float()
    with torch.no_grad():
        for path, p in model.named_parameters():
            if p.dim() == 1:
                p.add_((0.3 if "norm" in path else 0.2) * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * p.shape[-1] ** -0.5)
    model.save_pretrained(bare)
    subprocess.run([sys.executable, GIVE_TOKENIZER, bare, out, PRE_TOKENIZERS.get(name, "gpt-2")], check=True)


def parity_figures(parity_test, work):
    """Distances from transformers by folder of tests/data/parity."""
    report = work / "parity.json"
    subprocess.run([str(parity_test), "--gtest_filter=*Parity.*", f"--gtest_output=json:{report}"], cwd=ROOT,
                   env={**os.environ, "MIXTAPE_TEST_DEVICES": "cpu"}, check=True, stdout=subprocess.DEVNULL)
    figures = {}
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if "gradient" in test:
                name = re.search(r'"(\w+)", "cpu"', test["value_param"])[1]
                figures[name] = {key: float(test[key]) for key in BOUNDS}
    return figures


def mlx_base(directory, base):
    """What `base` holds, by mlx-lm."""
    import mlx.core as mx
    from mlx_lm.utils import load_model
    model, _ = load_model(directory)
    tokens, mine, known = base
    first, count = LENGTH // 2, LENGTH - 1 - LENGTH // 2
    logits = np.array(model(mx.array(tokens)).astype(mx.float32))[:, first:first + count].astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    found = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return tokens, found.reshape(mine.shape), np.ones_like(known)


class Bench:
    def __init__(self, mixtape, parity_test, llama, work, out, wanted=""):
        self.mixtape, self.work, self.out, self.wanted = Path(mixtape).resolve(), Path(work).resolve(), Path(out), wanted
        self.llama = None if llama == "-" else Path(llama).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.types = model_types()
        self.text = self.work / "text.txt"
        self.text.write_text("".join(f"Once upon a time there was a cat number {i} who liked to play.\n" for i in range(400)))
        self.figures = parity_figures(Path(parity_test).resolve(), self.work)

    def ours(self, *argv):
        result = subprocess.run([str(word) for word in (self.mixtape, *argv)], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL)
        if result.returncode not in (0, 3):  # 3: calibration was no gain
            raise RuntimeError(f"mixtape {argv}: {result.stderr[-500:]}")

    def base(self, model):
        path = self.work / "base"
        path.unlink(missing_ok=True)
        self.ours("eval", "-m", model, "--text", self.text, "--length", LENGTH, "--max-tokens", 8 * LENGTH, "--dtype", "f32",
                  "--save-base", path)
        return read_base(path)

    def their_base(self, file):
        path, text = self.work / "their_base", self.work / "part.txt"
        path.unlink(missing_ok=True)
        text.write_text(self.text.read_text()[:4000])
        subprocess.run([self.llama / "llama-perplexity", "-m", file, "-f", text, "-c", str(LENGTH), "-b", "256",
                        "--kl-divergence-base", path, *EXACT], check=True, capture_output=True, stdin=subprocess.DEVNULL,
                       env={key: value for key, value in os.environ.items() if not key.startswith("OMP_")})
        return read_base(path)

    def mlx(self, model):
        directory = self.work / "mlx"
        shutil.rmtree(directory, ignore_errors=True)
        self.ours("quantize", "-m", model, "-o", directory, "--bits", 8, "--group-size", 32)
        base = self.base(directory)
        off = log_probability_distance(base, mlx_base(directory, base), len(base[1]))
        agrees = "yes" if off <= PEER_BOUND else "no"
        return {"mlx_lm": off, "MLX in": agrees, "MLX out": agrees}

    def gguf(self, name, model):
        if self.llama is None or self.types[name] == "-":
            return {"llama_cpp": "-", "GGUF in": "-", "GGUF out": "-"}
        file, count = self.work / "model.gguf", LENGTH - 1 - LENGTH // 2
        file.unlink(missing_ok=True)
        self.ours("convert", "-m", model, "-o", file, "--floats", "f32")
        mine, read, theirs = self.base(model), self.base(file), self.their_base(file)
        # The first window of both is the same; later ones begin at other places where BOS goes before a text.
        assert (mine[0][0] == theirs[0][0]).all(), f"{name}: tokens differ"
        off = log_probability_distance(mine, theirs, count)
        same = log_probability_distance(mine, read, len(mine[1]))
        return {"llama_cpp": off, "GGUF out": "yes" if off <= PEER_BOUND else "no",
                "GGUF in": "yes" if same <= PEER_BOUND else "no"}

    def dwq(self, model):
        directory, report = self.work / "dwq", self.work / "report.json"
        shutil.rmtree(directory, ignore_errors=True)
        report.unlink(missing_ok=True)
        self.ours("calibrate", "-m", model, "-o", directory, "--bits", 3, "--group-size", 32, "--text", self.text, "--length",
                  LENGTH, "--recipe", "good", "--steps", STEPS, "--validation-rows", 8, "--report-rows", 8, "--json", report)
        figures = json.loads(report.read_text())
        return {"kl_rounded": float(f"{figures['initial']['kl']['mean']:.4g}"),
                "kl_dwq": float(f"{figures['result']['kl']['mean']:.4g}"),
                "cut": f"{figures['kl_cut']['value']:.3f}"}

    def row(self, name):
        # llama.cpp looks for a published model's tokens where a file's name is that model's.
        parity, model = self.figures[name], self.work / "original"
        make_model(name, model)
        holds = all(parity[key] <= bound for key, bound in BOUNDS.items())
        return {"type": name, "HF in": "yes" if holds else "no", **parity, **self.mlx(model), **self.gguf(name, model),
                **self.dwq(model)}

    def run(self):
        with open(self.out, "w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for name in self.types:
                if re.search(self.wanted, name):
                    row = self.row(name)
                    writer.writerow(row)
                    f.flush()
                    print(*row.values(), flush=True)


if __name__ == "__main__":
    Bench(*sys.argv[1:]).run()
