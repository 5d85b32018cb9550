#include "mixtape/calib/gptq.h"

#include <cmath>
#include <numeric>

#include "mixtape/ops/cholesky/cholesky.h"
#include "mixtape/ops/gptq/gptq.h"

namespace mixtape {
namespace {

// L with H + damping * mean(diag H) * I = L^T L; null where there is none with any damping up to 1.
Buffer factor(const Buffer& h, double mean_diagonal, double damping) {
  const Device& device = h.device();
  const auto cols = static_cast<std::size_t>(h.shape().cols());
  const std::vector<float> undamped = h.to_vector<float>();
  const Buffer pivot = device.alloc_uninitialized(DType::f32, {1});
  for (; damping <= 1.0 && mean_diagonal > 0.0; damping *= 10.0) {
    std::vector<float> damped = undamped;
    for (std::size_t i = 0; i < cols; ++i)
      damped[i * (cols + 1)] += static_cast<float>(damping * mean_diagonal);
    const Buffer l = Buffer::from(device, h.shape(), damped);
    CommandEncoder encoder(device);
    cholesky_forward(encoder, l, l, pivot);
    encoder.commit_and_wait();
    if (pivot.to_vector<float>()[0] > 0.0f) return l;
  }
  return {};
}

double mean(const Buffer& b) {
  const std::vector<float> v = b.to_vector<float>();
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

// One matrix [N, K], or an expert's: chooses the codes of q anew. Returns whether it could.
struct Problem {
  Buffer w, mean_squares, second_moments;
  QuantizedWeight q;
  std::int64_t tokens = 0;

  bool solve(double damping) const {
    const double mean_diagonal = mean(mean_squares) * static_cast<double>(tokens);
    const Buffer l = std::isfinite(mean_diagonal) ? factor(second_moments, mean_diagonal, damping) : Buffer();
    if (!l) return false;
    CommandEncoder encoder(w.device());
    gptq_forward(encoder, w, l, q);
    encoder.commit_and_wait();
    return true;
  }
};

Buffer part(const Buffer& stacked, std::int64_t e) {
  const Shape& s = stacked.shape();
  return stacked.slice(e, e + 1).reshape(Shape(std::vector(s.dims().begin() + 1, s.dims().end())));
}

QuantizedWeight part(const QuantizedWeight& q, std::int64_t e) {
  return {part(q.codes, e), part(q.scales, e), part(q.biases, e), q.format};
}

QuantizedWeight improve_codes(const GptqOptions& o, const FitInput& in) {
  require(in.previous != nullptr, "gptq: no scales for '", in.module.path,
          "', expected a method that fits first");
  QuantizedWeight q = *in.previous;
  if (!in.inputs || in.module.kind == TensorKind::embedding) return q;
  q.codes = copy_of(q.codes);
  const InputStatistics& x = *in.inputs;
  if (x.second_moments.shape().rank() == 2) {
    if (!Problem{in.w, x.mean_squares, x.second_moments, q, x.tokens[0]}.solve(o.damping))
      in.notes.push_back(str(in.module.path, ": its inputs' second moments have no factor, codes kept"));
    return q;
  }
  std::string kept;
  for (std::int64_t e = 0; e < in.w.shape()[0]; ++e) {
    const std::int64_t tokens = x.tokens[static_cast<std::size_t>(e)];
    const bool solved =
        tokens >= o.least_tokens &&
        Problem{part(in.w, e), part(x.mean_squares, e), part(x.second_moments, e), part(q, e), tokens}.solve(
            o.damping);
    if (!solved) kept += str(kept.empty() ? "" : ", ", e, " (", tokens, ")");
  }
  if (!kept.empty())
    in.notes.push_back(str(in.module.path, ": codes kept of experts with too few tokens: ", kept));
  return q;
}

}  // namespace

Method gptq(const GptqOptions& options) {
  return {.name = "gptq",
          .fit = [options](const FitInput& in) { return improve_codes(options, in); },
          .statistics = Statistics::second_moments,
          .check =
              [options](const ModelSource&, const CalibrationData&) {
                require(options.damping > 0.0 && options.damping <= 1.0, "gptq: damping is ", options.damping,
                        ", expected more than 0, at most 1");
                require(options.least_tokens > 0, "gptq: least_tokens is ", options.least_tokens,
                        ", expected 1 or more");
              }};
}

}  // namespace mixtape
