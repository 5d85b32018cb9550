#!/usr/bin/env python3
"""A copy of a model without a tokenizer, with a byte-level BPE that knows ASCII alone: whatever such a model makes is
readable.

usage: give_tokenizer.py MODEL OUT PRE
  PRE  the name that GGUF files have for how words are cut: gpt-2, smollm, qwen2 or llama-bpe
"""
import json
import shutil
import sys
from pathlib import Path

ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|pad|>", "<|startoftext|>", "<|endoftext|>"]  # ids 1 and 2 begin and end a text in the models' config.json


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def pre_tokenizer(name):
    steps = {
        "gpt-2": [byte_level(True)],
        "smollm": [{"type": "Digits", "individual_digits": True}, byte_level(True)],
        "qwen2": [split(ENDINGS % r"\p{N}"), byte_level(False)],
        "llama-bpe": [split(ENDINGS % r"\p{N}{1,3}"), byte_level(False)],
    }[name]
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


def vocabulary(size):
    """Special tokens, the letters of ASCII, and pairs of frequent ones."""
    letters = ["\u0120", "\u010a"] + [chr(c) for c in range(33, 127)]  # space and line break, as byte-level BPE writes them
    frequent = "\u0120etaoinshrdlucmfw"
    pairs = [(a, b) for a in frequent for b in frequent[1:]]
    merges = pairs[:size - len(SPECIAL) - len(letters)]
    return SPECIAL + letters + [a + b for a, b in merges], merges


def tokenizer(name, size):
    texts, merges = vocabulary(size)
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(SPECIAL)]
    bos = SPECIAL[1]
    puts_bos = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {bos: {"id": bos, "ids": [1], "tokens": [bos]}}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"} if name == "qwen2" else None, "pre_tokenizer": pre_tokenizer(name),
            "post_processor": puts_bos if name == "llama-bpe" else None, "decoder": byte_level(True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": name == "llama-bpe", "vocab": {text: i for i, text in enumerate(texts)},
                      "merges": [list(pair) for pair in merges]}}


def main(model, out, name):
    model, out = Path(model), Path(out)
    out.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(model / file, out / file)
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    (out / "tokenizer.json").write_text(json.dumps(tokenizer(name, size)))
    (out / "tokenizer_config.json").write_text(json.dumps({"bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
