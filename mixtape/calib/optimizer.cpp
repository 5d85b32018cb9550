#include "mixtape/calib/optimizer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mixtape/core/mix.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

// Of the part of a weight that is called `suffix`.
double unit_of(const QuantizedWeight& weight, const std::string& suffix) {
  const std::vector<WeightPart> parts =
      codec_of(weight).parts(weight_shape(weight), format_of(weight), DType::f32);
  const auto part =
      std::find_if(parts.begin(), parts.end(), [&](const WeightPart& p) { return p.suffix == suffix; });
  return codec_of(weight).unit(weight, static_cast<std::size_t>(part - parts.begin()));
}

std::vector<Var> vars_of(const std::vector<NamedVar>& leaves) {
  std::vector<Var> vars;
  for (const NamedVar& leaf : leaves) vars.push_back(leaf.var);
  return vars;
}

}  // namespace

std::vector<float> relative_units(const std::vector<NamedVar>& leaves, const Parameters& parameters) {
  std::vector<float> units;
  for (const NamedVar& leaf : leaves) {
    if (leaf.name.ends_with(kLatentSuffix)) {
      units.push_back(1.0f);
      continue;
    }
    const std::size_t dot = leaf.name.rfind('.');
    const auto module = parameters.quantized.find(leaf.name.substr(0, dot));
    const double unit = module == parameters.quantized.end() ? mean_magnitude(leaf.var.value())
                                                             : unit_of(module->second, leaf.name.substr(dot));
    units.push_back(static_cast<float>(std::max(unit, 1e-8)));
  }
  return units;
}

Optimizer::Optimizer(const std::vector<NamedVar>& leaves, std::vector<float> units)
    : adam_(vars_of(leaves), {}, std::move(units)) {
  for (const NamedVar& leaf : leaves) {
    const Buffer& p = leaf.var.value();
    require(p.dtype() == DType::f32, "train: '", leaf.name, "' is ", p, ", expected f32 masters");
    names_.push_back(leaf.name);
    best_.push_back(p.device().alloc_uninitialized(DType::f32, p.shape()));
  }
  keep_best();
}

void Optimizer::step(double rate, double weight_decay, double clip_norm, Communicator& communicator) {
  reduce_gradients(communicator);
  AdamOptions& options = adam_.options();
  options.lr = static_cast<float>(rate);
  options.weight_decay = static_cast<float>(weight_decay);
  options.grad_scale = 1.0f;
  if (clip_norm > 0.0) {
    const double norm = adam_.gradient_norm();
    if (norm > clip_norm) options.grad_scale = static_cast<float>(clip_norm / norm);
  }
  adam_.step();
  adam_.parameters()[0].tape().encoder().commit();
}

void Optimizer::zero_gradients() const {
  for (const Var& v : adam_.parameters()) {
    if (v.grad()) v.tape().encoder().fill(v.grad(), 0.0f);
  }
}

// A member whose rows had no target has no gradients: it adds zeros.
void Optimizer::reduce_gradients(Communicator& communicator) const {
  if (communicator.size() == 1) return;
  Tape& tape = adam_.parameters()[0].tape();
  std::vector<Buffer> gradients;
  for (const Var& v : adam_.parameters()) {
    if (!v.grad()) tape.backward(v, tape.device().alloc(v.dtype(), v.shape()));
    gradients.push_back(v.grad());
  }
  communicator.all_reduce_sum(tape.encoder(), gradients);
}

void Optimizer::keep_best() const {
  for (std::size_t i = 0; i < best_.size(); ++i) {
    const Var& v = adam_.parameters()[i];
    v.tape().encoder().copy(v.value(), best_[i]);
  }
}

void Optimizer::restore_best() const {
  for (std::size_t i = 0; i < best_.size(); ++i) {
    const Var& v = adam_.parameters()[i];
    v.tape().encoder().copy(best_[i], v.value());
  }
}

void Optimizer::wait() const { adam_.parameters()[0].tape().encoder().commit_and_wait(); }

void Optimizer::expect_equal_values(Communicator& communicator) const {
  if (communicator.size() == 1) return;
  wait();
  std::uint64_t bits = static_cast<std::uint64_t>(steps());
  for (const Var& v : adam_.parameters()) {
    for (const float value : v.value().to_vector<float>())
      bits = mix_bits(bits ^ std::bit_cast<std::uint32_t>(value));
  }
  if (communicator.agrees(static_cast<std::uint32_t>(bits))) return;
  fail(ErrorCode::device, "train: after step ", steps(), " the parameters on ",
       adam_.parameters()[0].tape().device().name(),
       " are not those of the other devices, expected the same bits");
}

template <class Fn>
void Optimizer::for_each_tensor(const Fn& fn) const {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    fn(names_[i] + ".value", adam_.parameters()[i].value());
    fn(names_[i] + ".first_moment", adam_.moments()[i].first);
    fn(names_[i] + ".second_moment", adam_.moments()[i].second);
    fn(names_[i] + ".best", best_[i]);
  }
}

std::vector<TensorSpec> Optimizer::specs() const {
  std::vector<TensorSpec> specs = {{"units", FileDType::F32, {static_cast<std::int64_t>(names_.size())}}};
  for_each_tensor([&](const std::string& name, const Buffer& b) {
    specs.push_back({name, FileDType::F32, b.shape()});
  });
  return specs;
}

void Optimizer::write(SafetensorsWriter& writer) const {
  wait();
  writer.write("units", std::as_bytes(std::span(adam_.units())));
  for_each_tensor([&](const std::string& name, const Buffer& b) { writer.write(name, b); });
}

void Optimizer::read(const SafetensorsFile& file, std::int64_t steps) {
  const auto view = [&](const std::string& name, const Shape& shape) {
    const TensorView& found = file.at(name);
    if (found.dtype != FileDType::F32 || !(found.shape == shape)) {
      fail(ErrorCode::format, file.where(), ": tensor '", name, "' is ", found.dtype, found.shape,
           ", expected F32", shape);
    }
    return found.bytes.data();
  };
  std::vector<float>& units = adam_.units();
  std::memcpy(units.data(), view("units", {static_cast<std::int64_t>(units.size())}),
              units.size() * sizeof(float));
  wait();
  for_each_tensor([&](const std::string& name, const Buffer& b) { b.write_bytes(view(name, b.shape())); });
  adam_.set_steps(steps);
}

}  // namespace mixtape
