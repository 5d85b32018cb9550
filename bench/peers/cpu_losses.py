#!/usr/bin/env python3
"""PyTorch or JAX, whichever this interpreter has, at the large shapes of the benches of embedding, take_along_axis,
top_k, moe_route, cross_entropy, kl_div, quantize and adam on the CPU.

usage: cpu_losses.py OUT.csv [FILTER]     rows and allocator as for cpu_ops.py
"""
from cpu_ops import measure, write

VOCAB, HIDDEN, TOKENS = 151936, 2048, 65536
ROUTER, LOGITS, TEMPERATURE = (131072, 128, 8), (512, VOCAB), 2.0
ROUTED, LOSSES = "131072x128_k8", "512x151936"


def draw_ids(kind, seed=0):
    """As the benches of embedding: Zipf's id is rows^u - 1 for uniform u."""
    import numpy as np
    u = np.random.default_rng(seed).random(TOKENS)
    return {"uniform": u * VOCAB, "zipf": VOCAB**u - 1, "one": u * 0 + 3}[kind].astype(np.int32)


ID_SHAPES = (("uniform", "151936x2048_of_65536"), ("zipf", "zipf"), ("one", "one_id"))


def torch_rows():
    import torch
    import torch.nn.functional as F
    impl = f"PyTorch {torch.__version__.split('a')[0]}"
    torch.manual_seed(0)
    rows, cols, k = ROUTER

    def route(x):
        p = F.softmax(x, -1)
        weights = torch.gather(p, 1, torch.topk(p, k, -1).indices)
        return weights / weights.sum(-1, keepdim=True)

    def take_backward(dy, index, dx):
        return dx.zero_().scatter_add_(1, index, dy)

    def cross_entropy(x, targets):
        x.grad = None
        F.cross_entropy(x, targets, reduction="sum").backward()

    def kl_div(is_log, student, teacher):
        student.grad = None
        target = F.log_softmax if is_log else F.softmax
        q, p = F.log_softmax(student / TEMPERATURE, -1), target(teacher / TEMPERATURE, -1)
        F.kl_div(q, p, log_target=is_log, reduction="sum").backward()

    def dequantize(codes, scales, biases, out):
        out[..., 0], out[..., 1] = codes & 15, codes >> 4
        out.view(4096, 64, 64).mul_(scales).add_(biases)

    def adam(foreach):
        parameters = [torch.randn(1000000) for _ in range(50)]
        for p in parameters:
            p.grad = torch.randn_like(p)
        return torch.optim.AdamW(parameters, lr=1e-3, foreach=foreach).step

    for name, t in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        def add(op, shape, fn, make, kind=""):
            def call():
                values = make()
                return lambda: fn(*values)
            measure(op, name, shape, impl + kind, call)

        for kind, shape in ID_SHAPES:
            add("embedding_backward", shape,
                lambda dy, ids: torch.ops.aten.embedding_dense_backward(dy, ids, VOCAB, -1, False),
                lambda: (torch.randn(TOKENS, HIDDEN).to(t), torch.from_numpy(draw_ids(kind)).long()))
        draw = lambda: torch.randint(0, cols, (rows, k))
        add("take_along_axis_forward", ROUTED, lambda x, index, y: torch.gather(x, 1, index, out=y),
            lambda: (torch.randn(rows, cols).to(t), draw(), torch.empty(rows, k, dtype=t)))
        add("take_along_axis_backward", ROUTED, take_backward,
            lambda: (torch.randn(rows, k).to(t), draw(), torch.empty(rows, cols, dtype=t)))
        add("top_k_forward", ROUTED, lambda x: torch.topk(x, k, -1), lambda: (torch.randn(rows, cols).to(t),))
        add("moe_route_route_forward", ROUTED, route, lambda: (torch.randn(rows, cols).to(t),))
        add("cross_entropy_both", LOSSES, cross_entropy,
            lambda: (torch.randn(LOGITS).to(t).requires_grad_(), torch.randint(0, VOCAB, LOGITS[:1])))
        for is_log in (False, True):
            add("kl_div_both", LOSSES, lambda *values: kl_div(is_log, *values),
                lambda: (torch.randn(LOGITS).to(t).requires_grad_(), torch.randn(LOGITS).to(t)),
                " log_target" if is_log else "")
        add("quantize_forward", "4bit_4096x4096", dequantize,
            lambda: (torch.randint(0, 256, (4096, 64, 32), dtype=torch.uint8), torch.randn(4096, 64, 1).to(t),
                     torch.randn(4096, 64, 1).to(t), torch.empty(4096, 64, 32, 2, dtype=t)))
    for foreach in (False, True):
        measure("adam_step", "f32", "50x1M", impl + (" foreach" if foreach else ""), lambda: adam(foreach))


def jax_rows():
    import jax
    import jax.numpy as jnp
    impl = f"JAX {jax.__version__}"
    rows, cols, k = ROUTER

    def route(x):
        values, _ = jax.lax.top_k(jax.nn.softmax(x, -1), k)
        return values / values.sum(-1, keepdims=True)

    def cross_entropy(x, targets):
        log_p = jax.nn.log_softmax(x.astype(jnp.float32), -1)
        return -jnp.take_along_axis(log_p, targets[:, None], 1).sum()

    def kl_div(student, teacher):
        q = jax.nn.log_softmax(student.astype(jnp.float32) / TEMPERATURE, -1)
        p = jax.nn.log_softmax(teacher.astype(jnp.float32) / TEMPERATURE, -1)
        return (jnp.exp(p) * (p - q)).sum()

    def dequantize(codes, scales, biases):
        nibbles = jnp.stack([codes & 15, codes >> 4], -1).reshape(4096, 64, 64)
        return nibbles.astype(scales.dtype) * scales + biases

    for name, t in (("f32", jnp.float32), ("bf16", jnp.bfloat16)):
        def normal(*shape):
            return jax.random.normal(jax.random.key(0), shape, t)

        def integers(limit, *shape, dtype=jnp.int32):
            return jax.random.randint(jax.random.key(1), shape, 0, limit, dtype)

        def add(op, shape, fn, make):
            def call():
                values, compiled = make(), jax.jit(fn)
                return lambda: jax.block_until_ready(compiled(*values))
            measure(op, name, shape, impl, call)

        for kind, shape in ID_SHAPES:
            add("embedding_backward", shape, lambda dy, ids: jnp.zeros((VOCAB, HIDDEN), dy.dtype).at[ids].add(dy),
                lambda: (normal(TOKENS, HIDDEN), jnp.asarray(draw_ids(kind))))
        add("take_along_axis_forward", ROUTED, lambda x, index: jnp.take_along_axis(x, index, 1),
            lambda: (normal(rows, cols), integers(cols, rows, k)))
        add("take_along_axis_backward", ROUTED,
            lambda dy, index: jnp.zeros((rows, cols), dy.dtype).at[jnp.arange(rows)[:, None], index].add(dy),
            lambda: (normal(rows, k), integers(cols, rows, k)))
        add("top_k_forward", ROUTED, lambda x: jax.lax.top_k(x, k), lambda: (normal(rows, cols),))
        add("moe_route_route_forward", ROUTED, route, lambda: (normal(rows, cols),))
        add("cross_entropy_both", LOSSES, jax.value_and_grad(cross_entropy),
            lambda: (normal(*LOGITS), integers(VOCAB, LOGITS[0])))
        add("kl_div_both", LOSSES, jax.value_and_grad(kl_div), lambda: (normal(*LOGITS), normal(*LOGITS)[::-1]))
        add("quantize_forward", "4bit_4096x4096", dequantize,
            lambda: (integers(256, 4096, 64, 32, dtype=jnp.uint8), normal(4096, 64, 1), normal(4096, 64, 1)))


if __name__ == "__main__":
    write(torch_rows, jax_rows)
