"""What bench/peers/quality_peers.py quantizes and calibrates on: Hugging Face directories in bf16 that every program
reads, and one set of rows for all of them.
"""
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

HIDDEN, INNER, PADDED = 64, 172, 192  # stories260k; 192: a multiple of 64


def write_model(out, tensors, config, tokenizer_from):
    out.mkdir(parents=True)
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in tensors.items()}
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    config = {**config, "torch_dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_from / name, out / name)


def stories(source, out):
    """stories260k with 20 more channels of zeros in each MLP: the same function. mlx_lm.gptq and mlx_lm.awq can't leave
    a matrix in float, and 172 is no multiple of 64."""
    config = json.loads((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    for name, t in tensors.items():
        if t.shape == (INNER, HIDDEN):
            tensors[name] = torch.nn.functional.pad(t, (0, 0, 0, PADDED - INNER))
        if t.shape == (HIDDEN, INNER):
            tensors[name] = torch.nn.functional.pad(t, (0, PADDED - INNER))
    write_model(out, tensors, {**config, "intermediate_size": PADDED}, source)


def mixture(source, out):
    """The packaged model with a tensor for each expert, as Hugging Face has them: transformers reads no stacked ones."""
    tensors = {}
    for name, t in load_file(source / "model.safetensors").items():
        if ".switch_mlp." not in name:
            tensors[name] = t
            continue
        for expert, w in enumerate(t):
            tensors[name.replace(".switch_mlp.", f".experts.{expert}.")] = w
    write_model(out, tensors, json.loads((source / "config.json").read_text()), source)


GGUF_NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
              "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
              "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def hugging_face_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{GGUF_NAMES[part]}.weight"


def llama_from_gguf(mixtape, gguf, out):
    """The GGUF's weights as floats; config and tokenizer are those that mixtape writes beside a quantized copy."""
    from gguf import GGUFReader
    from gguf.quants import dequantize
    described = out.parent / (out.name + ".described")
    subprocess.run([mixtape, "quantize", "-m", gguf, "-o", described], check=True)
    config = json.loads((described / "config.json").read_text())
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for t in GGUFReader(gguf).tensors:
        w = torch.tensor(dequantize(t.data, t.tensor_type), dtype=torch.float32)
        part = t.name.split(".")[-2]
        if part in heads:  # a GGUF holds the halves of a rotated head interleaved
            w = w.reshape(heads[part], -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        tensors[hugging_face_name(t.name)] = w
    write_model(out, tensors, config, described)
    shutil.rmtree(described)


class Calibration:
    """Rows of `length` tokens for the programs of others, and text files of the same rows for mixtape: three quarters
    sampled from the model, the rest from a novel and from short stories."""

    def __init__(self, mixtape, model, texts, out, rows, length):
        self.rows_file, self.length = out / "rows.json", length
        self.files = [out / f"{name}.txt" for name in ("self", "moby_dick", "tiny_stories")]
        if self.rows_file.exists():
            return
        out.mkdir(parents=True, exist_ok=True)
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        counts = [rows - 2 * (rows // 8), rows // 8, rows // 8]
        samples = [self.sampled(mixtape, model, counts[0], length),
                   (texts / "moby_dick.txt").read_text(), (texts / "tiny_stories.txt").read_text()]
        first = tokenizer.encode("").ids
        width, all_rows = length - len(first), []
        for text, count, file in zip(samples, counts, self.files):
            ids = tokenizer.encode(text[:count * length * 8], add_special_tokens=False).ids[:count * width]
            file.write_text(tokenizer.decode(ids))
            all_rows += [first + ids[i:i + width] for i in range(0, len(ids) - width + 1, width)]
        order = np.random.default_rng(1).permutation(len(all_rows))
        self.rows_file.write_text(json.dumps([all_rows[i] for i in order]))

    @staticmethod
    def sampled(mixtape, model, rows, length):
        # A text that ends early is followed by the next one: half as many again are enough.
        command = [mixtape, "generate", "-m", model, "-p", "", "-n", str(length), "--samples", str(rows + rows // 2),
                   "--temp", "1", "--top-p", "1"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
