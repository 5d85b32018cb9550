"""Writes vectors.bin: weights and what MLX's CPU quantizer makes of them.      usage: make.py       needs mlx, numpy

u32 rows, u32 cols; then for the weights in f32 and again in bf16: the weights [rows, cols] as f32;
then for bits in 2 3 4 5 6 8, for group in 32 64 128: words u32 [rows, cols*bits/32], scales f32 [rows, cols/group],
biases f32 [rows, cols/group]. Little-endian; bf16 values are stored as the f32 of equal value.
"""
import pathlib

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
COLS = 128
rng = np.random.default_rng(7)


def normal(scale):
    return rng.standard_normal(COLS) * scale


def outlier(value):
    w = np.where(rng.random(COLS) < 0.5, -0.01, 0.01)
    w[rng.integers(COLS)] = value
    return w


rows = [normal(s) for s in (1e-30, 1e-9, 1e-7, 3e-7, 1e-6, 1e-4, 0.02, 0.02, 0.02, 1, 1, 30, 1e4, 1e30)]
rows += [-np.abs(normal(s)) - m for s, m in ((0.02, 0), (1, 1), (1e-3, 5))]
rows += [np.abs(normal(s)) + m for s, m in ((0.02, 0), (1, 1), (1e-3, 5))]
rows += [np.full(COLS, v) for v in (0.0, 0.5, 0.7, -5, 9, -9, 500, 1e-8, -1e-8, 1e-38)]
rows += [rng.uniform(-1e-40, 1e-40, COLS), rng.uniform(-1e-7, 1e-7, COLS)]
rows += [outlier(v) for v in (100, -100, 1e6)]
rows += [(np.arange(COLS) % 32 - 11) / 8, -1 - np.arange(COLS) / 32, np.arange(COLS) / 16, np.arange(COLS) - 63.5]
rows += [np.where(np.arange(COLS) % 2, 1.0, -1.0), np.where(np.arange(COLS) % 3, -0.25, 0.25)]
# Halfway between two codes of n = 3, 7, 15, 31, 63 and 255 steps, and edges of equal size.
rows += [rng.integers(0, 2 * n + 1, COLS) / 2 - n / 2 for n in (3, 7, 15, 31, 63, 255)]
rows += [rng.integers(-16, 17, COLS) / 8, rng.integers(0, 3, COLS) * 0.5, rng.standard_t(2, COLS) * 0.05]
weights = np.stack(rows).astype(np.float32)

with open(pathlib.Path(__file__).with_name("vectors.bin"), "wb") as out:
    out.write(np.array(weights.shape, np.uint32).tobytes())
    for dtype in (mx.float32, mx.bfloat16):
        w = mx.array(weights).astype(dtype)
        out.write(np.array(w.astype(mx.float32)).tobytes())
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                words, scales, biases = mx.quantize(w, group_size=group, bits=bits)
                out.write(np.array(words).tobytes())
                out.write(np.array(scales.astype(mx.float32)).tobytes())
                out.write(np.array(biases.astype(mx.float32)).tobytes())
