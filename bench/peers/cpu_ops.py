#!/usr/bin/env python3
"""PyTorch or JAX, whichever this interpreter has, at the shapes of the ops' benches on the CPU.

usage: cpu_ops.py OUT.csv [FILTER]     rows: op,dtype,shape,impl,us,best_us

us is the median. bench/run.sh sets the allocator so that memory is kept and comes in large pages: otherwise PyTorch
mostly measures page faults. Outputs are allocated by the peer, in memory that it has touched before.
"""
import csv
import sys
import time

SECONDS = 0.4
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""
FLAT = (1 << 16, 1 << 18, 1 << 24)
WIDE = ((512, 128), (8192, 128), (262144, 128), (8192, 4096), (512, 151936))
NORM = ((128, 1024), (512, 1024), (8192, 2048))
rows = []


def time_us(call):
    call()
    once = time.perf_counter()
    call()
    once = time.perf_counter() - once
    repeats = max(1, int(5e-4 / once))
    found = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(found) < 7:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        found.append((time.perf_counter() - start) / repeats * 1e6)
    found.sort()
    return found[len(found) // 2], found[0]


def measure(op, dtype, shape, impl, make):
    """make() gives the call to time; it is only built where the filter wants it."""
    if FILTER not in f"{op},{dtype},{shape}":
        return
    try:
        us, best = time_us(make())
    except Exception as error:  # a peer that cannot run is a row less
        print(op, dtype, shape, impl, "failed:", repr(error)[:160], file=sys.stderr, flush=True)
        return
    rows.append([op, dtype, shape, impl, f"{us:.1f}", f"{best:.1f}"])
    print(*rows[-1], sep=",", flush=True)


def torch_rows():
    import torch
    import torch.nn.functional as F
    aten, impl = torch.ops.aten, f"PyTorch {torch.__version__.split('a')[0]}"
    torch.manual_seed(0)

    for name, t in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        def add(op, shape, fn, *shapes):
            def make():
                values = [torch.randn(*s).to(t) for s in shapes]
                return lambda: fn(*values)
            measure(op, name, shape, impl, make)

        def add_gradient(op, shape, kind, fn, *shapes):
            def make():
                values = [torch.randn(*s).to(t).requires_grad_(True) for s in shapes]
                y = fn(*values)
                dy = torch.randn_like(y)
                return lambda: torch.autograd.grad(y, values, dy, retain_graph=True)
            measure(op, name, shape, impl + kind, make)

        for n in FLAT:
            s = (n,)
            add("elementwise_scale_forward", n, lambda x: x * 1.5, s)
            add("elementwise_exp_forward", n, torch.exp, s)
            add("elementwise_gelu_forward", n, F.gelu, s)
            add("elementwise_silu_forward", n, F.silu, s)
            add("elementwise_silu_backward", n, aten.silu_backward, s, s)
            add("elementwise_add_forward", n, torch.add, s, s)
            add("silu_mul_forward", n, lambda a, b: F.silu(a) * b, s, s)
            # What autograd runs; silu(gate) was saved.
            add("silu_mul_backward", n, lambda a, b, g, saved: (aten.silu_backward(g * b, a), g * saved), s, s, s, s)
        for s in WIDE:
            shape = f"{s[0]}x{s[1]}"
            add("softmax_forward", shape, lambda x: torch.softmax(x, -1), s)
            add("softmax_backward", shape, lambda g, y: aten._softmax_backward_data(g, y, -1, y.dtype), s, s)
            add("log_softmax_forward", shape, lambda x: torch.log_softmax(x, -1), s)
            add("log_softmax_backward", shape, lambda g, y: aten._log_softmax_backward_data(g, -y.abs(), -1, y.dtype), s, s)
        for s in NORM:
            shape = f"{s[0]}x{s[1]}"
            rms = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
            layer = lambda x, w: F.layer_norm(x, x.shape[-1:], w)
            add("rms_norm_forward", shape, rms, s, s[1:])
            add_gradient("rms_norm_backward", shape, "", rms, s, s[1:])
            measure("rms_norm_forward", name, shape, impl + " layer_norm",
                    lambda: (lambda x, w: lambda: layer(x, w))(torch.randn(*s).to(t), torch.randn(s[1]).to(t)))
            add_gradient("rms_norm_backward", shape, " layer_norm", layer, s, s[1:])
            add("reduce_rows_forward", shape, lambda x: x.sum(-1), s)
        add("layout_transpose", "4096x4096", lambda x: x.t().contiguous(), (4096, 4096))
        add("layout_heads", "4x1024x32x128", lambda x: x.permute(0, 2, 1, 3).contiguous(), (4, 1024, 32, 128))


def jax_rows():
    import jax
    import jax.numpy as jnp
    impl = f"JAX {jax.__version__}"

    def pulled(fn):  # the gradients of all arguments but the last, which is dy
        return lambda *args: jax.vjp(fn, *args[:-1])[1](args[-1])

    def softmax_backward(y, g):
        return y * (g - (y * g).astype(jnp.float32).sum(-1, keepdims=True).astype(y.dtype))

    def log_softmax_backward(y, g):
        return g - jnp.exp(-abs(y)) * g.astype(jnp.float32).sum(-1, keepdims=True).astype(y.dtype)

    def rms(x, w):
        v = x.astype(jnp.float32)
        return (v * jax.lax.rsqrt((v * v).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * w

    def swiglu(a, b):
        return jax.nn.silu(a) * b

    for name, t in (("f32", jnp.float32), ("bf16", jnp.bfloat16)):
        def add(op, shape, fn, *shapes):
            def make():
                values = [jax.random.normal(jax.random.key(i), s, t) for i, s in enumerate(shapes)]
                compiled = jax.jit(fn)
                return lambda: jax.block_until_ready(compiled(*values))
            measure(op, name, shape, impl, make)

        for n in FLAT:
            s = (n,)
            add("elementwise_scale_forward", n, lambda x: x * 1.5, s)
            add("elementwise_exp_forward", n, jnp.exp, s)
            add("elementwise_gelu_forward", n, jax.nn.gelu, s)
            add("elementwise_silu_forward", n, jax.nn.silu, s)
            add("elementwise_silu_backward", n, pulled(jax.nn.silu), s, s)
            add("elementwise_add_forward", n, jnp.add, s, s)
            add("silu_mul_forward", n, swiglu, s, s)
            add("silu_mul_backward", n, pulled(swiglu), s, s, s)
        for s in WIDE:
            shape = f"{s[0]}x{s[1]}"
            add("softmax_forward", shape, jax.nn.softmax, s)
            add("softmax_backward", shape, softmax_backward, s, s)
            add("log_softmax_forward", shape, jax.nn.log_softmax, s)
            add("log_softmax_backward", shape, log_softmax_backward, s, s)
        for s in NORM:
            shape = f"{s[0]}x{s[1]}"
            add("rms_norm_forward", shape, rms, s, s[1:])
            add("rms_norm_backward", shape, pulled(rms), s, s[1:], s)
            add("reduce_rows_forward", shape, lambda x: x.sum(-1), s)
        add("layout_transpose", "4096x4096", lambda x: x.T, (4096, 4096))
        add("layout_heads", "4x1024x32x128", lambda x: x.transpose(0, 2, 1, 3), (4, 1024, 32, 128))


def write(*parts):
    """Runs the parts whose library this interpreter has; writes the rows to the file that the command line names."""
    for part in parts:
        try:
            part()
        except ImportError:
            pass
    with open(sys.argv[1], "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["op", "dtype", "shape", "impl", "us", "best_us"])
        writer.writerows(rows)


if __name__ == "__main__":
    write(torch_rows, jax_rows)
