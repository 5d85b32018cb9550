#!/usr/bin/env python3
"""Further peers of bench/gpu_ops on one NVIDIA card, each where it can be imported: Liger-Kernel and JAX.

usage: gpu_ops_more.py OUT.csv [liger] [jax]     rows: op,dtype,shape,impl,us, with gpu_ops.py's names

Liger is timed as PyTorch is (gpu_ops.py). JAX by the wall clock over many calls that end in one wait, the median of five
batches: shapes are large enough to hide what a call costs.
"""
import importlib.metadata
import sys
import time

ROWS, COLS, HIDDEN, VOCAB, IDS = 16384, 4096, 2048, 151936, 65536


def liger_rows():
    import gpu_ops as torch_peers
    import torch
    import torch.nn.functional as F
    from liger_kernel.ops import cross_entropy, kl_div, rms_norm, softmax, swiglu

    impl = f"Liger {importlib.metadata.version('liger-kernel')}"
    measure, randn, gradient_of = torch_peers.measure, torch_peers.randn, torch_peers.gradient_of
    ce = lambda x, t: cross_entropy.LigerCrossEntropyFunction.apply(x, t, None)[0]

    def kl(s, t):
        s, t = F.log_softmax(s / 2, -1), F.log_softmax(t / 2, -1)
        return 4.0 * kl_div.LigerKLDivLossFunction.apply(s, t, "batchmean", True)

    for dtype in (torch.float32, torch.bfloat16):
        for r, c in ((8192, 4096), (4096, 32768)):
            measure("softmax_forward", dtype, f"{r}x{c}", {impl: lambda x: softmax.LigerSoftmaxFunction.apply(x)},
                    lambda: (randn(r, c, dtype=dtype),), 2 * r * c * dtype.itemsize)
        size = 2048 * VOCAB * dtype.itemsize
        leaf = lambda scale: (scale * randn(2048, VOCAB, dtype=dtype)).requires_grad_(True)
        measure("cross_entropy_both", dtype, f"2048x{VOCAB}", {impl: gradient_of(ce)},
                lambda: (leaf(1), torch.randint(VOCAB, (2048,), device="cuda")), 2 * size)
        measure("kl_div_both", dtype, f"2048x{VOCAB}", {impl: gradient_of(kl)}, lambda: (leaf(2), leaf(2).detach()), 3 * size)
        w = 1 + 0.1 * randn(COLS, dtype=dtype)
        norm = lambda x: rms_norm.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)
        measure("rms_norm_forward", dtype, f"{ROWS}x{COLS}", {impl: norm}, lambda: (randn(ROWS, COLS, dtype=dtype),),
                2 * ROWS * COLS * dtype.itemsize)
        gate = lambda: randn(16384, 8192, dtype=dtype)
        measure("silu_mul_forward", dtype, f"{2**27}", {impl: lambda a, b: swiglu.LigerSiLUMulFunction.apply(a, b)},
                lambda: (gate(), gate()), 3 * 2**27 * dtype.itemsize)
    return torch_peers.rows


def jax_rows():
    import jax
    import jax.numpy as jnp
    import numpy as np

    impl, rows = f"JAX {jax.__version__}", []

    def add(op, dtype, shape, fn, make):
        compiled, sets = jax.jit(fn), [make(i) for i in range(2)]
        jax.block_until_ready([compiled(*s) for s in sets])
        found = []
        for _ in range(5):
            begin = time.perf_counter()
            for i in range(20):
                y = compiled(*sets[i % 2])
            jax.block_until_ready(y)
            found.append((time.perf_counter() - begin) / 20 * 1e6)
        rows.append([op, dtype, shape, impl, f"{sorted(found)[2]:.1f}"])
        print(*rows[-1], flush=True)

    def ce(x, t):
        return -jnp.take_along_axis(jax.nn.log_softmax(x.astype(jnp.float32), -1), t[:, None], -1).mean()

    def kl(s, t):
        a, b = (jax.nn.log_softmax(x.astype(jnp.float32) / 2, -1) for x in (s, t))
        return 4.0 * (jnp.exp(b) * (b - a)).sum(-1).mean()

    def norm(x, w):
        v = x.astype(jnp.float32)
        return (v * jax.lax.rsqrt((v * v).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * w

    def table_gradient(g, ids):
        return jnp.zeros((VOCAB, HIDDEN), g.dtype).at[ids].add(g)

    random = np.random.default_rng(1)
    odds = 1.0 / np.arange(1, VOCAB + 1)
    order = random.permutation(VOCAB)
    ids = {"uniform": lambda: random.integers(VOCAB, size=IDS),
           "zipf": lambda: order[random.choice(VOCAB, IDS, p=odds / odds.sum())]}
    for name in ("float32", "bfloat16"):
        dtype, short = jnp.dtype(name), {"float32": "f32", "bfloat16": "bf16"}[name]
        normal = lambda i, *shape: jax.random.normal(jax.random.key(i), shape, dtype)
        for r, c in ((8192, 4096), (4096, 32768), (2048, VOCAB)):
            add("softmax_forward", short, f"{r}x{c}", lambda x: jax.nn.softmax(x, -1), lambda i: (normal(i, r, c),))
        add("cross_entropy_both", short, f"2048x{VOCAB}", jax.value_and_grad(ce),
            lambda i: (normal(i, 2048, VOCAB), jax.random.randint(jax.random.key(i), (2048,), 0, VOCAB)))
        add("kl_div_both", short, f"2048x{VOCAB}", jax.value_and_grad(kl),
            lambda i: (2 * normal(i, 2048, VOCAB), 2 * normal(9 + i, 2048, VOCAB)))
        add("rms_norm_forward", short, f"{ROWS}x{COLS}", norm, lambda i: (normal(i, ROWS, COLS), normal(9, COLS)))
        add("silu_mul_forward", short, f"{2**27}", lambda a, b: jax.nn.silu(a) * b, lambda i: (normal(i, 2**27), normal(9 + i, 2**27)))
        for kind, draw in ids.items():
            add("embedding_backward", short, f"{VOCAB}x{HIDDEN} {IDS} {kind}", table_gradient,
                lambda i: (normal(i, IDS, HIDDEN), jnp.asarray(draw())))
    return rows


def main():
    rows = []
    for part in (liger_rows, jax_rows):
        if part.__name__.split("_")[0] not in sys.argv[2:] and len(sys.argv) > 2:
            continue
        try:
            rows += part()
        except ImportError as error:
            print(part.__name__, "skipped:", error)
    with open(sys.argv[1], "w") as out:
        print("op,dtype,shape,impl,us", *(",".join(row) for row in rows), sep="\n", file=out)


if __name__ == "__main__":
    main()
