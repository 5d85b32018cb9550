#!/usr/bin/env python3
"""flash-linear-attention's gated delta rule (Triton) at the shape of bench/gpu_ops on one NVIDIA card.

usage: delta_rule.py OUT.csv     rows: op,dtype,shape,impl,us

Needs torch, triton and flash-linear-attention. Prints the peak memory of a step beyond inputs and gradients too.
"""
import sys

import fla.ops.common.chunk_o
import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

from gpu_ops import BF16, F32, NAMES, measure, randn, write_rows

# It refuses compilers whose gradients are wrong on Hopper; their time is what is wanted here.
fla.ops.common.chunk_o.TRITON_ABOVE_3_7_1 = True

SHAPE = (4, 4096, 16, 128)


def inputs(dtype, wants_gradient):
    unit = SHAPE[-1] ** -0.5
    tensors = [unit * randn(*SHAPE, dtype=dtype), unit * randn(*SHAPE, dtype=dtype), randn(*SHAPE, dtype=dtype),
               torch.zeros(SHAPE[:3], device="cuda"), torch.full(SHAPE[:3], 0.5, device="cuda")]
    return [t.requires_grad_(wants_gradient) for t in tensors]


def forward(q, k, v, g, beta):
    return chunk_gated_delta_rule(q, k, v, g, beta, scale=SHAPE[-1] ** -0.5)[0]


def both(dy, *tensors):
    return torch.autograd.grad(forward(*tensors), tensors, dy)


def peak_mb(dtype):
    dy, tensors = randn(*SHAPE, dtype=dtype), inputs(dtype, True)
    kept = both(dy, *tensors)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()  # with one set of gradients
    del kept
    torch.cuda.reset_peak_memory_stats()
    kept = both(dy, *tensors)
    torch.cuda.synchronize()
    del kept
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def main():
    shape = "x".join(map(str, SHAPE))
    for dtype in (BF16, F32):
        measure("gated_delta_rule_forward", dtype, shape, {"fla": forward}, lambda: inputs(dtype, False), 5e8)
        measure("gated_delta_rule_both", dtype, shape, {"fla": both}, lambda: [randn(*SHAPE, dtype=dtype), *inputs(dtype, True)], 5e8)
        try:
            print("gated_delta_rule_both", NAMES[dtype], f"peak beyond inputs and gradients {peak_mb(dtype):.0f} MB", flush=True)
        except Exception as error:
            print("gated_delta_rule_both", NAMES[dtype], "failed:", repr(error)[:200])
    write_rows(sys.argv[1])


if __name__ == "__main__":
    main()
