"""Losses of 20 steps of training and of DWQ on the parity models, in f32 on the CPU with PyTorch's own Adam.

usage: make_curves.py PARITY_DIR >PARITY_DIR/curves.json        needs torch, transformers, safetensors
Of each folder that is named as its model_type: {"train": [20 losses], "dwq": [20 losses]}, each taken before its step, on one batch: the first 6 columns of input_ids [2,17].
  train  every parameter, mean next-token cross entropy over 2*5 positions, rate 0.003
  dwq    scales and biases of every Linear and Embedding (but routers) as 3 bits in groups of 32, f32; mean over those positions of KL(softmax(teacher/2) || softmax(student/2)), rate 0.002
"""
import json, os, sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
STEPS, BITS, GROUP, T = 20, 3, 32, 2.0
root = sys.argv[1]
def rnd(x): return torch.sign(x) * torch.floor(x.abs() + 0.5)
def quantize(w):  # codes, scales, biases: MLX's rule
    n = 2 ** BITS - 1; x = w.reshape(*w.shape[:-1], w.shape[-1] // GROUP, GROUP)
    lo = x.amin(-1); hi = torch.clamp(x.amax(-1), min=0.0); low = lo.abs() > hi.abs()
    s = torch.clamp((hi - lo) / n, min=1e-7); s = torch.where(low, s, -s)
    edge = torch.where(low, lo, hi); q0 = rnd(edge / s); nz = q0 != 0
    s = torch.where(nz, edge / torch.where(nz, q0, torch.ones_like(q0)), s); b = torch.where(nz, edge, torch.zeros_like(edge))
    return torch.clamp(rnd((x - b[..., None]) / s[..., None]), 0, n), s, b
# gpt_oss has experts' matrices [E, in, out]; groups run along `in`.
def turned(m, name, t): return t.transpose(-1, -2) if m.config.model_type == "gpt_oss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")) else t
def is_quantized(name, t): return t.dim() > 1 and not name.endswith(("mlp.gate.weight", "mlp.router.weight", "_bias")) and "shared_expert_gate" not in name and "conv1d" not in name and t.shape[-1] % GROUP == 0
def losses(leaves, loss, rate):
    adam = torch.optim.Adam(leaves, lr=rate); found = []
    for _ in range(STEPS):
        adam.zero_grad(); l = loss(); l.backward(); adam.step(); found.append(l.item())
    return found
def curves(folder):
    m = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    ids = load_file(os.path.join(folder, "expected.safetensors"))["input_ids"][:, :6]
    params = {k: v.detach().clone() for k, v in m.named_parameters()}
    tied = m.config.tie_word_embeddings
    def logits(w):
        if tied: w = {**w, "lm_head.weight": w["model.embed_tokens.weight"]}
        return torch.func.functional_call(m, w, kwargs=dict(input_ids=ids, use_cache=False)).logits[:, :-1]
    with torch.no_grad(): lp = torch.log_softmax(logits(params) / T, -1)
    codes = {k: quantize(turned(m, k, t)) for k, t in params.items() if is_quantized(k, t)}
    scales = [x.requires_grad_(True) for c, s, b in codes.values() for x in (s, b)]
    def decoded(c, s, b): return (c * s[..., None] + b[..., None]).flatten(-2)
    def student(): return logits({k: turned(m, k, decoded(*codes[k])) if k in codes else t for k, t in params.items()})
    dwq = losses(scales, lambda: (lp.exp() * (lp - torch.log_softmax(student() / T, -1))).sum(-1).mean(), 0.002)
    every = {k: t.clone().requires_grad_(True) for k, t in params.items()}
    train = losses(list(every.values()), lambda: torch.nn.functional.cross_entropy(logits(every).flatten(0, 1), ids[:, 1:].flatten()), 0.003)
    return {"train": [round(x, 7) for x in train], "dwq": [round(x, 8) for x in dwq]}
types = {d: json.load(open(os.path.join(root, d, "config.json")))["model_type"] for d in sorted(os.listdir(root)) if os.path.exists(os.path.join(root, d, "config.json"))}
print("{\n" + ",\n".join(f'"{d}": {json.dumps(curves(os.path.join(root, d)))}' for d, t in types.items() if d == t) + "\n}")
