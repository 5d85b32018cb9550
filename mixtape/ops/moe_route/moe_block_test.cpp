// A whole expert layer from ops, with a shared expert: y = sum_j w_j Expert_j(x) + sigmoid(x w_sg^T)
// Shared(x).
#include <cmath>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/scale_rows.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/moe_route/moe_route_oracle.h"
#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::OpCheck;

struct Sizes {
  std::int64_t tokens, hidden, experts, inner, k;
  bool normalise;
};

// Inputs: x [T,D], router [E,D], gate, up [E,F,D], down [E,D,F], shared gate, up [F,D], down [D,F], w_sg
// [1,D].
Var moe_block(const std::vector<Var>& v, const Sizes& s) {
  const Var& x = v[0];
  const MoeRoute route = moe_route(matmul(x, v[1], false, true), s.k, s.normalise);
  const MoePlan plan = moe_plan(x.tape().encoder(), route.indices, s.experts);
  const Var rows = moe_dispatch(x, plan);
  const Var inner =
      silu_mul(grouped_matmul(rows, v[2], plan.offsets), grouped_matmul(rows, v[3], plan.offsets));
  const Var routed = moe_combine(grouped_matmul(inner, v[4], plan.offsets), route.weights, plan);
  const Var shared_inner = silu_mul(matmul(x, v[5], false, true), matmul(x, v[6], false, true));
  const Var gate = reshape(sigmoid(matmul(x, v[8], false, true)), {s.tokens});
  return routed + scale_rows(matmul(shared_inner, v[7], false, true), gate);
}

template <class T>
T sigmoid_of(T x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// down (silu(gate x) * up x) of one row, weights beginning at the given elements.
template <class T>
std::vector<T> mlp(const T* x, const T* gate, const T* up, const T* down, std::int64_t hidden,
                   std::int64_t inner) {
  std::vector<T> y(hidden);
  for (std::int64_t f = 0; f < inner; ++f) {
    T g = 0, u = 0;
    for (std::int64_t d = 0; d < hidden; ++d) {
      g += gate[f * hidden + d] * x[d];
      u += up[f * hidden + d] * x[d];
    }
    for (std::int64_t d = 0; d < hidden; ++d) y[d] += down[d * inner + f] * (g * sigmoid_of(g) * u);
  }
  return y;
}

template <class T>
std::vector<T> block_oracle(const std::vector<std::vector<T>>& v, const Sizes& s) {
  std::vector<T> logits, y;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t e = 0; e < s.experts; ++e) {
      T sum = 0;
      for (std::int64_t d = 0; d < s.hidden; ++d) sum += v[0][t * s.hidden + d] * v[1][e * s.hidden + d];
      logits.push_back(sum);
    }
  }
  const std::vector<T> weights = oracle::moe_route(logits, s.experts, s.k, s.normalise);
  const std::vector<std::int64_t> indices = oracle::top_k_indices(logits, s.experts, s.k);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const T* x = &v[0][t * s.hidden];
    T gate = 0;
    for (std::int64_t d = 0; d < s.hidden; ++d) gate += x[d] * v[8][d];
    std::vector<T> row = mlp(x, v[5].data(), v[6].data(), v[7].data(), s.hidden, s.inner);
    for (T& r : row) r *= sigmoid_of(gate);
    for (std::int64_t j = t * s.k; j < (t + 1) * s.k; ++j) {
      const std::int64_t at = indices[j] * s.inner * s.hidden;
      const std::vector<T> out = mlp(x, &v[2][at], &v[3][at], &v[4][at], s.hidden, s.inner);
      for (std::int64_t d = 0; d < s.hidden; ++d) row[d] += weights[j] * out[d];
    }
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

// The gradient of the oracle by the complex step.
std::vector<Doubles> block_gradient(const std::vector<Doubles>& v, const Doubles& dy, const Sizes& s) {
  std::vector<testing::Complexes> inputs;
  for (const Doubles& d : v) inputs.emplace_back(d.begin(), d.end());
  std::vector<Doubles> gradients;
  for (testing::Complexes& input : inputs) {
    Doubles& gradient = gradients.emplace_back();
    for (std::complex<double>& element : input) {
      element += std::complex<double>(0.0, 1e-50);
      const testing::Complexes y = block_oracle(inputs, s);
      element = element.real();
      double sum = 0.0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * (y[i].imag() / 1e-50);
      gradient.push_back(sum);
    }
  }
  return gradients;
}

TEST(MoeBlock, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const Sizes s : {Sizes{6, 5, 4, 3, 2, true}, Sizes{6, 5, 4, 3, 2, false},
                          Sizes{4, 3, 3, 5, 1, false}, Sizes{4, 3, 3, 5, 3, true}}) {
      OpCheck check;
      check.name = str("moe block k ", s.k, s.normalise ? " normalised" : "");
      const std::int64_t d = s.hidden, e = s.experts, f = s.inner;
      const std::vector<Shape> shapes = {{s.tokens, d}, {e, d}, {e, f, d}, {e, f, d}, {e, d, f},
                                         {f, d},        {f, d}, {d, f},    {1, d}};
      for (const Shape& shape : shapes) {
        check.inputs.push_back(testing::random_tensor(DType::f32, shape, check.inputs.size() + 1, 0.7));
      }
      check.op = [s](const std::vector<Var>& v) { return moe_block(v, s); };
      check.forward = [s](const auto& v) { return block_oracle(v, s); };
      check.backward = [s](const auto& v, const Doubles& dy) { return block_gradient(v, dy, s); };
      // A dozen ops of sums up to 5 * 6 terms, all values below 10.
      check.forward_bound = {16.0, 100 * 0x1p-24};
      check.backward_bound = {16.0, 1000 * 0x1p-24};
      check.prove_oracle = false;
      check_op(device, check);
    }
  }
}

}  // namespace
}  // namespace mixtape
