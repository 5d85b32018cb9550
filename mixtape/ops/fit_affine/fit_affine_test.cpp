#include "mixtape/ops/fit_affine/fit_affine.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hwy/highway.h"
#include "mixtape/ops/fit_affine/fit_affine_check.h"
#include "mixtape/ops/fit_affine/fit_affine_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};

TEST(FitAffine, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, fit_affine_checks(device, dtype));
  }
}

Buffer buffer_of(const Device& device, const HostTensor& t) {
  return t.values.empty() ? Buffer() : testing::upload(device, t);
}

Doubles decoded(const FittedWeight& q, AffineParams p) {
  CommandEncoder encoder(q.codes.device());
  const Shape shape = dequantized_shape("test", q.codes, q.scales, q.biases, p);
  const Buffer w = q.codes.device().alloc(DType::f32, shape);
  dequantize_affine_forward(encoder, q.codes, q.scales, q.biases, w, p);
  encoder.commit_and_wait();
  return testing::download(w).values;
}

Doubles importance_values(const HostTensor& importance, std::int64_t cols) {
  return importance.values.empty() ? Doubles(static_cast<std::size_t>(cols), 1.0) : importance.values;
}

// Errors of the groups after the fit, and after plain rounding to the same dtype.
struct Errors {
  Doubles fitted, plain;
};
Errors errors_of(const Device& device, const HostTensor& w, const HostTensor& importance, AffineParams p,
                 DType dtype) {
  const std::int64_t cols = w.shape.cols();
  const Doubles h = importance_values(importance, cols);
  const Buffer weight = buffer_of(device, w);
  const FittedWeight fitted = fit_weight(weight, buffer_of(device, importance), p, dtype);
  CommandEncoder encoder(device);
  const FittedWeight plain{device.alloc(DType::u32, packed_shape(w.shape, p)),
                           device.alloc(dtype, scales_shape(w.shape, p)),
                           device.alloc(dtype, scales_shape(w.shape, p))};
  quantize_affine_forward(encoder, weight, plain.codes, plain.scales, plain.biases, p);
  encoder.commit_and_wait();
  return {group_errors(w.values, h, decoded(fitted, p), cols, p.group_size),
          group_errors(w.values, h, decoded(plain, p), cols, p.group_size)};
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

struct Weights {
  std::string name;
  HostTensor w, importance;
};

HostTensor f32_tensor(const Shape& shape, const std::function<double(std::size_t)>& value) {
  Doubles values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return testing::make_tensor(DType::f32, shape, values);
}

// Groups of 32, 64 and 128 that have nothing, little or far too much in them.
std::vector<Weights> degenerate_weights() {
  const Shape shape{3, 128};
  const HostTensor normal = testing::random_tensor(DType::f32, shape, 1), none{DType::f32, {0}, {}};
  const HostTensor h = random_importance({128}, 2);
  const auto with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor(shape, [&](std::size_t i) { return change(i, normal.values[i]); });
  };
  const auto h_with = [&](const std::function<double(std::size_t, double)>& change) {
    return f32_tensor({128}, [&](std::size_t i) { return change(i, h.values[i]); });
  };
  return {
      {"zeros", with([](std::size_t, double) { return 0.0; }), h},
      {"constant", with([](std::size_t i, double) { return i < 128   ? 0.7
                                                           : i < 256 ? -9.1
                                                                     : 3e-9; }), h},
      {"all but constant", with([](std::size_t, double v) { return 5.0 + 1e-6 * v; }), none},
      {"outlier", with([](std::size_t i, double v) { return i % 32 == 13 ? 100.0 : 0.01 * v; }), none},
      {"outlier of no importance",
       with([](std::size_t i, double v) { return i % 32 == 13 ? 100.0 : 0.01 * v; }),
       h_with([](std::size_t i, double v) { return i % 32 == 13 ? 0.0 : v; })},
      {"1e30 among ones", with([](std::size_t i, double v) { return i % 32 == 5 ? -1e30 : v; }), none},
      {"1e30 of no importance", with([](std::size_t i, double v) { return i % 32 == 5 ? -1e30 : v; }),
       h_with([](std::size_t i, double v) { return i % 32 == 5 ? 0.0 : v; })},
      {"1e-30 everywhere", with([](std::size_t, double v) { return 1e-30 * v; }), h},
      {"subnormal", with([](std::size_t, double v) { return 1e-41 * v; }), h},
      {"1e38", with([](std::size_t, double v) { return 3e37 * v; }), none},
      {"two values", with([](std::size_t i, double) { return i % 3 == 0 ? 1.5 : -0.25; }), h},
      {"negative", with([](std::size_t, double v) { return -4.0 - v * v; }), h},
      {"no importance at all", normal, h_with([](std::size_t, double) { return 0.0; })},
      {"importance of one channel", normal,
       h_with([](std::size_t i, double) { return i == 40 ? 2.0 : 0.0; })},
      {"importance over 60 decades", normal,
       h_with([](std::size_t i, double) { return std::pow(10.0, static_cast<double>(i % 61) - 30.0); })},
      {"tiny importance", normal, h_with([](std::size_t, double v) { return 1e-38 * v; })},
      {"huge importance", normal, h_with([](std::size_t, double v) { return 1e37 * v; })},
  };
}

TEST(FitAffine, NoGroupIsWorseThanPlainRounding) {
  const HostTensor none{DType::f32, {0}, {}};
  const std::vector<Weights> weights = {
      {"normal", testing::random_tensor(DType::f32, {17, 256}, 3, 0.02), none},
      {"normal, importance", testing::random_tensor(DType::f32, {3, 256}, 4, 0.02),
       random_importance({256}, 5)},
      {"heavy tails", heavy_tailed_tensor({3, 256}, 6), none},
      {"heavy tails, importance", heavy_tailed_tensor({17, 256}, 7), random_importance({256}, 8)}};
  for (const Device& device : testing::test_devices()) {
    for (const Weights& w : weights) {
      for (const int bits : kWidths) {
        for (const DType dtype : testing::kValueDtypes) {
          const Errors errors = errors_of(device, w.w, w.importance, {bits, 64}, dtype);
          expect_no_group_is_worse(str(w.name, ", ", bits, " bits, ", dtype), errors, w.w, w.importance, 64);
          EXPECT_LT(sum(errors.fitted), sum(errors.plain)) << w.name;
        }
      }
    }
  }
}

TEST(FitAffine, H1_H2_H4_DegenerateGroupsStayFiniteAndAreNoWorseThanPlainRounding) {
  for (const Device& device : testing::test_devices()) {
    for (const Weights& w : degenerate_weights()) {
      for (const int bits : {2, 4, 8}) {
        for (const int group : {32, 64, 128}) {
          for (const DType dtype : {DType::f32, DType::bf16}) {
            const std::string what = str(w.name, ", ", bits, " bits, groups of ", group, ", ", dtype);
            const Errors errors = errors_of(device, w.w, w.importance, {bits, group}, dtype);
            expect_no_group_is_worse(what, errors, w.w, w.importance, group);
            const FittedWeight q =
                fit_weight(buffer_of(device, w.w), buffer_of(device, w.importance), {bits, group}, dtype);
            for (const double scale : testing::download(q.scales).values)
              EXPECT_TRUE(std::isfinite(scale) && scale != 0.0) << what;
            for (const double bias : testing::download(q.biases).values)
              EXPECT_TRUE(std::isfinite(bias)) << what;
          }
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
TEST(FitAffine, ReachesTheLeastErrorOfAllCodes) {
  constexpr std::size_t kValues = 7, kGroups = 100;
  const Doubles values = heavy_tailed_tensor({kGroups, kValues}, 1).values;
  const Doubles drawn = random_importance({32}, 2).values;
  const HostTensor h = f32_tensor({32}, [&](std::size_t c) { return drawn[c]; });
  Doubles h_of_value(kValues);
  for (std::size_t c = 0; c < 32; ++c) h_of_value[c % kValues] += h.values[c];
  const HostTensor w =
      f32_tensor({kGroups, 32}, [&](std::size_t i) { return values[i / 32 * kValues + i % 32 % kValues]; });
  const Doubles found = errors_of(Device::cpu(), w, h, {2, 32}, DType::f32).fitted;
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

TEST(FitAffine, ManyGroupsAreAsGoodAsTheOracles) {
  const HostTensor w = heavy_tailed_tensor({64, 1024}, 3), h = random_importance({1024}, 4);
  for (const int bits : {2, 4}) {
    const AffineParams p{bits, 64};
    const Doubles found = errors_of(Device::cpu(), w, h, p, DType::bf16).fitted;
    const testing::OpCheck check = fit_affine_check(DType::bf16, w, h, p);
    const Doubles wanted = check.forward({w.values, h.values});
    for (std::size_t g = 0; g < wanted.size(); ++g) EXPECT_LE(found[g], wanted[g] * (1 + 0x1p-16)) << g;
  }
}

// What is left of plain rounding's error, with 2, 3 and 4 bits.
TEST(FitAffine, SharesOfPlainRoundingsError) {
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
      const Errors errors = errors_of(Device::cpu(), c.w, c.importance, {bits, 64}, DType::bf16);
      EXPECT_LE(sum(errors.fitted), c.shares[bits - 2] * sum(errors.plain)) << bits;
    }
  }
}

using Bytes = std::vector<std::vector<std::byte>>;
Bytes bytes_of(const FittedWeight& q) {
  Bytes all;
  for (const Buffer& b : {q.codes, q.scales, q.biases}) all.push_back(testing::download_bytes(b));
  return all;
}

// Experts, whose last rows don't fill a vector, in a view that begins at an odd element.
Bytes bytes_of_fit(const Device& device, AffineParams p, DType dtype) {
  const HostTensor all = heavy_tailed_tensor({2 * 19 * 256 + 1}, 8);
  const Buffer w = buffer_of(device, all).slice(1, 2 * 19 * 256 + 1).reshape({2, 19, 256});
  return bytes_of(fit_weight(w, buffer_of(device, random_importance({2, 256}, 9)), p, dtype));
}

TEST(FitAffine, SameBytesOnEveryDevice) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      const DType dtype = bits % 3 == 0 ? DType::f16 : bits % 2 == 0 ? DType::bf16 : DType::f32;
      const AffineParams p{bits, bits == 3 ? 32 : bits < 6 ? 64 : 128};
      EXPECT_EQ(bytes_of_fit(device, p, dtype), bytes_of_fit(Device::cpu(), p, dtype))
          << device.name() << bits;
    }
    for (const Weights& w : degenerate_weights()) {
      const auto fit = [&](const Device& d) {
        return bytes_of(fit_weight(buffer_of(d, w.w), buffer_of(d, w.importance), {3, 64}, DType::bf16));
      };
      EXPECT_EQ(fit(device), fit(Device::cpu())) << w.name << " on " << device.name();
    }
  }
}

TEST(FitAffine, EveryInstructionSetGivesTheSameBits) {
  const Bytes wanted = bytes_of_fit(Device::cpu(), {4, 64}, DType::bf16);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_EQ(bytes_of_fit(Device::cpu(), {4, 64}, DType::bf16), wanted) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(FitAffine, SameBitsForAnyNumberOfThreads) {
  const HostTensor w = testing::random_tensor(DType::f32, {70, 128}, 1), h = random_importance({128}, 2);
  for (const Device& device : testing::test_devices()) {
    testing::expect_same_bits(
        "fit_affine",
        [&] {
          const FittedWeight q = fit_weight(buffer_of(device, w), buffer_of(device, h), {4, 32}, DType::bf16);
          return std::vector<Buffer>{q.codes, q.scales, q.biases};
        },
        3);
  }
}

// A group depends on nothing beside it: rows, and columns with their importance.
TEST(FitAffine, RowsAndGroupsStandAlone) {
  const HostTensor w = heavy_tailed_tensor({21, 192}, 1), h = random_importance({192}, 2);
  for (const Device& device : testing::test_devices()) {
    const Doubles all =
        decoded(fit_weight(buffer_of(device, w), buffer_of(device, h), {3, 64}, DType::f16), {3, 64});
    for (const std::size_t row : {0u, 15u, 16u, 20u}) {
      for (const std::size_t col : {0u, 64u, 128u}) {
        const HostTensor one = f32_tensor({64}, [&](std::size_t i) { return w.values[row * 192 + col + i]; });
        const HostTensor own = f32_tensor({64}, [&](std::size_t i) { return h.values[col + i]; });
        const Doubles alone =
            decoded(fit_weight(buffer_of(device, one), buffer_of(device, own), {3, 64}, DType::f16), {3, 64});
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(row * 192 + col);
        EXPECT_EQ(alone, Doubles(from, from + 64)) << row << " " << col;
      }
    }
  }
}

TEST(FitAffine, CodesAreTheNearestOfTheStoredPair) {
  const HostTensor w = heavy_tailed_tensor({9, 128}, 1);
  for (const Device& device : testing::test_devices()) {
    for (const int bits : {2, 5}) {
      const AffineParams p{bits, 32};
      const FittedWeight q = fit_weight(buffer_of(device, w), Buffer(), p, DType::bf16);
      const Doubles scales = testing::download(q.scales).values, biases = testing::download(q.biases).values;
      const Doubles found = decoded(q, p);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double scale = scales[i / 32], bias = biases[i / 32];
        const oracle::FitGroup g{{}, {}, bits, DType::bf16};
        const double nearest = g.code(w.values[i], scale, bias) * scale + bias;
        EXPECT_LE(std::abs(found[i] - w.values[i]),
                  std::abs(nearest - w.values[i]) + 1e-6 * (std::abs(w.values[i]) + std::abs(bias)));
      }
    }
  }
}

// Weights that lie on a grid whose scale and bias the dtype holds come back as they were.
TEST(FitAffine, AGridIsFoundExactly) {
  const HostTensor random = testing::random_indices({6, 128}, 3, 1 << 16);
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      const int codes = 1 << bits;
      const HostTensor w = f32_tensor({6, 128}, [&](std::size_t i) {
        const int code =
            i % 32 < 2 ? (i % 32 == 0 ? 0 : codes - 1) : static_cast<int>(random.values[i]) % codes;
        return code * 0.0625 - 1.5;
      });
      const FittedWeight q = fit_weight(buffer_of(device, w), buffer_of(device, random_importance({128}, 4)),
                                        {bits, 32}, DType::bf16);
      EXPECT_EQ(decoded(q, {bits, 32}), w.values) << bits;
    }
  }
}

TEST(FitAffine, ImportanceOfZeroHasNoSay) {
  const HostTensor h = f32_tensor({32}, [](std::size_t c) { return c % 4 == 1 ? 0.0 : 1.0; });
  HostTensor w = testing::random_tensor(DType::f32, {1, 32}, 1);
  for (const Device& device : testing::test_devices()) {
    const auto pair = [&] {
      const FittedWeight q = fit_weight(buffer_of(device, w), buffer_of(device, h), {3, 32}, DType::f32);
      return Doubles{testing::download(q.scales).values[0], testing::download(q.biases).values[0]};
    };
    const Doubles before = pair();
    for (std::size_t c = 1; c < 32; c += 4) w.values[c] = 0.25;
    EXPECT_EQ(pair(), before);
  }
}

TEST(FitAffine, NoImportanceAtAllIsEqualImportance) {
  const HostTensor w = testing::random_tensor(DType::f32, {3, 64}, 1);
  for (const Device& device : testing::test_devices()) {
    const auto fit = [&](const Buffer& h) {
      return bytes_of(fit_weight(buffer_of(device, w), h, {4, 32}, DType::bf16));
    };
    const Bytes equal = fit(Buffer());
    for (const float value : {0.0f, 1.0f, 4.0f})
      EXPECT_EQ(fit(Buffer::from(device, {64}, std::vector<float>(64, value))), equal) << value;
  }
}

TEST(FitAffine, H5_WhatIsNotFiniteIsRefused) {
  for (const Device& device : testing::test_devices()) {
    const Buffer h = buffer_of(device, random_importance({128}, 1));
    for (const double bad : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor w = testing::random_tensor(DType::f32, {40, 128}, 5);
      w.values[23 * 128 + 77] = w.values[23 * 128 + 78] = w.values[35 * 128] = bad;
      MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 64}, DType::f32), kInvalid,
                           "fit_affine: weight at row 23, column 77 is");
    }
    HostTensor w = testing::random_tensor(DType::f32, {3, 128}, 5);
    w.values[128 + 33] = 3e38;
    w.values[128 + 35] = -3e38;
    MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 32}, DType::f32), kInvalid,
                         "row 1, column 35 is");
    w.values[128 + 33] = 70000.0;
    w.values[128 + 35] = 0.0;
    MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), h, {4, 32}, DType::f16), kInvalid,
                         "fit_affine: scale or bias of the group at row 1, column 32 overflows f16");
  }
}

TEST(FitAffine, BadImportanceIsRefused) {
  for (const Device& device : testing::test_devices()) {
    HostTensor w = testing::random_tensor(DType::f32, {2, 3, 64}, 5);
    w.values[0] = NAN;  // importance comes first
    for (const double bad : {-0x1p-100, HUGE_VAL, static_cast<double>(NAN)}) {
      HostTensor h = random_importance({2, 64}, 1);
      h.values[64 + 7] = h.values[64 + 9] = bad;
      MIXTAPE_EXPECT_ERROR(fit_weight(buffer_of(device, w), buffer_of(device, h), {4, 32}, DType::f32),
                           kInvalid,
                           str("fit_affine: importance at position 71 is ", static_cast<float>(bad)));
    }
  }
}

TEST(FitAffine, WithoutRowsNothingIsWritten) {
  for (const Device& device : testing::test_devices()) {
    const Buffer h = Buffer::from(device, {64}, std::vector<float>(64, 1.0f));
    EXPECT_EQ(fit_weight(device.alloc(DType::f32, {0, 64}), h, {4, 32}, DType::f32).codes.numel(), 0);
    for (const Shape& shape : {Shape{2, 0, 64}, Shape{0, 3, 64}}) {
      const Buffer w = device.alloc(DType::f32, shape), own = device.alloc(DType::f32, {shape[0], 64});
      EXPECT_EQ(fit_weight(w, own, {4, 32}, DType::f32).scales.numel(), 0);
    }
  }
}

TEST(FitAffine, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer w = device.alloc(DType::f32, {2, 4, 64}), h = device.alloc(DType::f32, {2, 64});
  const Buffer codes = device.alloc(DType::u32, {2, 4, 8});
  const Buffer scales = device.alloc(DType::bf16, {2, 4, 2}), biases = device.alloc(DType::bf16, {2, 4, 2});
  const auto fit = [&](const Buffer& a, const Buffer& i, const Buffer& c, const Buffer& s, AffineParams p) {
    fit_affine_forward(encoder, a, i, c, s, biases, p);
  };
  const AffineParams p{4, 32};
  fit(w, h, codes, scales, p);
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {7, 32}), kInvalid, "fit_affine: bits is 7");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {4, 128}), kInvalid, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(fit(device.alloc(DType::bf16, {2, 4, 64}), h, codes, scales, p), kInvalid,
                       "fit_affine: w is bf16[2,4,64], expected f32");
  MIXTAPE_EXPECT_ERROR(fit(w, device.alloc(DType::f32, {3, 64}), codes, scales, p), kInvalid,
                       "importance is f32[3,64], expected f32[2,64]");
  MIXTAPE_EXPECT_ERROR(fit(w, device.alloc(DType::f32, {32}), codes, scales, p), kInvalid,
                       "importance is f32[32], expected f32[64]");
  MIXTAPE_EXPECT_ERROR(fit(w.reshape({8, 64}), h, codes, scales, p), kInvalid,
                       "w is f32[8,64], expected f32[E,N,K] for importance f32[2,64]");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, scales, {5, 32}), kInvalid,
                       "codes is u32[2,4,8], expected u32[2,4,10]");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, device.alloc(DType::f32, {2, 4, 2}), p), kInvalid, "biases is bf16");
  MIXTAPE_EXPECT_ERROR(fit(w, h, codes, biases, p), kInvalid, "biases shares memory with scales");
  encoder.commit_and_wait();
}

}  // namespace
}  // namespace mixtape
