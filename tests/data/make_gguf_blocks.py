"""Writes gguf_blocks.gguf: for each type random blocks and, as "<type>.expected", their values.

Needs the `gguf` package, whose decoder is the reference. Scales are finite: NaN has many encodings.
"""
import sys

import gguf
import numpy as np

# Type -> byte offsets of the f16 fields in a block.
TYPES = {
    "F32": None, "F16": [0], "BF16": None, "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "MXFP4": None,
}

rng = np.random.default_rng(20)
writer = gguf.GGUFWriter(sys.argv[1], "test")
for name, halves in TYPES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, cols = 3, elements * (2 if elements > 1 else 16)
    blocks = rng.integers(0, 256, (rows * cols // elements, size), dtype=np.uint8)
    for at in halves or []:
        values = rng.normal(0, 0.5, len(blocks)).astype(np.float16)
        values[0] = np.float16(5e-7)  # subnormal
        blocks[:, at:at + 2] = values.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(0, 253, len(blocks))  # above: no finite values
        blocks[0, 0] = 0
    if name == "F32":
        blocks = rng.normal(size=rows * cols).astype(np.float32).view(np.uint8)
    if name == "BF16":
        blocks = (rng.normal(size=rows * cols).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    data = blocks.reshape(rows, -1)
    expected = gguf.quants.dequantize(data.view(np.float32 if name == "F32" else np.float16 if name == "F16" else np.uint8), kind)
    expected = np.ascontiguousarray(expected, dtype=np.float32)
    assert np.isfinite(expected).all() and expected.shape == (rows, cols), name
    if name in ("F32", "F16"):
        writer.add_tensor(name.lower(), data.view(np.float32 if name == "F32" else np.float16))
    else:
        writer.add_tensor(name.lower(), data, raw_dtype=kind)
    writer.add_tensor(name.lower() + ".expected", expected)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
