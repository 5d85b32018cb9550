"""Files that mixtape and llama.cpp write, read for bench/peers/llama_cpp.py."""
import json

import numpy as np

MODULES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
           "up_proj": "ffn_up", "down_proj": "ffn_down"}


def read_base(file):
    """Tokens [rows, T], log-probabilities [positions, vocab] of the rows' second halves, and which of them are known:
    those within 16 nats of a position's largest."""
    data = file.read_bytes()
    length, vocab, rows = (int(n) for n in np.frombuffer(data, "<i4", 3, 8))
    tokens = np.frombuffer(data, "<i4", rows * length, 20).reshape(rows, length)
    records = np.frombuffer(data, "<u2", offset=20 + 4 * rows * length).reshape(rows * (length - 1 - length // 2), -1)
    scale, least = np.ascontiguousarray(records[:, :4]).view("<f4").T[..., None]
    codes = records[:, 4:4 + vocab]
    return tokens, least + scale * codes.astype(np.float32), (codes > 0) | (scale * 65535 < 15.999)


def log_probability_distance(mine, theirs, count):
    """Largest difference over the first `count` positions of two such files, as a share of the largest."""
    known = mine[2][:count] & theirs[2][:count]
    mine, theirs = mine[1][:count], theirs[1][:count]
    off = np.where(known, np.abs(mine - theirs), 0).max(1) / np.where(known, np.abs(mine), 0).max(1)
    return float(f"{off.max():.3g}")


def importance(file):
    """Mean squares [matrices, K] by weight."""
    from gguf import GGUFReader
    tensors = {t.name: np.array(t.data) for t in GGUFReader(file).tensors}
    found = {}
    for name, sums in tensors.items():
        if name.endswith(".in_sum2"):
            weight = name.removesuffix(".in_sum2")
            found[weight] = sums.reshape(-1, sums.shape[-1]) / np.maximum(tensors[weight + ".counts"].reshape(-1, 1), 1)
    return found


def decoded_weights(file):
    """F32 tensors by name."""
    from gguf import GGUFReader
    return {t.name: np.array(t.data) for t in GGUFReader(file).tensors if t.tensor_type.name == "F32"}


def gguf_name(module):
    if module == "model.embed_tokens":
        return "token_embd.weight"
    if module == "lm_head":
        return "output.weight"
    parts = module.split(".")
    return f"blk.{parts[2]}.{MODULES[parts[-1]]}{'_exps' if 'switch_mlp' in parts else ''}.weight"


def codes_of(words, bits):
    """u32 [..., words] -> codes [..., 32 * words / bits], the lowest bits first."""
    stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    stream = stream.reshape(*words.shape[:-1], -1, bits)
    return (stream.astype(np.uint16) << np.arange(bits, dtype=np.uint16)).sum(-1)


def calibrated_weights(directory):
    """What MLX's codes stand for, f32 by GGUF name, rows as a GGUF file has them; and how many scales and biases of
    them f16 does not hold."""
    import torch
    from safetensors.torch import load_file
    config = json.loads((directory / "config.json").read_text())
    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors.update(load_file(file))
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    is_interleaved = config["model_type"] in ("llama", "mistral")
    found, unheld = {}, 0
    for name in [name for name in tensors if name.endswith(".scales")]:
        module = name.removesuffix(".scales")
        scales, biases = (tensors[f"{module}.{part}"].to(torch.float32).numpy() for part in ("scales", "biases"))
        words = tensors[f"{module}.weight"].view(torch.uint8).numpy().view(np.uint32)
        with np.errstate(over="ignore"):
            unheld += sum(int((part.astype(np.float16).astype(np.float32) != part).sum()) for part in (scales, biases))
        cols = scales.shape[-1] * 32
        codes = codes_of(words, words.shape[-1] * 32 // cols)
        w = codes.reshape(*scales.shape, 32).astype(np.float32) * scales[..., None] + biases[..., None]
        w = w.reshape(*scales.shape[:-1], cols)
        part = module.split(".")[-1]
        if is_interleaved and part in heads:
            w = w.reshape(heads[part], 2, -1, cols).swapaxes(1, 2).reshape(w.shape)
        found[gguf_name(module)] = w
    return found, unheld
