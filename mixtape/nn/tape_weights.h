// A model's parameters on a tape, by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mixtape/autograd/tape.h"
#include "mixtape/nn/parameters.h"

namespace mixtape {

// Which parameters get gradients.
enum class Trainable {
  nothing,
  quantization,  // what scales and biases of matrices below 8 bits follow from
  everything,    // every dense tensor, and every scale and bias
};

// Of the leaf of a matrix's codes that learn.
inline constexpr const char* kLatentSuffix = ".latent";

struct NamedVar {
  std::string name;  // "...up_proj.scales"
  Var var;
};

// Is told the input of each product with a matrix, before it: x [..., K], or for stacked experts x [T, K] sorted by
// expert with offsets u32 [E+1], else null.
using InputObserver = std::function<void(const std::string& path, const Var& x, const Buffer& offsets)>;

// A matrix [N, K] (or stacked experts [E, N, K]): one of the two.
struct Matrix {
  Var dense;
  QuantizedVar quantized;
  Var latent;  // codes that learn, instead of those; else null
  std::function<void(const Var& x, const Buffer& offsets)> observe = {};  // null: nobody wants to know

  bool is_quantized() const { return static_cast<bool>(quantized.codes); }
};

class TapeWeights {
 public:
  TapeWeights(Tape& tape, const Parameters& parameters, Trainable trainable);
  // Streams: each tensor is loaded from the source, in `dtype`, whenever it is asked for, and lives as long
  // as what was handed out; nothing trains. For models that are larger than the device's memory. Throws
  // not_supported for a source of quantized matrices.
  TapeWeights(Tape& tape, const ModelSource& source, DType dtype);

  // For the matrices that are asked for from now on.
  void observe_inputs(InputObserver observer) { observer_ = std::move(observer); }
  // The matrix of this path is `weight`, where it is asked for from now on; it does not train.
  void replace(const std::string& path, const QuantizedWeight& weight) {
    replaced_.insert_or_assign(path, weight);
  }

  Tape& tape() const { return tape_; }
  bool is_streamed() const { return source_ != nullptr; }
  // Throw format naming the tensor that is not there.
  Matrix matrix(const std::string& path);
  Var vector(const std::string& name);
  bool has_vector(const std::string& name) const;

  // Around the passes of a step, where scales and biases per group follow from other parts that train (GGUF's
  // blocks): before the first, the values of what was handed out follow from the parts as they are now; after the last,
  // the gradients that gathered there go on to the parts.
  void renew();
  void pass_gradients();

  // Everything handed out so far that gets a gradient, in the order of asking.
  const std::vector<NamedVar>& trainable() const { return trainable_; }

 private:
  Matrix load(const std::string& path);
  QuantizedVar quantized(const std::string& path, const QuantizedWeight& weight);
  Var leaf(const std::string& name, const Buffer& value, bool trains);
  // Scales and biases per group, and the parts that they follow from. A step walks back to them many times, by every
  // block of the output layer's positions and by a tied embedding, but may walk a record only once: so products take
  // leaves, whose values are copied from what `made` gives.
  struct Derived {
    QuantizedWeight weight;
    std::vector<Var> parts;  // behind the codes
    QuantizedVar leaves, made;
  };

  Tape& tape_;
  const Parameters* parameters_ = nullptr;
  const ModelSource* source_ = nullptr;
  DType dtype_ = DType::f32;  // of what is streamed
  Trainable mode_;
  InputObserver observer_;
  std::map<std::string, QuantizedWeight> replaced_;
  std::map<std::string, Matrix> matrices_;
  std::vector<Derived> derived_;
  std::vector<NamedVar> trainable_;
};

// f32 masters, and whatever else, in the dtype where they are used.
Var in_dtype(const Var& v, DType dtype);
// y = x W^T, in x's dtype or `out`; x [..., K].
Var linear(const Var& x, const Matrix& w, DType out);
Var linear(const Var& x, const Matrix& w);
// onto + x W^T + bias, in x's dtype; null: without. In one pass where there is no bias.
Var linear_onto(const Var& onto, const Var& x, const Matrix& w, const Var& bias);
// With one matrix per expert: x [T, K] sorted by expert, offsets u32 [E+1].
Var grouped_linear(const Var& x, const Matrix& w, const Buffer& offsets);
// silu(x gate^T) * (x up^T) of such matrices.
Var grouped_gated(const Var& x, const Matrix& gate, const Matrix& up, const Buffer& offsets);
// x + bias, the bias in x's dtype; x where the bias is null.
Var add_bias(const Var& x, const Var& bias);
// The same with one bias per expert, [E, N]: x [T, N], experts u32 [T], the expert of each row.
Var add_bias(const Var& x, const Var& bias, const Buffer& experts);
// factor * x; x where the factor is 1.
Var scaled(const Var& x, double factor);
// Rows of the matrix in `dtype`: [..., K] for ids of any shape.
Var lookup(const Matrix& table, const Buffer& ids, DType dtype);

}  // namespace mixtape
