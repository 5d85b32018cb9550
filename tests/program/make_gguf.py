#!/usr/bin/env python3
"""Writes the GGUF file that a seed of fuzz/corpus/gguf describes; its weights are zero.

usage: make_gguf.py SEED FILE
"""
import json
import math
import struct
import sys

BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 6: (32, 22), 8: (32, 34), 30: (1, 2)}  # type: elements, bytes


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(v):
    """Type and bytes: bool 7, string 8, array 9, i64 11, f64 12."""
    if isinstance(v, list):
        items = [value(x) for x in v]
        return 9, struct.pack("<IQ", items[0][0], len(v)) + b"".join(data for _, data in items)
    if isinstance(v, str):
        return 8, text(v)
    if isinstance(v, bool):
        return 7, struct.pack("<?", v)
    return (11, struct.pack("<q", v)) if isinstance(v, int) else (12, struct.pack("<d", v))


seed = json.load(open(sys.argv[1]))
out = b"GGUF" + struct.pack("<IQQ", 3, len(seed["tensors"]), len(seed["keys"]))
for key, v in seed["keys"].items():
    kind, data = value(v)
    out += text(key) + struct.pack("<I", kind) + data
offset = 0
for name, (kind, *dims) in seed["tensors"].items():
    out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
    elements, size = BLOCKS[kind]
    offset += -(-math.prod(dims) // elements * size // 32) * 32
out += bytes(-len(out) % 32) + bytes(offset)
open(sys.argv[2], "wb").write(out)
