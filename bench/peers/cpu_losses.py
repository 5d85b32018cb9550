#!/usr/bin/env python3
"""PyTorch on the CPU at the shapes of the benches of embedding, take_along_axis, top_k, moe_route, cross_entropy,
kl_div, quantize and adam. Prints op, dtype, best and median milliseconds.

usage: OMP_NUM_THREADS=N MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_MAX_=0 cpu_losses.py [FILTER]

The two settings let the allocator keep memory that was touched before; otherwise the peer mostly measures page faults.
"""
import sys
import time

import torch
import torch.nn.functional as F

FILTER = sys.argv[1] if len(sys.argv) > 1 else ""
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
ROUTER, VOCAB, TEMPERATURE = (131072, 128, 8), (512, 151936), 2.0


def measure(op, make, dtypes=("f32", "bf16")):
    """make(dtype) gives the call to time; it is only built where the filter wants it."""
    for name in dtypes:
        if FILTER not in f"{op} {name}":
            continue
        call, times = make(DTYPES[name]), []
        call()
        end = time.perf_counter() + 0.5
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        times.sort()
        print(f"{op} {name} {times[0]:.3f} {times[len(times) // 2]:.3f}", flush=True)


def embedding_backward(t):
    ids, dy = torch.randint(0, 151936, (65536,)), torch.randn(65536, 2048).to(t)
    return lambda: torch.ops.aten.embedding_dense_backward(dy, ids, 151936, -1, False)


def take_forward(t):
    rows, cols, k = ROUTER
    x, index, y = torch.randn(rows, cols).to(t), torch.randint(0, cols, (rows, k)), torch.empty(rows, k, dtype=t)
    return lambda: torch.gather(x, 1, index, out=y)


def take_backward(t):
    rows, cols, k = ROUTER
    index, dy, dx = torch.randint(0, cols, (rows, k)), torch.randn(rows, k).to(t), torch.empty(rows, cols, dtype=t)
    return lambda: dx.zero_().scatter_add_(1, index, dy)


def top_k(t):
    x = torch.randn(ROUTER[:2]).to(t)
    return lambda: torch.topk(x, ROUTER[2], -1)


def route(t):
    x = torch.randn(ROUTER[:2]).to(t)

    def call():
        p = F.softmax(x, -1)
        weights = torch.gather(p, 1, torch.topk(p, ROUTER[2], -1).indices)
        return weights / weights.sum(-1, keepdim=True)
    return call


def cross_entropy(t):
    x, targets = torch.randn(VOCAB).to(t).requires_grad_(), torch.randint(0, VOCAB[1], VOCAB[:1])

    def call():
        x.grad = None
        F.cross_entropy(x, targets, reduction="sum").backward()
    return call


def kl_div(is_log):
    def make(t):
        student, teacher = torch.randn(VOCAB).to(t).requires_grad_(), torch.randn(VOCAB).to(t)
        target = F.log_softmax if is_log else F.softmax

        def call():
            student.grad = None
            q, p = F.log_softmax(student / TEMPERATURE, -1), target(teacher / TEMPERATURE, -1)
            F.kl_div(q, p, log_target=is_log, reduction="sum").backward()
        return call
    return make


def dequantize(t):
    codes = torch.randint(0, 256, (4096, 64, 32), dtype=torch.uint8)
    scales, biases = torch.randn(4096, 64, 1).to(t), torch.randn(4096, 64, 1).to(t)
    out = torch.empty(4096, 64, 32, 2, dtype=t)

    def call():
        out[..., 0], out[..., 1] = codes & 15, codes >> 4
        out.view(4096, 64, 64).mul_(scales).add_(biases)
    return call


def adam(foreach):
    def make(t):
        parameters = [torch.randn(1000000).to(t) for _ in range(50)]
        for p in parameters:
            p.grad = torch.randn_like(p)
        return torch.optim.AdamW(parameters, lr=1e-3, foreach=foreach).step
    return make


measure("embedding_backward_151936x2048_of_65536", embedding_backward)
measure("take_along_axis_forward_131072x128_k8", take_forward)
measure("take_along_axis_backward_131072x128_k8", take_backward)
measure("top_k_131072x128_k8", top_k)
measure("route_131072x128_k8", route)
measure("cross_entropy_forward_backward_512x151936", cross_entropy)
measure("kl_div_forward_backward_512x151936", kl_div(False))
measure("kl_div_log_target_forward_backward_512x151936", kl_div(True))
measure("dequantize_4bit_4096x4096", dequantize)
measure("adamw_50x1M", adam(False), ("f32",))
measure("adamw_foreach_50x1M", adam(True), ("f32",))
