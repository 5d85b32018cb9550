#include "mixtape/calib/following.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/ops/reduce/axes.h"

namespace mixtape {
namespace {

constexpr int kIterations = 16;
constexpr std::int64_t kElements =
    1 << 23;                      // of the rows solved at a time; half a dozen such tensors are held
constexpr double kLeast = 1e-30;  // a row that is solved stays so

// Per row, [N, 1].
Var dot(const Var& a, const Var& b) { return sum(a * b, {-1}, true); }

// X with X A = R for symmetric A [K, K] of positive definite; each row its own problem.
Var solve(const Var& a, const Var& r) {
  Var x = 0.0 * r, residual = r, direction = r, squared = dot(r, r);
  for (int i = 0; i < kIterations; ++i) {
    const Var moved = matmul(direction, a);
    const Var step = squared / maximum(dot(direction, moved), kLeast);
    x = x + step * direction;
    residual = residual - step * moved;
    const Var next = dot(residual, residual);
    direction = residual + next / maximum(squared, kLeast) * direction;
    squared = next;
  }
  return x;
}

// H + damping * mean(diag H) * I, and of its diagonal f32 [1, K] the roots' reciprocals, 0 where there is none.
struct Damped {
  Buffer h, scales;
};

Damped damp(const Buffer& h, double damping) {
  const auto k = static_cast<std::size_t>(h.shape().cols());
  std::vector<float> moments = h.to_vector<float>(), scales(k);
  double trace = 0.0;
  for (std::size_t i = 0; i < k; ++i) trace += static_cast<double>(moments[i * (k + 1)]);
  for (std::size_t i = 0; i < k; ++i) {
    float& d = moments[i * (k + 1)];
    d += static_cast<float>(damping * trace / static_cast<double>(k));
    scales[i] = d > 0.0f ? 1.0f / std::sqrt(d) : 0.0f;
  }
  return {Buffer::from(h.device(), h.shape(), moments),
          Buffer::from(h.device(), {1, h.shape().cols()}, scales)};
}

}  // namespace

Buffer shifted_target(const Buffer& w, const InputStatistics& inputs, double share, double damping) {
  Tape tape(w.device());
  const NoGrad guard(tape);
  const std::int64_t rows = w.shape().rows(), k = w.shape().cols();
  const auto [damped, scales] = damp(inputs.second_moments, damping);
  const Var by_column = tape.constant(scales), by_row = reshape(by_column, {k, 1});
  const Var a = by_row * tape.constant(damped) * by_column;  // of diagonal 1
  const Var shift = tape.constant(inputs.cross_moments) - tape.constant(inputs.second_moments);
  const Buffer targets = w.device().alloc_uninitialized(DType::f32, w.shape());
  const std::int64_t step = std::max<std::int64_t>(1, kElements / k);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t end = std::min(rows, begin + step);
    const Var part = tape.constant(w.slice(begin, end));
    const Var target = part + share * (solve(a, matmul(part, shift) * by_column) * by_column);
    tape.encoder().copy(target.value(), targets.slice(begin, end));
    tape.encoder().commit_and_wait();
  }
  return targets;
}

Buffer target_of(const PlannedModule& module, const Buffer& w, const InputStatistics* inputs) {
  constexpr double kShare = 0.5, kDamping = 0.01;
  const bool moves = inputs && inputs->cross_moments && module.kind != TensorKind::embedding;
  return moves ? shifted_target(w, *inputs, kShare, kDamping) : w;
}

Method following(Method method) {
  method.statistics = Statistics::cross_moments;
  method.follows = true;
  return method;
}

}  // namespace mixtape
