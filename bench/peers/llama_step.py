#!/usr/bin/env python3
"""A plain PyTorch peer of bench/calibration: forward and backward of a SmolLM2-135M-shaped llama in bf16 on 4 x 512
random tokens. Counts 6 FLOP per matrix weight and token (no teacher) against the same count of ours (8).

usage: llama_step.py [STEPS]
"""
import resource
import sys
import time

import torch
import torch.nn.functional as F

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 576, 30, 9, 3, 64, 1536, 49152
BATCH, LENGTH = 4, 512


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        shapes = {"q": (HEADS * HEAD_DIM, HIDDEN), "k": (KV_HEADS * HEAD_DIM, HIDDEN), "v": (KV_HEADS * HEAD_DIM, HIDDEN),
                  "o": (HIDDEN, HEADS * HEAD_DIM), "gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
        parameter = lambda *shape: torch.nn.Parameter(torch.randn(*shape).mul_(0.02).bfloat16())
        self.table = parameter(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(
            torch.nn.ParameterDict({**{n: parameter(*s) for n, s in shapes.items()},
                                    "norm1": torch.nn.Parameter(torch.ones(HIDDEN).bfloat16()),
                                    "norm2": torch.nn.Parameter(torch.ones(HIDDEN).bfloat16())})
            for _ in range(LAYERS))
        self.norm = torch.nn.Parameter(torch.ones(HIDDEN).bfloat16())
        angle = torch.outer(torch.arange(LENGTH).float(), 100000.0 ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        self.mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1).bfloat16()

    def rotate(self, x):
        first, second = x.chunk(2, -1)
        return torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin), -1)

    def attend(self, x, p):
        heads = lambda w, n: F.linear(x, w).view(BATCH, LENGTH, n, HEAD_DIM).transpose(1, 2)
        q, k, v = self.rotate(heads(p["q"], HEADS)), self.rotate(heads(p["k"], KV_HEADS)), heads(p["v"], KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = torch.softmax(q @ k.transpose(-1, -2) * HEAD_DIM ** -0.5 + self.mask, -1)
        return F.linear((scores @ v).transpose(1, 2).reshape(BATCH, LENGTH, -1), p["o"])

    def forward(self, ids):
        x = F.embedding(ids, self.table)
        for p in self.layers:
            x = x + self.attend(rms_norm(x, p["norm1"]), p)
            h = rms_norm(x, p["norm2"])
            x = x + F.linear(F.silu(F.linear(h, p["gate"])) * F.linear(h, p["up"]), p["down"])
        return F.linear(rms_norm(x, self.norm), self.table)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.manual_seed(0)
    model = Llama()
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    seconds = []
    for _ in range(steps + 1):
        ids = torch.randint(VOCAB, (BATCH, LENGTH + 1))
        start = time.perf_counter()
        logits = model(ids[:, :-1])
        F.cross_entropy(logits.view(-1, VOCAB), ids[:, 1:].reshape(-1)).backward()
        seconds.append(time.perf_counter() - start)
        model.zero_grad(set_to_none=True)
    rate = BATCH * LENGTH / min(seconds[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(f"PyTorch {torch.__version__} bf16, forward and backward, no teacher: {rate:.1f} tokens/s, "
          f"{6 * weights * rate / 1e9:.1f} GFLOP/s; peak {peak:.0f} MB resident")


if __name__ == "__main__":
    main()
