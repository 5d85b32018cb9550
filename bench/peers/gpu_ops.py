#!/usr/bin/env python3
"""PyTorch peers of bench/gpu_ops on one NVIDIA card: eager, torch.compile, and where there is one, the fused call.

usage: gpu_ops.py OUT.csv [PART...]     rows: op,dtype,shape,impl,us; PART: pointwise softmaxes losses embeddings
                                        routing norms quantized adam steps attentions; all of them if none is named

Time per call by events over several input sets whose inputs and outputs together exceed the L2 cache; the stream is
filled behind a spin kernel so that launch cost is not counted; the median of the passes.
"""
import csv
import sys

import torch
import torch.nn.functional as F

aten = torch.ops.aten
F32, BF16 = torch.float32, torch.bfloat16
NAMES = {F32: "f32", BF16: "bf16"}
rows = []


def time_us(fn, sets, passes=9):
    for s in sets[:2]:
        fn(*s)
    torch.cuda.synchronize()
    found = []
    for _ in range(passes):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(3_000_000)
        begin.record()
        kept = [fn(*s) for s in sets]
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / len(sets))
        del kept
    return sorted(found)[len(found) // 2]


def measure(op, dtype, shape, impls, make, bytes_per_set):
    count = max(2, min(8, int(512e6 // bytes_per_set) + 1))
    for impl, fn in impls.items():
        try:
            sets = [make() for _ in range(count)]
            us = time_us(fn, sets)
            rows.append([op, NAMES[dtype], shape, impl, f"{us:.1f}"])
            print(*rows[-1], flush=True)
        except Exception as error:  # a peer that cannot run is a row without a time
            print(op, shape, impl, "failed:", repr(error)[:200], flush=True)
        finally:
            sets = None
            torch.cuda.empty_cache()


def both(fn):
    return {"eager": fn, "compile": torch.compile(fn)}


def randn(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def gradient_of(loss):
    def step(x, y):
        value = loss(x, y)
        return value.detach(), torch.autograd.grad(value, x)[0]
    return step


def pointwise():
    n = 2**27
    for dtype in (F32, BF16):
        size = n * dtype.itemsize
        measure("silu_forward", dtype, f"{n}", {"eager": F.silu}, lambda: (randn(n, dtype=dtype),), 2 * size)
        measure("silu_mul_forward", dtype, f"{n}", both(lambda a, b: F.silu(a) * b),
                lambda: (randn(n, dtype=dtype), randn(n, dtype=dtype)), 3 * size)


def softmaxes():
    for dtype in (F32, BF16):
        for r, c in ((8192, 4096), (4096, 32768), (2048, 151936)):
            size, shape = r * c * dtype.itemsize, f"{r}x{c}"
            measure("softmax_forward", dtype, shape, both(lambda x: torch.softmax(x, -1)), lambda: (randn(r, c, dtype=dtype),), 2 * size)
            measure("softmax_backward", dtype, shape, both(lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype)),
                    lambda: (randn(r, c, dtype=dtype), torch.softmax(randn(r, c, dtype=dtype), -1)), 3 * size)


def losses():
    r, c = 2048, 151936
    kl = lambda s, t: 4.0 * F.kl_div(F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1), log_target=True, reduction="batchmean")
    for dtype in (F32, BF16):
        size = r * c * dtype.itemsize
        leaf = lambda scale: (scale * randn(r, c, dtype=dtype)).requires_grad_(True)
        measure("cross_entropy_both", dtype, f"{r}x{c}", both(gradient_of(F.cross_entropy)),
                lambda: (leaf(1), torch.randint(c, (r,), device="cuda")), 2 * size)
        measure("kl_div_both", dtype, f"{r}x{c}", both(gradient_of(kl)), lambda: (leaf(2), leaf(2).detach()), 3 * size)


def embeddings():
    vocab, hidden, n = 151936, 2048, 65536
    weights = 1.0 / torch.arange(1, vocab + 1, device="cuda", dtype=torch.float64)
    cdf, order = (weights / weights.sum()).cumsum(0), torch.randperm(vocab, device="cuda")
    draw = {"uniform": lambda: torch.randint(vocab, (n,), device="cuda"),
            "zipf": lambda: order[torch.searchsorted(cdf, torch.rand(n, device="cuda", dtype=torch.float64)).clamp_(max=vocab - 1)],
            "same": lambda: torch.full((n,), 12345, device="cuda")}
    for dtype in (F32, BF16):
        dense = lambda g, ids: aten.embedding_dense_backward(g, ids, vocab, -1, False)
        impls = {"eager": dense, "compile": torch.compile(dense),
                 "index_add": lambda g, ids: torch.zeros(vocab, hidden, device="cuda", dtype=dtype).index_add_(0, ids, g)}
        for kind, ids in draw.items():
            if kind != "same":
                measure("embedding_backward", dtype, f"{vocab}x{hidden} {n} {kind}", impls, lambda: (randn(n, hidden, dtype=dtype), ids()), 1e9)


def routing():
    r, c, k = 131072, 128, 8

    def chain(x):
        p = torch.softmax(x, -1)
        w = torch.gather(p, -1, torch.topk(p, k, -1)[1])
        return w / w.sum(-1, keepdim=True)

    def step(x, g):
        w = chain(x)
        return w.detach(), torch.autograd.grad(w, x, g)[0]

    size = r * c * 4
    measure("gather_backward", F32, f"{r}x{c} k{k}", both(lambda g, i: torch.zeros(r, c, device="cuda").scatter_add_(-1, i, g)),
            lambda: (randn(r, k, dtype=F32), torch.topk(randn(r, c, dtype=F32), k, -1)[1]), size)
    measure("routing_both", F32, f"{r}x{c} k{k}", both(step), lambda: (randn(r, c, dtype=F32).requires_grad_(True), randn(r, k, dtype=F32)), 3 * size)


def norms():
    r, c = 16384, 4096
    for dtype in (F32, BF16):
        size = r * c * dtype.itemsize
        w = (1 + 0.1 * randn(c, dtype=dtype)).requires_grad_(True)
        norm = lambda x: F.rms_norm(x, (c,), w, 1e-6)
        compiled = torch.compile(norm)
        measure("rms_norm_forward", dtype, f"{r}x{c}", {"eager": lambda x: norm(x).detach(), "compile": lambda x: compiled(x).detach()},
                lambda: (randn(r, c, dtype=dtype),), 2 * size)

        def kept(fn):
            def make():
                x = randn(r, c, dtype=dtype).requires_grad_(True)
                return fn(x), x, randn(r, c, dtype=dtype)
            return make
        backward = lambda y, x, g: torch.autograd.grad(y, (x, w), g, retain_graph=True)
        measure("rms_norm_backward", dtype, f"{r}x{c}", {"eager": backward}, kept(norm), 3 * size)
        measure("rms_norm_backward", dtype, f"{r}x{c}", {"compile": backward}, kept(compiled), 3 * size)


def quantized():
    n, group = 4096, 64
    shift = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)

    def dequantize(codes, s, b):
        q = ((codes.unsqueeze(-1) >> shift) & 15).view(n, n // group, group)
        return (q.to(s.dtype) * s.unsqueeze(-1) + b.unsqueeze(-1)).view(n, n)

    make = lambda: (torch.randint(-2**31, 2**31 - 1, (n, n // 8), device="cuda", dtype=torch.int32), randn(n, n // group, dtype=BF16),
                    randn(n, n // group, dtype=BF16))
    measure("dequantize_4bit", BF16, f"{n}x{n}", both(dequantize), make, n * n * 2.6)


def adam():
    for dtype in (F32, BF16):
        parameters = [torch.nn.Parameter(randn(2_000_000, dtype=dtype)) for _ in range(50)]
        for p in parameters:
            p.grad = randn(2_000_000, dtype=dtype) * 1e-3
        optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True)
        measure("adam", dtype, "50x2000000", {"fused": lambda: optimizer.step()}, lambda: (), 1e9)


def steps():
    for b, s, hq, hk, d in ((256, 512, 9, 3, 64), (8, 4096, 32, 8, 128), (1, 32768, 32, 8, 128)):
        heads = lambda length, h: randn(b, length, h, d, dtype=BF16).transpose(1, 2)
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        for impl, backend in (("cudnn", "CUDNN_ATTENTION"), ("flash 2", "FLASH_ATTENTION")):
            def chosen(q, k, v, backend=backend):
                with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
                    return attend(q, k, v)
            measure("attention_one_query", BF16, f"{b}x{s}x{hq}:{hk}x{d}", {impl: chosen},
                    lambda: (heads(1, hq), heads(s, hk), heads(s, hk)), 4 * b * s * hk * d)


def attentions():
    for b, s, hq, hk, d in ((16, 1024, 16, 8, 128), (2, 8192, 32, 8, 128), (32, 512, 9, 3, 64)):
        shape, size = f"{b}x{s}x{hq}:{hk}x{d}", 2 * b * s * (hq + hk) * 2 * d
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        heads = lambda h: randn(b, s, h, d, dtype=BF16).transpose(1, 2)
        for impl, backend in (("cudnn", "CUDNN_ATTENTION"), ("flash 2", "FLASH_ATTENTION")):
            def chosen(fn, backend=backend):
                def run(*args):
                    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
                        return fn(*args)
                return run

            def kept():
                x = [heads(h).requires_grad_(True) for h in (hq, hk, hk)]
                return chosen(attend)(*x), x, heads(hq)
            measure("attention_forward", BF16, shape, {impl: chosen(attend)}, lambda: (heads(hq), heads(hk), heads(hk)), size)
            measure("attention_backward", BF16, shape, {impl: lambda y, x, g: torch.autograd.grad(y, x, g, retain_graph=True)}, kept, 2 * size)


def write_rows(path):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["op", "dtype", "shape", "impl", "us"])
        writer.writerows(rows)


def main():
    for part in (pointwise, softmaxes, losses, embeddings, routing, norms, quantized, adam, steps, attentions):
        if part.__name__ in sys.argv[2:] or len(sys.argv) == 2:
            part()
    write_rows(sys.argv[1])


if __name__ == "__main__":
    main()
