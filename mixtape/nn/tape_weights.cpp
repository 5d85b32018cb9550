#include "mixtape/nn/tape_weights.h"

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/latent_codes/latent_codes.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/ops/moe_route/grouped_swiglu.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {

TapeWeights::TapeWeights(Tape& tape, const Parameters& parameters, Trainable trainable)
    : tape_(tape), parameters_(&parameters), mode_(trainable) {}

TapeWeights::TapeWeights(Tape& tape, const ModelSource& source, DType dtype)
    : tape_(tape), source_(&source), dtype_(dtype), mode_(Trainable::nothing) {
  for (const std::string& name : source.names()) {
    if (name.ends_with(".scales"))
      fail(ErrorCode::not_supported, source.where(), ": '", name, "': a quantized model is not streamed");
  }
}

Var TapeWeights::leaf(const std::string& name, const Buffer& value, bool trains) {
  if (!trains) return tape_.constant(value);
  trainable_.push_back({name, tape_.parameter(value)});
  return trainable_.back().var;
}

// A matrix asked for twice (a tied embedding) is one set of leaves.
Matrix TapeWeights::matrix(const std::string& path) {
  if (is_streamed()) return load(path);
  const auto known = matrices_.find(path);
  return known != matrices_.end() ? known->second : matrices_.emplace(path, load(path)).first->second;
}

Matrix TapeWeights::load(const std::string& path) {
  Matrix m;
  if (const auto other = replaced_.find(path); other != replaced_.end()) {
    const QuantizedWeight& q = other->second;
    m.quantized = {q.codes, tape_.constant(q.scales), tape_.constant(q.biases), q.format};
  } else if (!is_streamed() && parameters_->quantized.contains(path)) {
    m.quantized = quantized(path, parameters_->quantized.at(path));
    if (const auto latent = parameters_->latent.find(path); latent != parameters_->latent.end())
      m.latent = leaf(path + kLatentSuffix, latent->second, mode_ != Trainable::nothing);
  } else {
    m.dense = vector(path + ".weight");
  }
  if (observer_) {
    m.observe = [observer = observer_, path](const Var& x, const Buffer& offsets) {
      observer(path, x, offsets);
    };
  }
  return m;
}

QuantizedVar TapeWeights::quantized(const std::string& path, const QuantizedWeight& weight) {
  const WeightCodec& codec = codec_of(weight);
  const std::vector<Buffer> buffers = codec.buffers(weight);
  const std::vector<WeightPart> parts =
      codec.parts(weight_shape(weight), format_of(weight), weight.scales.dtype());
  std::vector<Var> behind_codes;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool trains =
        mode_ == Trainable::everything || (mode_ == Trainable::quantization && parts[i].trains);
    behind_codes.push_back(leaf(path + parts[i].suffix, buffers[i], trains));
  }
  const QuantizedVar made = codec.on_tape(weight, behind_codes);
  const bool is_derived = made.scales.requires_grad() && !overlap(made.scales.value(), buffers[1]);
  if (!is_derived) return made;
  derived_.push_back(
      {weight,
       behind_codes,
       {made.codes, tape_.parameter(made.scales.value()), tape_.parameter(made.biases.value()), made.format},
       {}});
  return derived_.back().leaves;
}

void TapeWeights::renew() {
  for (Derived& d : derived_) {
    d.made = codec_of(d.weight).on_tape(d.weight, d.parts);
    tape_.encoder().copy(d.made.scales.value(), d.leaves.scales.value());
    tape_.encoder().copy(d.made.biases.value(), d.leaves.biases.value());
  }
}

void TapeWeights::pass_gradients() {
  const auto pass = [&](const Var& leaf, const Var& made) {
    if (const Buffer gradient = leaf.grad()) tape_.backward(made, gradient);
    leaf.clear_grad();
  };
  for (Derived& d : derived_) {
    pass(d.leaves.scales, d.made.scales);
    pass(d.leaves.biases, d.made.biases);
    d.made = {};
  }
}

Var TapeWeights::vector(const std::string& name) {
  if (!has_vector(name)) fail(ErrorCode::format, "model: tensor '", name, "' is missing");
  if (is_streamed()) return tape_.constant(source_->load(name, dtype_, tape_.device()));
  return leaf(name, parameters_->dense.at(name), mode_ == Trainable::everything);
}

bool TapeWeights::has_vector(const std::string& name) const {
  return is_streamed() ? source_->has(name) : parameters_->dense.contains(name);
}

Var in_dtype(const Var& v, DType dtype) { return v.dtype() == dtype ? v : cast(v, dtype); }

namespace {

// The matrix of codes that learn, decoded.
Var decoded(const Matrix& w, DType dtype) {
  return latent_codes(w.latent, w.quantized.scales, w.quantized.biases, w.quantized.format, dtype);
}

// One matrix per expert that is no quantized one.
Var dense_experts(const Matrix& w, DType dtype) {
  return w.latent.value() ? decoded(w, dtype) : in_dtype(w.dense, dtype);
}

Var product(const Var& x, const Matrix& w, DType out, const Var& addend) {
  if (w.observe) w.observe(x, Buffer());
  if (w.latent.value()) return matmul(x, decoded(w, x.dtype()), false, true, out, addend);
  if (w.is_quantized()) return quantized_matmul(x, w.quantized, out, addend);
  return matmul(x, in_dtype(w.dense, x.dtype()), false, true, out, addend);
}

}  // namespace

Var linear(const Var& x, const Matrix& w, DType out) { return product(x, w, out, Var()); }

Var linear(const Var& x, const Matrix& w) { return linear(x, w, x.dtype()); }

Var linear_onto(const Var& onto, const Var& x, const Matrix& w, const Var& bias) {
  if (!bias.value()) return product(x, w, x.dtype(), onto);
  const Var y = add_bias(linear(x, w), bias);
  return onto.value() ? onto + y : y;
}

Var grouped_gated(const Var& x, const Matrix& gate, const Matrix& up, const Buffer& offsets) {
  const auto is_dense = [](const Matrix& w) { return w.latent.value() || !w.is_quantized(); };
  if (!is_dense(gate) || !is_dense(up))
    return silu_mul(grouped_linear(x, gate, offsets), grouped_linear(x, up, offsets));
  for (const Matrix* w : {&gate, &up})
    if (w->observe) w->observe(x, offsets);
  return grouped_swiglu(x, dense_experts(gate, x.dtype()), dense_experts(up, x.dtype()), offsets);
}

Var grouped_linear(const Var& x, const Matrix& w, const Buffer& offsets) {
  if (w.observe) w.observe(x, offsets);
  if (w.is_quantized() && !w.latent.value()) return grouped_quantized_matmul(x, w.quantized, offsets);
  return grouped_matmul(x, dense_experts(w, x.dtype()), offsets);
}

Var add_bias(const Var& x, const Var& bias) { return bias.value() ? x + in_dtype(bias, x.dtype()) : x; }

Var add_bias(const Var& x, const Var& bias, const Buffer& experts) {
  return bias.value() ? x + in_dtype(embedding(bias, experts), x.dtype()) : x;
}

Var scaled(const Var& x, double factor) { return factor == 1.0 ? x : x * factor; }

Var lookup(const Matrix& table, const Buffer& ids, DType dtype) {
  if (table.is_quantized()) return quantized_embedding(table.quantized, ids, dtype);
  return in_dtype(embedding(table.dense, ids), dtype);
}

}  // namespace mixtape
