#!/usr/bin/env python3
"""Writes the seeds under fuzz/corpus: small files of every kind that the library reads."""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def sections(**files):
    return "".join(f"@@ {name}\n{text}\n" for name, text in files.items())


def named_sections(files):
    return "".join(f"@@ {name}\n{text}\n" for name, text in files.items())


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U32": 4, "U8": 1, "BOOL": 1}


def header(tensors, metadata=None):
    table, at = {}, 0
    if metadata:
        table["__metadata__"] = metadata
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for dim in shape:
            size *= dim
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return json.dumps(table, separators=(",", ":")), at


def raw_safetensors(tensors):
    text, size = header(tensors)
    return struct.pack("<Q", len(text)) + text.encode() + bytes(range(256)) * (size // 256) + bytes(size % 256)


def config(kind, **more):
    names = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
    found = {"architectures": [names[kind]], "model_type": kind, "vocab_size": 8, "hidden_size": 64,
             "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
             "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
             "max_position_embeddings": 64, "tie_word_embeddings": True, "attention_bias": False,
             "bos_token_id": 1, "eos_token_id": [2], "torch_dtype": "bfloat16"}
    if kind == "qwen3_moe":
        found |= {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 64, "norm_topk_prob": True,
                  "decoder_sparse_step": 1, "mlp_only_layers": []}
    return found | more


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
QUANTIZED = {"group_size": 32, "bits": 4, "mode": "affine", "lm_head": False,
             "model.layers.0.mlp.up_proj": {"group_size": 64, "bits": 8}}


def configs():
    for kind in ("llama", "qwen3", "qwen3_moe"):
        write("config", kind, json.dumps(config(kind)))
    write("config", "llama3", json.dumps(config("llama", rope_scaling=LLAMA3)))
    write("config", "linear", json.dumps(config("qwen3", rope_scaling={"type": "linear", "factor": 2.0})))
    write("config", "quantized", json.dumps(config("qwen3", quantization=QUANTIZED, quantization_config=QUANTIZED)))


def safetensors():
    tensors = {"a": ("F32", [2, 3]), "b": ("BF16", [4]), "c": ("I64", [2]), "d": ("F64", [1, 1, 2]), "e": ("U8", [3]),
               "f": ("F16", []), "g": ("U32", [0, 2]), "h": ("BOOL", [2])}
    write("safetensors", "raw", raw_safetensors(tensors))
    write("safetensors", "raw_one", raw_safetensors({"w": ("F32", [1])}))
    write("safetensors", "header", header(tensors, {"format": "mlx"})[0])
    write("safetensors", "empty", header({})[0])


def layer(kind, linear):
    """One layer's tensors; linear(path, rows, cols) gives a matrix's."""
    p = "model.layers.0."
    found = {"model.norm.weight": ("BF16", [64]), p + "input_layernorm.weight": ("BF16", [64]),
             p + "post_attention_layernorm.weight": ("BF16", [64])}
    found |= linear("model.embed_tokens", [8, 64])
    for name, shape in (("q", [64, 64]), ("k", [32, 64]), ("v", [32, 64]), ("o", [64, 64])):
        found |= linear(f"{p}self_attn.{name}_proj", shape)
    if kind != "llama":
        found |= {f"{p}self_attn.{n}_norm.weight": ("BF16", [32]) for n in "qk"}
    if kind == "qwen3_moe":
        found |= linear(p + "mlp.gate", [2, 64])
        for name in ("gate", "up", "down"):
            for expert in (0, 1):
                found |= linear(f"{p}mlp.experts.{expert}.{name}_proj", [64, 64])
    else:
        for name in ("gate", "up", "down"):
            found |= linear(f"{p}mlp.{name}_proj", [64, 64])
    return found


def dense(path, shape):
    return {path + ".weight": ("BF16", shape)}


def packed(path, shape):
    return {path + ".weight": ("U32", shape[:-1] + [shape[-1] * 4 // 32]),
            path + ".scales": ("BF16", shape[:-1] + [shape[-1] // 32]),
            path + ".biases": ("BF16", shape[:-1] + [shape[-1] // 32])}


def directories():
    for kind in ("llama", "qwen3", "qwen3_moe"):
        files = {"config.json": json.dumps(config(kind)), "model.safetensors": header(layer(kind, dense))[0]}
        write("directory", kind, named_sections(files))
    plain = {"group_size": 32, "bits": 4}
    files = {"config.json": json.dumps(config("qwen3", quantization=plain)),
             "model.safetensors": header(layer("qwen3", packed), {"format": "mlx"})[0]}
    write("directory", "quantized", named_sections(files))
    small = {"a.weight": ("F32", [2, 32])}
    first, second = header(small)[0], header({"b.weight": ("F32", [64])})[0]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"metadata": {"total_size": 512}, "weight_map": {"a.weight": shards[0], "b.weight": shards[1]}}
    files = {"config.json": json.dumps(config("llama")), "model.safetensors.index.json": json.dumps(index),
             shards[0]: first, shards[1]: second, "tokenizer_config.json": "{}", "chat_template.jinja": "{{ bos_token }}"}
    write("directory", "sharded", named_sections(files))


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf():
    values = [("general.architecture", struct.pack("<I", 8) + gguf_string("llama")),
              ("general.alignment", struct.pack("<II", 4, 32)), ("x.f", struct.pack("<If", 6, 0.5)),
              ("x.list", struct.pack("<IIQ", 9, 5, 2) + struct.pack("<ii", 1, -2)),
              ("x.words", struct.pack("<IIQ", 9, 8, 2) + gguf_string("a") + gguf_string("bc")),
              ("x.nested", struct.pack("<IIQIQ", 9, 9, 1, 0, 3) + b"abc")]
    table = gguf_string("w") + struct.pack("<IQQIQ", 2, 32, 1, 0, 0) + gguf_string("q") + struct.pack("<IQIQ", 1, 32, 8, 128)
    text = b"GGUF" + struct.pack("<IQQ", 3, 2, len(values)) + b"".join(gguf_string(k) + v for k, v in values) + table
    text += bytes(-len(text) % 32) + struct.pack("<32f", *range(32)) + bytes(range(34)) + bytes(30)
    write("gguf", "raw", text)
    for kind in ("llama", "qwen3", "qwen3moe"):
        keys = {"block_count": 1, "context_length": 64, "embedding_length": 32, "attention.head_count": 2,
                "attention.head_count_kv": 1, "attention.key_length": 16, "feed_forward_length": 32,
                "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 5e5}
        tensors = {"token_embd.weight": [8, 32, 9 if kind == "llama" else 8], "output_norm.weight": [0, 32], "blk.0.attn_norm.weight": [0, 32],
                   "blk.0.ffn_norm.weight": [0, 32], "blk.0.attn_q.weight": [2, 32, 32], "blk.0.attn_k.weight": [1, 32, 16],
                   "blk.0.attn_v.weight": [6, 32, 16], "blk.0.attn_output.weight": [30, 32, 32]}
        if kind == "qwen3moe":
            keys |= {"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 32}
            tensors |= {"blk.0.ffn_gate_inp.weight": [0, 32, 2], "blk.0.ffn_gate_exps.weight": [3, 32, 32, 2],
                        "blk.0.ffn_up_exps.weight": [7, 32, 32, 2], "blk.0.ffn_down_exps.weight": [8, 32, 32, 2]}
        else:
            tensors |= {f"blk.0.ffn_{n}.weight": [8, 32, 32] for n in ("gate", "up", "down")}
        if kind != "llama":
            tensors |= {"blk.0.attn_q_norm.weight": [0, 16], "blk.0.attn_k_norm.weight": [0, 16]}
        keys = {"general.architecture": kind} | {f"{kind}.{k}": v for k, v in keys.items()}
        keys |= {f"tokenizer.ggml.{k}": v for k, v in (SPM if kind == "llama" else BPE).items()}
        write("gguf", kind, json.dumps({"keys": keys, "tensors": tensors}))
    blocks = {f"t{i}": [i, 256, 2] for i in (0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 30)}
    write("gguf", "blocks", json.dumps({"keys": {"general.alignment": 64}, "tensors": blocks}))


SPM = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "h", "e", "\u2581h", "he"],
       "scores": [0.0, 0.0, 0.0, 0.0, -5.0, -4.0, -4.0, -1.0, -2.0], "token_type": [2, 3, 3, 6, 1, 1, 1, 1, 1],
       "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, "add_bos_token": True, "chat_template": "{{ x }}"}
BPE = {"model": "gpt2", "pre": "qwen2", "tokens": ["H", "e", "l", "o", "He", "ll", "\u0120", "<end>"],
       "merges": ["H e", "l l"], "token_type": [1, 1, 1, 1, 1, 1, 1, 3], "eos_token_id": 7, "add_bos_token": False}


def added(token, number, **more):
    return {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True} | more


def tokenizer(vocabulary, merges, model=None, **parts):
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    bpe |= (model or {}) | {"vocab": {token: i for i, token in enumerate(vocabulary)}, "merges": merges}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return json.dumps(whole | parts | {"model": bpe})


def kinds(*names):
    return [{"type": name} for name in names]


def tokenizers():
    letters = list("abcdehlorw") + ["\u0120", "\u00c3", "\u00b6"]
    text = " hello w\u00f6rld  <end> 12"
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+| ?\d{1,3}|\s+(?!\S)|[^\s]"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    byte_level = tokenizer(letters + ["he", "ll"], ["h e", "l l"], added_tokens=[added("<end>", 15, lstrip=True)],
                           normalizer={"type": "Sequence", "normalizers": kinds("NFC", "NFD", "NFKC", "NFKD", "Lowercase")},
                           pre_tokenizer={"type": "Sequence", "pretokenizers": [split, level | {"use_regex": False}]},
                           post_processor=level, decoder=level)
    write("tokenizer", "byte_level", sections(tokenizer=byte_level, config=json.dumps({"eos_token": "<end>"}), text=text))
    around = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    mark = "\u2581"
    spm = tokenizer(["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", mark] + list("helo") + ["he", mark + "he"],
                    [["h", "e"], [mark, "he"]], {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
                    added_tokens=[added("<unk>", 0), added("<s>", 1), added("</s>", 2, single_word=True)],
                    normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark},
                                {"type": "Replace", "pattern": {"String": " "}, "content": mark}]},
                    post_processor=around,
                    decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": mark}, "content": " "},
                             {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    write("tokenizer", "spm", sections(tokenizer=spm, config=json.dumps({"bos_token": {"content": "<s>"}}), text=text))
    metaspace = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}
    words = tokenizer([mark, "he"] + list("helo12"), ["h e"], {"ignore_merges": True},
                      normalizer={"type": "Strip", "strip_left": True, "strip_right": True},
                      pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "Whitespace"}, metaspace]},
                      decoder=metaspace)
    write("tokenizer", "metaspace", sections(tokenizer=words, text=text))
    plain = tokenizer(list("ab"), [])
    write("tokenizer", "plain", sections(tokenizer=plain, text="abab"))
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        cut = {"type": "Split", "pattern": {"String": "b"}, "behavior": behavior, "invert": behavior == "Contiguous"}
        write("tokenizer", behavior.lower(), sections(tokenizer=tokenizer(["a", "b", "ab"], ["a b"], pre_tokenizer=cut), text="aabba"))


TEMPLATES = {
    "loop": """{%- for m in messages %}
    {%- if m.role == 'user' and loop.first -%} {{ bos_token + m['content'] | trim }}
    {%- elif m.role != "system" %}{{ '<' ~ m.role ~ '>' + m.content.strip() + eos_token }}{% else %}{{ raise_exception('no') }}
    {%- endif -%}
{%- endfor %}{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif -%}""",
    "names": """{% set ns = namespace(n=0, last='') %}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 * 2 %}
{%- set ns.last = m.content.split('.')[0].lstrip('H') %}{%- endfor %}{{ ns.n // 3 % 2 ** 3 }} {{ ns.last | upper }}""",
    "macro": """{% macro show(x, y=3) %}[{{ x }}{{ y }}]{% endmacro %}{{ show('a') }}{{ show(1, y=2) }}""",
    "tools": """{% if tools is defined and tools %}{{ tools | tojson(indent=2) }}{{ tools | length }}{% endif %}
{%- for k, v in tools[0].items() %}{{ k }}={{ v }}, {% endfor %}{{ (1, 2.5, none, true) }}{{ {'a': [1, 'b']} }}""",
    "filters": """{{ ['b', 'a'] | join(', ') }}{{ 'abc'[1:] }}{{ x | default('none') }}{{ messages | map(attribute='role') | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 'A b'.title().replace('b', 'c') }}{{ 3 in range(5) }}
{{ 'x' if not enable_thinking else 'y' }}{# a comment #}{{ "%s" | string }}{{ -1 | abs }}""",
}


def chat_templates():
    chat = json.dumps([{"role": "user", "content": "Hi. How?"}, {"role": "assistant", "content": " Well. "}])
    for name, template in TEMPLATES.items():
        write("chat_template", name, sections(template=template, messages=chat))


def texts():
    lines = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": [{"name": "x"}]},
             {"prompt": "p", "completion": "c"}, {"text": "t\u00e9"}]
    write("text", "jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    write("text", "plain", "\ufeffone\n\n\ntwo \u00e9\r\n")


def imatrices():
    values = [("general.type", struct.pack("<I", 8) + gguf_string("imatrix")),
              ("imatrix.datasets", struct.pack("<IIQ", 9, 8, 1) + gguf_string("a.txt")),
              ("imatrix.chunk_count", struct.pack("<II", 4, 3)), ("imatrix.chunk_size", struct.pack("<II", 4, 512))]
    table = (gguf_string("w.in_sum2") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0) +
             gguf_string("w.counts") + struct.pack("<IQQIQ", 2, 1, 2, 0, 32))
    text = b"GGUF" + struct.pack("<IQQ", 3, 2, len(values)) + b"".join(gguf_string(k) + v for k, v in values) + table
    text += bytes(-len(text) % 32)
    write("imatrix", "gguf", text + struct.pack("<8f", *range(8)) + struct.pack("<2f", 4, 0) + bytes(24))
    entry = struct.pack("<i", 1) + b"w" + struct.pack("<ii3f", 2, 3, 1, 2, 3)
    write("imatrix", "dat", struct.pack("<i", 1) + entry + struct.pack("<ii", 5, 5) + b"a.txt")


if __name__ == "__main__":
    for make in (configs, safetensors, directories, gguf, imatrices, tokenizers, chat_templates, texts):
        make()
