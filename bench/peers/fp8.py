#!/usr/bin/env python3
"""How far products in FP8 (e4m3, simulated) move a model's predictions. bench/results/fp8.md has what was found.

usage: fp8.py MODEL STUDENT ROWS LENGTH TEXT...

MODEL and STUDENT are directories with float weights (mixtape convert --dequantize). Operands are scaled to e4m3's range,
weights by output row or by tensor, inputs by token or by tensor, rounded, multiplied in f32; a router's products stay as
they are. Prints mean KL, nats per token, and its standard error over the rows.
"""
import math
import sys

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

plain_linear = F.linear
scaled_weights = {}
now = None  # (weights by "row" or "tensor", inputs so, head too)
vocab = experts = 0


def rounded(x, by):
    x = x.float()
    peak = x.abs().amax(-1, keepdim=True) if by == "row" else x.abs().max()
    scale = (peak / 448).clamp(min=1e-30)
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def linear(x, w, bias=None):
    if now is None or w.shape[0] == experts or (w.shape[0] == vocab and not now[2]):
        return plain_linear(x, w, bias)
    key = (w.data_ptr(), w.shape, now[0])
    if key not in scaled_weights:
        scaled_weights[key] = rounded(w, now[0])
    y = plain_linear(rounded(x, now[1]), scaled_weights[key]).to(x.dtype)
    return y if bias is None else y + bias


def load(path, dtype):
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype, experts_implementation="eager").eval()


@torch.no_grad()
def log_probabilities(model, row, setting=None):
    global now
    now = setting
    return F.log_softmax(model(row[None]).logits[0].float(), -1)


def kl(p, q):
    return (p.exp() * (p - q)).sum(-1).mean().item()


def rows_of(tokenizer, files, rows, length):
    """As many of each file, spread over it."""
    found = []
    for file in files:
        text, count = open(file, encoding="utf-8").read(), rows // len(files)
        for i in range(count):
            begin = i * (len(text) // count)
            found.append(tokenizer(text[begin:begin + 8 * length], add_special_tokens=False)["input_ids"][:length])
    return torch.tensor(found)


def main():
    global vocab, experts
    path, student_path, rows, length, *files = sys.argv[1:]
    F.linear = linear
    full, half, student = load(path, torch.float32), load(path, torch.bfloat16), load(student_path, torch.bfloat16)
    vocab = full.config.vocab_size
    experts = getattr(full.config, "num_local_experts", None) or getattr(full.config, "num_experts", None) or 0
    settings = [(w, x, False) for w in ("row", "tensor") for x in ("row", "tensor")]
    settings += [(w, w, True) for w in ("row", "tensor")]
    found = {}
    for row in rows_of(AutoTokenizer.from_pretrained(path), files, int(rows), int(length)):
        p, q, s = (log_probabilities(model, row) for model in (full, half, student))
        values = {"f32 || bf16": kl(p, q), "f32 || student": kl(p, s)}
        for setting in settings:
            name = "FP8 weights by {}, inputs by {}, head {}".format(*setting)
            values["f32 || " + name] = kl(p, log_probabilities(half, row, setting))
            values["f32 || student, " + name] = kl(p, log_probabilities(student, row, setting))
        values["FP8 || student"] = kl(log_probabilities(half, row, settings[0]), s)
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    for name, values in found.items():
        error = torch.tensor(values).std() / math.sqrt(len(values))
        print(f"{name:66} {sum(values) / len(values):.5f} +- {error:.5f}")


main()
