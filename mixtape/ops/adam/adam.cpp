#include "mixtape/ops/adam/adam.h"

#include <cmath>

#include "mixtape/ops/adam/adam_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_parameter(const char* op, const std::string& argument, const Buffer& b) {
  require(b && is_value(b.dtype()), op, ": ", argument, " is ", b, ", expected f32, bf16 or f16");
}

void check_tensor(std::size_t i, const AdamTensor& t) {
  const std::string at = str("tensors[", i, "].");
  check_parameter("adam_step", at + "p", t.p);
  check_parameter("adam_step", at + "g", t.g);
  require(t.g.shape() == t.p.shape(), "adam_step: ", at, "g is ", t.g, ", expected the shape of p ", t.p);
  const bool is_bf16 = t.m && t.m.dtype() == DType::bf16;
  const DType moments = is_bf16 ? DType::bf16 : DType::f32;
  check_is("adam_step", (at + "m").c_str(), t.m, moments, t.p.shape());
  check_is("adam_step", (at + "v").c_str(), t.v, moments, t.p.shape());
  require(std::isfinite(t.unit), "adam_step: ", at, "unit is ", t.unit, ", expected a finite number");
  const Buffer* all[] = {&t.p, &t.g, &t.m, &t.v};
  const char* names[] = {"p", "g", "m", "v"};
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < a; ++b)
      check_no_overlap("adam_step", (at + names[a]).c_str(), *all[a], names[b], *all[b]);
  }
}

void check_options(const AdamOptions& o) {
  require(std::isfinite(o.lr), "adam_step: lr is ", o.lr, ", expected a finite number");
  for (const float beta : {o.beta1, o.beta2}) {
    require(beta >= 0.0f && beta < 1.0f, "adam_step: a beta is ", beta, ", expected 0 to below 1");
  }
  require(std::isfinite(o.eps) && o.eps > 0.0f, "adam_step: eps is ", o.eps, ", expected a positive number");
  require(std::isfinite(o.weight_decay), "adam_step: weight_decay is ", o.weight_decay,
          ", expected a finite number");
  require(o.step >= 1, "adam_step: step is ", o.step, ", expected 1 or more");
}

AdamParams params_of(const AdamOptions& o) {
  const double beta1 = static_cast<double>(o.beta1), beta2 = static_cast<double>(o.beta2);
  const auto step = static_cast<double>(o.step);
  AdamParams p{};
  p.beta1 = o.beta1;
  p.beta2 = o.beta2;
  p.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  p.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  p.correction1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, step)));
  p.correction2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, step)));
  p.eps = o.eps;
  p.lr = o.lr;
  p.keep = static_cast<float>(1.0 - static_cast<double>(o.lr) * static_cast<double>(o.weight_decay));
  p.grad_scale = o.grad_scale;
  p.seed = adam_seed(o.step);
  return p;
}

}  // namespace

void adam_step(CommandEncoder& encoder, const std::vector<AdamTensor>& tensors, const AdamOptions& options) {
  check_options(options);
  Dispatch dispatch{
      .kernel = "adam_step", .params = params_bytes(params_of(options)), .reads = {}, .writes = {}};
  std::vector<float> units;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const AdamTensor& t = tensors[i];
    check_tensor(i, t);
    if (t.p.numel() == 0) continue;
    dispatch.reads.push_back(t.g);
    dispatch.writes.insert(dispatch.writes.end(), {t.p, t.m, t.v});
    units.push_back(t.unit);
  }
  if (units.empty()) return;
  dispatch.reads.push_back(Buffer::from(encoder.device(), {static_cast<std::int64_t>(units.size())}, units));
  encoder.encode(dispatch);
}

void sum_of_squares(CommandEncoder& encoder, const std::vector<Buffer>& tensors, const Buffer& out) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_parameter("sum_of_squares", str("tensors[", i, "]"), tensors[i]);
    check_no_overlap("sum_of_squares", "out", out, str("tensors[", i, "]").c_str(), tensors[i]);
  }
  check_is("sum_of_squares", "out", out, DType::f32, {1});
  encoder.encode({.kernel = "sum_of_squares", .params = {}, .reads = tensors, .writes = {out}});
}

}  // namespace mixtape
