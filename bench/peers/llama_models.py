"""The models that bench/peers/llama_cpp.py compares on: random ones of every architecture, with tokenizers of every
kind that GGUF files name.
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent.parent
GIVE_TOKENIZER = ROOT / "tests" / "program" / "give_tokenizer.py"
sys.path.insert(0, str(GIVE_TOKENIZER.parent))
from give_tokenizer import tokenizer as small_tokenizer  # noqa: E402

PARITY = {"llama": "gpt-2", "llama_tied_bias_rope3": "llama-bpe", "mistral": "smollm", "qwen2": "qwen2", "qwen3": "qwen2"}
PRE_TOKENIZERS = ("gpt-2", "smollm", "qwen2", "llama-bpe")


def change_config(model, **changes):
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def small_models(out):
    """Directories by name: tests/data/parity with tokenizers of 263 tokens, and one with linear scaling."""
    found = {}
    for name, pre in [*PARITY.items(), ("llama_linear", "gpt-2")]:
        found[name] = out / name
        if found[name].exists():
            continue
        source = ROOT / "tests" / "data" / "parity" / name.replace("_linear", "")
        subprocess.run([sys.executable, GIVE_TOKENIZER, source, found[name], pre], check=True)
        if name == "llama_linear":
            change_config(found[name], rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})
    return found


def trained_tokenizer(pre, text, size):
    """Byte-level BPE of `size` tokens, the last two added, one of them special."""
    from tokenizers import Tokenizer, pre_tokenizers, trainers
    description = small_tokenizer(pre, 263)
    empty = {**description, "added_tokens": [], "post_processor": None}
    empty["model"] = {**empty["model"], "vocab": {}, "merges": []}
    learner = Tokenizer.from_str(json.dumps(empty))
    special = [t["content"] for t in description["added_tokens"]]
    learner.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=size - 2, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    learned = json.loads(learner.to_str())
    for text, is_special in (("<think>", False), ("<|tool|>", True)):
        learned["added_tokens"].append({**learned["added_tokens"][0], "id": len(learned["model"]["vocab"])
                                        + len(learned["added_tokens"]) - len(special), "content": text,
                                        "special": is_special})
    return {**learned, "post_processor": description["post_processor"]}


def models_with_words(out, text, size=1200):
    """The random llama with a vocabulary learned from `text`, for each name of a pre-tokenizer."""
    found = {}
    for pre in PRE_TOKENIZERS:
        found[f"words_{pre}"] = model = out / f"words_{pre}"
        if model.exists():
            continue
        source = ROOT / "tests" / "data" / "parity" / "llama"
        subprocess.run([sys.executable, GIVE_TOKENIZER, source, model, pre], check=True)
        change_config(model, vocab_size=size)
        tensors = load_file(model / "model.safetensors")
        random = np.random.default_rng(0)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = random.normal(0, tensors[name].std(), (size, tensors[name].shape[1])).astype(np.float32)
        save_file(tensors, model / "model.safetensors", {"format": "pt"})
        (model / "tokenizer.json").write_text(json.dumps(trained_tokenizer(pre, text, size)))
    return found
