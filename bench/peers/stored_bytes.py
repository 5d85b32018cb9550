"""Bytes of a model's weights in a file."""
import json

from gguf import GGUFReader


def stored(path):
    """Of the tensors of a GGUF file or of a directory of safetensors."""
    if path.is_file():
        return sum(t.n_bytes for t in GGUFReader(path).tensors)
    total = 0
    for file in path.glob("*.safetensors"):
        with open(file, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        total += sum(t["data_offsets"][1] - t["data_offsets"][0] for name, t in header.items() if name != "__metadata__")
    return int(total)
