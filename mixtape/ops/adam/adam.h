// One step of Adam with decoupled weight decay, in place, over many tensors in one call.
//   g' = grad_scale * g     m = beta1*m + (1-beta1)*g'     v = beta2*v + (1-beta2)*g'^2
//   p = p*(1 - lr*weight_decay) - lr*unit * (m / (1-beta1^step)) / (sqrt(v / (1-beta2^step)) + eps)
// Shapes: p, g, m, v of a tensor alike; p and g f32, bf16 or f16 each, m and v both f32 or both bf16. Tensors may be
//   empty.
// Computed in f32, p rounded once. A 16-bit p loses steps smaller than half its last bit: train f32 masters.
// m and v in bf16 save 4 bytes a weight. They are rounded up or down, p follows from what they were before: up with the
//   probability of the part that is cut off, in 65536ths, so that what is too small for bf16 to hold, v's share
//   1 - beta2, arrives on average. The bits follow from the step and the element's index: the same on every device.
// Saved for backward: nothing, there is no backward.
// Deterministic. A NaN in g goes to p, m and v.
// Accuracy of one step: v 3 units; m 2 units of its larger term, in bf16 1 unit more each; p 3 units, and 12 units of f32 of the step
//   it would take with the larger term of m alone.
// Errors: invalid_argument for dtypes, shapes or devices that disagree, buffers that share memory, options
//   out of range.
#pragma once

#include <vector>

#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct AdamTensor {
  Buffer p, g, m, v;
  float unit = 1.0f;  // of the tensor's step: lr in units of it
};

struct AdamOptions {
  float lr = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;  // a share of p, whatever its unit
  std::int64_t step = 1;      // counts from 1
  float grad_scale = 1.0f;    // for clipping, or a mean over accumulated batches
};

void adam_step(CommandEncoder& encoder, const std::vector<AdamTensor>& tensors, const AdamOptions& options);

// out f32 [1] = sum of the squares of all elements, f32, bf16 or f16. Summed in f32 within blocks whose size
// is fixed, in f64 across them; accuracy 600 * 2^-24 relative. For clipping by the global norm. 0 for no
// tensors.
void sum_of_squares(CommandEncoder& encoder, const std::vector<Buffer>& tensors, const Buffer& out);

}  // namespace mixtape
