#!/usr/bin/env python3
"""Quantizes MODEL by another program's method, by that program's own functions in the order of its own command, on
rows of token ids from a file instead of its data set from the network.

usage: peer_quantizers.py METHOD MODEL ROWS.json OUT key=value ...
  dwq        mlx_lm.dwq: bits group lr batch; the last 32 rows validate
  gptq       mlx_lm.gptq: bits group fallback_bits fallback_group
  awq        mlx_lm.awq: bits group embed_bits embed_group grid
  dynamic    mlx_lm.dynamic_quant: bpw low high group
  autoround  auto-round, written in MLX's format: bits group iters lr batch sym
  rows=N     only the first rows
Of mlx-lm, models are computed in f32, which its CPU kernels are faster at, and written in the model's dtype.
"""
import json
import sys
from pathlib import Path

VALIDATION_ROWS, SEED = 32, 123  # mlx_lm.dwq's


def read_rows(file, options):
    rows = json.load(open(file))
    return rows[:int(options.get("rows", len(rows)))]


class Mlx:
    def __init__(self, path):
        import mlx.core as mx
        from mlx_lm.utils import load
        mx.random.seed(SEED)
        self.mx, self.path = mx, path
        self.model, self.tokenizer, self.config = load(path, return_config=True)
        self.dtype = self.model.model.embed_tokens.weight.dtype

    def save(self, model, out):
        from mlx_lm.utils import save
        model.set_dtype(self.dtype)
        save(out, self.path, model, self.tokenizer, self.config)


def dwq(path, rows, out, o):
    import copy
    import mlx.optimizers
    import numpy as np
    from mlx_lm.quant.dwq import dwq_quantize
    from mlx_lm.utils import quantize_model
    np.random.seed(SEED)
    m = Mlx(path)
    student = copy.deepcopy(m.model)
    _, m.config = quantize_model(student, m.config, group_size=int(o["group"]), bits=int(o["bits"]))
    for model in (m.model, student):
        model.set_dtype(m.mx.float32)
    data = [(row, 0) for row in rows]
    validation = min(VALIDATION_ROWS, len(data) // 4)
    dwq_quantize(student, lambda batch, index, split: m.model(batch),
                 mlx.optimizers.Adam(learning_rate=float(o["lr"]), bias_correction=True), data[:-validation],
                 data[-validation:], batch_size=int(o["batch"]), max_seq_length=len(rows[0]), seed=SEED,
                 dtype=m.mx.float32)
    m.save(student, out)


def gptq(path, rows, out, o):
    from mlx_lm.quant.gptq import gptq_quantize
    m = Mlx(path)
    m.model.set_dtype(m.mx.float32)
    m.model, m.config["quantization"] = gptq_quantize(m.model, m.mx.array(rows), int(o["bits"]), int(o["group"]),
                                                      int(o["fallback_bits"]), int(o["fallback_group"]))
    m.save(m.model, out)


def awq(path, rows, out, o):
    from mlx_lm.quant.awq import AWQ_MODEL_CONFIGS, awq_quantize, update_config
    m = Mlx(path)
    m.model.set_dtype(m.mx.float32)
    awq_quantize(m.model, m.mx.array(rows), AWQ_MODEL_CONFIGS[m.config["model_type"]], bits=int(o["bits"]),
                 group_size=int(o["group"]), embed_bits=int(o["embed_bits"]), embed_group_size=int(o["embed_group"]),
                 n_grid=int(o.get("grid", 20)))
    m.config = update_config(m.model, m.config)
    m.save(m.model, out)


def dynamic(path, rows, out, o):
    from mlx_lm.quant.dynamic_quant import estimate_sensitivities, estimate_threshold
    from mlx_lm.utils import quantize_model
    m = Mlx(path)
    low, high, group = (int(o[key]) for key in ("low", "high", "group"))
    m.model.set_dtype(m.mx.float32)
    sensitivities = dict(estimate_sensitivities(m.model, m.mx.array(rows), low, group, high, group))
    m.model.set_dtype(m.dtype)
    threshold = estimate_threshold(m.model, sensitivities, target_bpw=float(o["bpw"]), low_bits=low,
                                   low_group_size=group, high_bits=high, high_group_size=group)

    def predicate(name, module):
        if not hasattr(module, "to_quantized"):
            return False
        return {"bits": high, "group_size": group} if sensitivities[name] > threshold else True

    m.model, m.config = quantize_model(m.model, m.config, group_size=group, bits=low, quant_predicate=predicate)
    m.save(m.model, out)


def autoround(path, rows, out, o):
    import torch
    from auto_round import AutoRound
    iters = int(o.get("iters", 200))
    more = {"lr": float(o["lr"])} if "lr" in o else {}
    rounder = AutoRound(path, scheme=f"W{o['bits']}A16", group_size=int(o["group"]), sym=o.get("sym") == "yes",
                        iters=iters, dataset=[torch.tensor([row]) for row in rows], nsamples=len(rows),
                        seqlen=len(rows[0]), batch_size=int(o.get("batch", 8)), device_map="cpu",
                        enable_torch_compile=False, **more)
    whole = Path(out + ".parts")
    rounder.quantize_and_save(str(whole), format="mlx")  # makes a folder of its own inside
    next(whole.iterdir()).rename(out)
    whole.rmdir()
    stack_experts(Path(out))


def stack_experts(directory):
    """One tensor for the experts of a layer, as mlx-lm reads them: auto-round writes one for each expert."""
    import re
    import torch
    from safetensors.torch import load_file, save_file
    expert = re.compile(r"(.*)\.experts\.(\d+)\.(.*)")
    tensors, experts = {}, {}
    for name, t in load_file(directory / "model.safetensors").items():
        found = expert.match(name)
        if found:
            experts.setdefault(f"{found[1]}.switch_mlp.{found[3]}", {})[int(found[2])] = t
        else:
            tensors[name] = t
    if not experts:
        return
    for name, parts in experts.items():
        tensors[name] = torch.stack([parts[i] for i in range(len(parts))])
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    for key in ("quantization", "quantization_config"):
        config[key] = {expert.sub(r"\1.switch_mlp.\3", name): value for name, value in config[key].items()}
    (directory / "config.json").write_text(json.dumps(config, indent=1))


def main():
    method, path, rows, out = sys.argv[1:5]
    options = dict(argument.split("=", 1) for argument in sys.argv[5:])
    methods = {f.__name__: f for f in (dwq, gptq, awq, dynamic, autoround)}
    methods[method](path, read_rows(rows, options), out, options)


if __name__ == "__main__":
    main()
