#!/usr/bin/env python3
"""Writes components.json: tokenizers of many component combinations, texts, and the ids and decoded texts of the
reference library (PyPI: tokenizers, version 0.23.3). Usage: make_vectors.py > components.json"""
import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SENTENCES = [
    "The quick brown fox can't jump over 13 lazy dogs; they're asleep, we'll see.",
    "It's 10:45 on 2024-05-06 and I'd rather have 1,234.5 apples than none!",
    "naïve café, coöperate, Ångström, e\u0301tude, \u1112\u1161\u11ab글 한글, 中文字符 日本語テスト",
    "tabs\tand\r\nlines\n\n\nand    runs   of  spaces  ",
    "emoji 👍🏽 👨\u200d👩\u200d👧 🎉, ﬁne ligatures, ½ of ² and Ⅷ, ٣ and ①",
    "x = foo_bar(42) + [1, 2, 3];  // don't panic",
]
ODD = ["\u00a0", "\u2003", "\u180e", "\u0085", "\u200b", "\u2028", "\ufeff", "İ", "ΣΑΣ", "ß", "'ſ", "ⓐ", "▁", "Ġ", "_",
       "<tok>", "<think>", "</s>", " <tok> ", "a<word>b", " <word> ", "  ", "'ll", "é", "e\u0301", "\U00010400", "\x00"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = [GPT2, LLAMA3, r"\p{N}{1,3}", r"[\u4e00-\u9fa5]+", r"\s", r"\w+", r"\W", r"[^\w\s]", r"[[:punct:]]", r"^.", "x*"]

rnd = random.Random(1)


def train(pre_tokenizer, alphabet, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return json.loads(tokenizer.to_str())["model"]


def byte_level_model():
    model = train(pre_tokenizers.ByteLevel(add_prefix_space=False), sorted(pre_tokenizers.ByteLevel.alphabet()), 420)
    return model


def fallback_model():
    trained = train(pre_tokenizers.Metaspace(), [], 330)
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab["<0x%02X>" % byte] = len(vocab)
    for token in trained["vocab"]:
        if len(token) > 1 or token.isascii() or token in "▁é":
            vocab.setdefault(token, len(vocab))
    merges = [m for m in trained["merges"] if all(t in vocab for t in m) and "".join(m) in vocab]
    return dict(trained, vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def unk_model():
    model = json.loads(json.dumps(fallback_model()))
    model["byte_fallback"] = False
    model["merges"] = [" ".join(m) for m in model["merges"]]
    return model


MODELS = {"byte_level": byte_level_model(), "fallback": fallback_model(), "unk": unk_model()}


def normalizer(depth=0):
    kind = rnd.choice(["NFC", "NFD", "NFKC", "Lowercase", "Strip", "Prepend", "Replace"] + ["Sequence"] * (2 - 2 * depth))
    if kind == "Sequence":
        return {"type": kind, "normalizers": [normalizer(1) for _ in range(rnd.randint(0, 3))]}
    if kind == "Strip":
        return {"type": kind, "strip_left": rnd.random() < 0.5, "strip_right": rnd.random() < 0.5}
    if kind == "Prepend":
        return {"type": kind, "prepend": "▁"}
    if kind == "Replace":
        pattern = rnd.choice([{"String": " "}, {"Regex": " {2,}"}, {"Regex": "[aeiou]"}])
        return {"type": kind, "pattern": pattern, "content": rnd.choice(["▁", "", "$1"])}
    return {"type": kind}


def pre_tokenizer(depth=0):
    kind = rnd.choice(["ByteLevel", "Split", "Split", "Digits", "Metaspace", "Whitespace"] + ["Sequence"] * (2 - 2 * depth))
    if kind == "Sequence":
        return {"type": kind, "pretokenizers": [pre_tokenizer(1) for _ in range(rnd.randint(1, 3))]}
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": rnd.random() < 0.5, "trim_offsets": True, "use_regex": rnd.random() < 0.6}
    if kind == "Split":
        behavior = rnd.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
        pattern = rnd.choice([{"Regex": rnd.choice(PATTERNS)}, {"String": rnd.choice([" ", "e", "."])}])
        return {"type": kind, "pattern": pattern, "behavior": behavior, "invert": rnd.random() < 0.4}
    if kind == "Digits":
        return {"type": kind, "individual_digits": rnd.random() < 0.5}
    if kind == "Metaspace":
        scheme = rnd.choice(["always", "first", "never"])
        return {"type": kind, "replacement": "▁", "prepend_scheme": scheme, "split": rnd.random() < 0.6}
    return {"type": kind}


def decoder(depth=0):
    kind = rnd.choice(["ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"] + ["Sequence"] * (3 - 3 * depth))
    if kind == "Sequence":
        return {"type": kind, "decoders": [decoder(1) for _ in range(rnd.randint(1, 4))]}
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": "▁"}, "content": " "}
    if kind == "Strip":
        return {"type": kind, "content": " ", "start": rnd.randint(0, 1), "stop": rnd.randint(0, 1)}
    if kind == "Metaspace":
        return {"type": kind, "replacement": "▁", "prepend_scheme": rnd.choice(["always", "never"]), "split": True}
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return {"type": kind}


def template():
    pieces = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    if rnd.random() < 0.5:
        pieces.append({"SpecialToken": {"id": "</s>", "type_id": 0}})
    special = {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in ((1, "<s>"), (2, "</s>"))}
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}


def added_tokens(vocab):
    tokens = []
    for content in ["<tok>", "<think>", "</s>", "<word>", "</"]:
        flags = {key: rnd.random() < 0.3 for key in ("lstrip", "rstrip", "normalized", "special")}
        if rnd.random() < 0.7:
            used = len([t for t in tokens if t["id"] >= len(vocab)])
            tokens.append(dict(flags, id=vocab.get(content, len(vocab) + used), content=content,
                               single_word=content == "<word>"))
    return tokens


def spec(model_name):
    vocab = MODELS[model_name]["vocab"]
    post = rnd.choice([None, template(), {"type": "Sequence", "processors": [{"type": "ByteLevel", "trim_offsets": True,
                       "add_prefix_space": True, "use_regex": True}, template()]}])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(vocab),
            "normalizer": normalizer() if rnd.random() < 0.6 else None,
            "pre_tokenizer": pre_tokenizer() if rnd.random() < 0.9 else None, "post_processor": post,
            "decoder": decoder()}


def text():
    words = " ".join(rnd.sample(SENTENCES, 2)).split(" ")
    start = rnd.randrange(len(words) - 3)
    parts = words[start:start + 3] + [rnd.choice(ODD) for _ in range(4)]
    rnd.shuffle(parts)
    return rnd.choice(["", " "]).join(parts)


def cases(tokenizer, decodes):
    result = []
    for _ in range(4):
        case = {"text": text(), "add_special": rnd.random() < 0.5}
        case["ids"] = tokenizer.encode(case["text"], add_special_tokens=case["add_special"]).ids
        if decodes:
            case["decoded"] = tokenizer.decode(case["ids"], skip_special_tokens=False)
            case["decoded_without_special"] = tokenizer.decode(case["ids"], skip_special_tokens=True)
        result.append(case)
    return result


def main():
    tokenizers = []
    while len(tokenizers) < 45:
        name = list(MODELS)[len(tokenizers) % 3]
        json_spec = spec(name)
        ignore_merges = rnd.random() < 0.2
        model = dict(MODELS[name], ignore_merges=ignore_merges)
        reference = Tokenizer.from_str(json.dumps(dict(json_spec, model=model)))
        # The reference decodes added tokens in their normalized form; here they keep their own.
        decodes = not (json_spec["normalizer"] and any(t["normalized"] for t in json_spec["added_tokens"]))
        try:
            entry = {"model": name, "ignore_merges": ignore_merges, "spec": json_spec, "cases": cases(reference, decodes)}
        except BaseException:  # the reference panics on some combinations
            continue
        tokenizers.append(entry)
    lines = ",\n".join(json.dumps(t, separators=(",", ":")) for t in tokenizers)
    models_text = ",\n".join(json.dumps(k) + ": " + json.dumps(v, separators=(",", ":")) for k, v in MODELS.items())
    print('{"models": {\n%s\n},\n"tokenizers": [\n%s\n]}' % (models_text, lines))


main()
