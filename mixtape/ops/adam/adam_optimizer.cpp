#include "mixtape/ops/adam/adam_optimizer.h"

#include <cmath>

namespace mixtape {

Adam::Adam(std::vector<Var> parameters, const AdamOptions& options, std::vector<float> units, DType moments)
    : parameters_(std::move(parameters)), options_(options), units_(std::move(units)) {
  require(!parameters_.empty(), "adam: found no parameters, expected at least one");
  if (units_.empty()) units_.assign(parameters_.size(), 1.0f);
  require(units_.size() == parameters_.size(), "adam: found ", units_.size(), " units, expected ",
          parameters_.size());
  require(moments == DType::f32 || moments == DType::bf16, "adam: moments are ", moments,
          ", expected f32 or bf16");
  const Tape& tape = common_tape("adam", parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Buffer& p = parameters_[i].value();
    require(parameters_[i].requires_grad(), "adam: parameter ", i, ", ", p, ", requires no gradient");
    for (std::size_t j = 0; j < i; ++j)
      require(!overlap(p, parameters_[j].value()), "adam: parameters ", j, " and ", i, " share memory");
    moments_.push_back({tape.device().alloc(moments, p.shape()), tape.device().alloc(moments, p.shape())});
  }
}

void Adam::step() {
  std::vector<AdamTensor> tensors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Buffer gradient = parameters_[i].grad();
    if (!gradient) continue;
    tensors.push_back({parameters_[i].value(), gradient, moments_[i].first, moments_[i].second, units_[i]});
  }
  options_.step = steps_ + 1;
  adam_step(parameters_[0].tape().encoder(), tensors, options_);
  ++steps_;
}

void Adam::zero_grad() const {
  for (const Var& v : parameters_) v.clear_grad();
}

double Adam::gradient_norm() const {
  CommandEncoder& encoder = parameters_[0].tape().encoder();
  const Buffer squares = encoder.device().alloc(DType::f32, {1});
  sum_of_squares(encoder, gradients(), squares);
  encoder.commit_and_wait();
  return std::sqrt(static_cast<double>(squares.to_vector<float>()[0]));
}

std::vector<Buffer> Adam::gradients() const {
  std::vector<Buffer> all;
  for (const Var& v : parameters_) {
    if (v.grad()) all.push_back(v.grad());
  }
  return all;
}

}  // namespace mixtape
