"""First steps in Python, cell by cell: a model in 3 bits, and ops with gradients on NumPy's arrays.

Runs in seconds on two cores with the model that comes with the source; needs NumPy.
"""

# %% A model and a text. A directory from Hugging Face, an MLX one or a .gguf file: all are read.
from pathlib import Path

import mixtape
import numpy as np

root = Path(__file__).resolve().parents[2]
model = root / "models" / "tiny-moe"
text = [root / "docs" / "architecture.md"]


# %% Calibrate: the 3-bit copy that stays nearest to the model, written for mlx-lm. Ctrl-C stops it.
def show(p):
    if p.done == p.total:
        print(f"{p.stage}: {p.total} {p.unit}")


report = mixtape.calibrate(model, "tiny-moe-3bit", text, bits=3, effort=mixtape.Effort.fast, length=129,
                           validation_rows=8, report_rows=8, progress=show)
cut = mixtape.kl_cut(report.initial, report.result)
print(f"KL fell by {100 * cut.value:.0f} % (standard error {100 * cut.error:.0f} %)")

# %% Measure what was written, on text of your own, against the original.
found = mixtape.evaluate("tiny-moe-3bit", text, model, length=128)
print(f"KL {found.kl.mean:.3f} +- {found.kl.mean_error:.3f}, perplexity {found.perplexity:.2f}, "
      f"same first token in {100 * found.top1_agreement:.0f} % of positions")

# %% Ops on arrays, nothing copied: a softmax, its gradient, and a product with quantized weights.
tape = mixtape.Tape()
x = tape.parameter(np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32))
y = mixtape.softmax(x)
tape.backward(y, np.eye(4, 64, dtype=np.float32))
print("d softmax / d x:", np.from_dlpack(x.grad)[0, :3])

w = mixtape.quantize_matrix(np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32), bits=3)
weight = mixtape.QuantizedVar(w.codes, tape.parameter(w.scales), tape.parameter(w.biases), w.bits, w.group_size)
product = mixtape.quantized_matmul(y.detach(), weight)
tape.backward(product, np.ones((4, 8), np.float32))
print("d product / d scales:", np.from_dlpack(weight.scales.grad).ravel()[:3])
