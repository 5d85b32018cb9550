// How small the errors of fit_affine are, beside those of plain rounding, of the oracle's search, and the least
// of all codes. On the CPU: other devices give the same bytes.
#include <gtest/gtest.h>

#include "mixtape/ops/fit_affine/fit_affine_cases.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

Doubles importance_values(const HostTensor& importance, std::int64_t cols) {
  return importance.values.empty() ? Doubles(static_cast<std::size_t>(cols), 1.0) : importance.values;
}

// Errors of the groups after the fit, and after plain rounding to the same dtype.
struct Errors {
  Doubles fitted, plain;
};
Errors errors_of(const HostTensor& w, const HostTensor& importance, AffineParams p, DType dtype) {
  const Device device = Device::cpu();
  const std::int64_t cols = w.shape.cols();
  const Doubles h = importance_values(importance, cols);
  const Buffer weight = buffer_of(device, w);
  const QuantizedWeight fitted = fit_weight(weight, buffer_of(device, importance), p, dtype);
  CommandEncoder encoder(device);
  const QuantizedWeight plain = alloc_quantized(device, w.shape, p, dtype);
  quantize_affine_forward(encoder, weight, plain);
  encoder.commit_and_wait();
  return {group_errors(w.values, h, decoded(fitted), cols, p.group_size),
          group_errors(w.values, h, decoded(plain), cols, p.group_size)};
}

double sum(const Doubles& v) {
  double total = 0.0;
  for (const double x : v) total += x;
  return total;
}

// What f32 values near the largest of a group are rounded by.
void expect_no_group_is_worse(const std::string& what, const Errors& errors, const HostTensor& w,
                              const HostTensor& importance, std::int64_t group_size) {
  const Doubles h = importance_values(importance, w.shape.cols());
  const auto size = static_cast<std::size_t>(group_size);
  for (std::size_t g = 0; g < errors.plain.size(); ++g) {
    double largest = 0.0, total = 0.0;
    for (std::size_t i = g * size; i < (g + 1) * size; ++i) {
      largest = std::max(largest, std::abs(w.values[i]));
      total += h[i % h.size()];
    }
    EXPECT_TRUE(std::isfinite(errors.fitted[g])) << what << ", group " << g;
    EXPECT_LE(errors.fitted[g], errors.plain[g] * (1 + 0x1p-16) + 0x1p-44 * total * largest * largest)
        << what << ", group " << g;
  }
}

TEST(FitQuality, NoGroupIsWorseThanPlainRounding) {
  const HostTensor none{DType::f32, {0}, {}};
  const std::vector<Weights> weights = {
      {"normal", testing::random_tensor(DType::f32, {17, 256}, 3, 0.02), none},
      {"normal, importance", testing::random_tensor(DType::f32, {3, 256}, 4, 0.02),
       random_importance({256}, 5)},
      {"heavy tails", heavy_tailed_tensor({3, 256}, 6), none},
      {"heavy tails, importance", heavy_tailed_tensor({17, 256}, 7), random_importance({256}, 8)}};
  for (const Weights& w : weights) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const DType dtype : testing::kValueDtypes) {
        const Errors errors = errors_of(w.w, w.importance, {bits, 64}, dtype);
        expect_no_group_is_worse(str(w.name, ", ", bits, " bits, ", dtype), errors, w.w, w.importance, 64);
        EXPECT_LT(sum(errors.fitted), sum(errors.plain)) << w.name;
      }
    }
  }
}

void expect_finite(const std::string& what, const Weights& w, AffineParams p, DType dtype) {
  const Device device = Device::cpu();
  const QuantizedWeight q = fit_weight(buffer_of(device, w.w), buffer_of(device, w.importance), p, dtype);
  for (const double scale : testing::download(q.scales).values)
    EXPECT_TRUE(std::isfinite(scale) && scale != 0.0) << what;
  for (const double bias : testing::download(q.biases).values) EXPECT_TRUE(std::isfinite(bias)) << what;
}

TEST(FitQuality, H1_H2_H4_DegenerateGroupsStayFiniteAndAreNoWorseThanPlainRounding) {
  for (const Weights& w : degenerate_weights()) {
    for (const int bits : {2, 4, 8}) {
      for (const int group : {32, 64, 128}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const std::string what = str(w.name, ", ", bits, " bits, groups of ", group, ", ", dtype);
          const Errors errors = errors_of(w.w, w.importance, {bits, group}, dtype);
          expect_no_group_is_worse(what, errors, w.w, w.importance, group);
          expect_finite(what, w, {bits, group}, dtype);
        }
      }
    }
  }
}

// The least error that any codes allow: equal values of w share a code, since only the nearest one is best.
double least_error(const Doubles& values, const Doubles& h, int codes) {
  double least = HUGE_VAL;
  std::vector<int> code(values.size(), 0);
  for (bool is_done = false; !is_done;) {
    double total = 0.0, mean_w = 0.0, mean_q = 0.0, ww = 0.0, wq = 0.0, qq = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      total += h[i], mean_w += h[i] * values[i], mean_q += h[i] * code[i];
    }
    mean_w /= total, mean_q /= total;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double w = values[i] - mean_w, q = code[i] - mean_q;
      ww += h[i] * w * w, wq += h[i] * w * q, qq += h[i] * q * q;
    }
    least = std::min(least, qq > 0.0 ? ww - wq * wq / qq : ww);
    is_done = true;
    for (int& c : code) {
      if (++c < codes) {
        is_done = false;
        break;
      }
      c = 0;
    }
  }
  return least;
}

// Groups of seven values, drawn with heavy tails, each of its own importance: all 4^7 choices of codes. Nine of
// ten groups reach the optimum, all together come within 2 %.
TEST(FitQuality, ReachesTheLeastErrorOfAllCodes) {
  constexpr std::size_t kValues = 7, kGroups = 100;
  const Doubles values = heavy_tailed_tensor({kGroups, kValues}, 1).values;
  const Doubles drawn = random_importance({32}, 2).values;
  const HostTensor h = f32_tensor({32}, [&](std::size_t c) { return drawn[c]; });
  Doubles h_of_value(kValues);
  for (std::size_t c = 0; c < 32; ++c) h_of_value[c % kValues] += h.values[c];
  const HostTensor w =
      f32_tensor({kGroups, 32}, [&](std::size_t i) { return values[i / 32 * kValues + i % 32 % kValues]; });
  const Doubles found = errors_of(w, h, {2, 32}, DType::f32).fitted;
  double wanted_sum = 0.0;
  int reached = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const auto from = w.values.begin() + static_cast<std::ptrdiff_t>(g * 32);
    const double wanted = least_error({from, from + kValues}, h_of_value, 4);
    wanted_sum += wanted;
    EXPECT_GE(found[g], wanted * (1 - 1e-4) - 1e-9);
    if (found[g] <= wanted * (1 + 1e-4) + 1e-9) ++reached;
  }
  EXPECT_GE(reached, 90);
  EXPECT_LE(sum(found), 1.02 * wanted_sum);
}

TEST(FitQuality, ManyGroupsAreAsGoodAsTheOracles) {
  const HostTensor w = heavy_tailed_tensor({64, 1024}, 3), h = random_importance({1024}, 4);
  for (const int bits : {2, 4}) {
    const AffineParams p{bits, 64};
    const Doubles found = errors_of(w, h, p, DType::bf16).fitted;
    const testing::OpCheck check = fit_affine_check(DType::bf16, w, h, p);
    const Doubles wanted = check.forward({w.values, h.values});
    for (std::size_t g = 0; g < wanted.size(); ++g) EXPECT_LE(found[g], wanted[g] * (1 + 0x1p-16)) << g;
  }
}

// What is left of plain rounding's error, with 2, 3 and 4 bits.
TEST(FitQuality, SharesOfPlainRoundingsError) {
  struct Case {
    HostTensor w, importance;
    double shares[3];
  };
  const HostTensor normal = testing::random_tensor(DType::f32, {96, 512}, 5, 0.02);
  const HostTensor heavy = heavy_tailed_tensor({96, 512}, 6);
  const HostTensor none{DType::f32, {0}, {}}, h = random_importance({512}, 7);
  const Case cases[] = {{normal, none, {0.66, 0.74, 0.80}},
                        {normal, h, {0.58, 0.64, 0.69}},
                        {heavy, none, {0.72, 0.78, 0.81}},
                        {heavy, h, {0.60, 0.67, 0.72}}};
  for (const Case& c : cases) {
    for (const int bits : {2, 3, 4}) {
      const Errors errors = errors_of(c.w, c.importance, {bits, 64}, DType::bf16);
      EXPECT_LE(sum(errors.fitted), c.shares[bits - 2] * sum(errors.plain)) << bits;
    }
  }
}

}  // namespace
}  // namespace mixtape
