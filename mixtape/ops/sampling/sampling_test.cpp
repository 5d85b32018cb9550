#include "mixtape/ops/sampling/sampling.h"

#include <cmath>

#include "mixtape/core/random.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/sampling/sampling_check.h"
#include "mixtape/ops/sampling/sampling_oracle.h"
#include "mixtape/ops/sampling/sampling_params.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Ids = std::vector<std::uint32_t>;

TEST(Sampling, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, argmax_checks(device, dtype));
      check_ops(device, sample_checks(device, dtype));
    }
  }
}

TEST(Sampling, WeightsArePowersOfTwo) {
  EXPECT_EQ(draw_weight(0), std::uint64_t{1} << 40);
  for (std::uint32_t steps = 0; steps < 41u << 26; steps += 1234567) {
    const double wanted = std::exp2(40.0 - static_cast<double>(steps) * 0x1p-26);
    EXPECT_NEAR(static_cast<double>(draw_weight(steps)), wanted, 1e-7 * wanted + 1.0);
  }
  EXPECT_EQ(draw_weight(41u << 26), 0u);
  EXPECT_EQ(draw_weight(kNoSteps), 0u);
  EXPECT_EQ(draw_steps(1.5f), 3u << 25);
  EXPECT_EQ(draw_steps(41.0f), kNoSteps);
  EXPECT_EQ(draw_steps(HUGE_VALF), kNoSteps);
  static_assert(multiply_high(~std::uint64_t{0}, ~std::uint64_t{0}) == ~std::uint64_t{0} - 1);
  static_assert(multiply_high(std::uint64_t{3} << 40, std::uint64_t{5} << 40) == std::uint64_t{15} << 16);
  static_assert(multiply_high(0x123456789abcdefu, 0xfedcba9876543210u) == 0x121fa00ad77d742u);
}

Ids sample_of(const Device& device, const testing::HostTensor& logits, const SamplingOptions& options) {
  CommandEncoder encoder(device);
  const Buffer indices = device.alloc_uninitialized(DType::u32, {logits.shape.rows()});
  sample_forward(encoder, upload(device, logits), options, indices);
  encoder.commit_and_wait();
  return indices.to_vector<std::uint32_t>();
}

// Rows of a vocabulary, and rows that share nothing with a pack: the same indices on every device.
TEST(Sampling, SameIndicesAsTheCpu) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const std::int64_t wide = device.name() == "sim" ? 2001 : 151936;
      for (const std::int64_t cols : {std::int64_t{100}, wide}) {
        const testing::HostTensor logits = testing::random_tensor(dtype, {2, cols}, 3, 3.0);
        for (const SamplingOptions& options : {SamplingOptions{1.0, 1.0, 1, 2},
                                               {0.7, 0.95, 3, 4},
                                               {3.0, 0.5, 5, 6},
                                               {1e-30, 0.9, 7, 8},
                                               {1.5, 1.0, 9, 10, 40},
                                               {1.5, 0.9, 11, 12, 40, 0.02},
                                               {0.0}})
          EXPECT_EQ(sample_of(device, logits, options), sample_of(Device::cpu(), logits, options))
              << device.name() << " " << dtype << " " << cols << " " << options.temperature;
      }
    }
  }
}

// Chi-square over 20000 draws: below 30 for 9 degrees of freedom, 4e-4 by chance, with a fixed seed.
TEST(Sampling, DrawsFollowTheProbabilities) {
  const std::vector<double> logits = {0.0, 1.0, -1.0, 2.5, 0.3, -4.0, 1.7, 1.6999, -0.2, 0.9};
  constexpr std::int64_t kRows = 20000;
  testing::HostTensor all{DType::f32, {kRows, 10}, {}};
  for (std::int64_t r = 0; r < kRows; ++r) all.values.insert(all.values.end(), logits.begin(), logits.end());
  for (const Device& device : testing::test_devices()) {
    if (device.name() == "sim") continue;
    for (const oracle::Cuts& cuts : {oracle::Cuts{}, {.top_p = 0.8}, {.top_k = 3}, {.min_p = 0.2}}) {
      const std::vector<double> p = oracle::sampling_probabilities(logits, 0.8, cuts);
      std::vector<double> found(10, 0.0);
      for (const std::uint32_t id : sample_of(device, all, {0.8, cuts.top_p, 42, 7, cuts.top_k, cuts.min_p}))
        found[id] += 1.0;
      double chi = 0.0;
      for (std::size_t c = 0; c < 10; ++c) {
        const double wanted = p[c] * kRows;
        if (wanted == 0.0) {
          EXPECT_EQ(found[c], 0.0) << c;
        } else {
          chi += (found[c] - wanted) * (found[c] - wanted) / wanted;
        }
      }
      EXPECT_LT(chi, 30.0) << "top_p " << cuts.top_p << ", top_k " << cuts.top_k << ", min_p " << cuts.min_p;
    }
  }
}

TEST(Sampling, SeedRowAndStepDecide) {
  for (const Device& device : testing::test_devices()) {
    const testing::HostTensor even{DType::f32, {8, 1000}, std::vector<double>(8000, 0.0)};
    const Ids ids = sample_of(device, even, {1.0, 1.0, 9, 3});
    for (std::size_t r = 0; r < 8; ++r)
      EXPECT_EQ(ids[r], static_cast<std::uint32_t>(uniform(9, (r << 32) + 3) * 1000.0)) << r;
    EXPECT_EQ(ids, sample_of(device, even, {1.0, 1.0, 9, 3}));
    EXPECT_NE(ids, sample_of(device, even, {1.0, 1.0, 10, 3}));
    EXPECT_NE(ids, sample_of(device, even, {1.0, 1.0, 9, 4}));
  }
}

testing::HostTensor row_of(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return {DType::f32, {1, n}, std::move(values)};
}

TEST(Sampling, A4_NanGivesItsPlace) {
  for (const Device& device : testing::test_devices()) {
    for (const double temperature : {0.0, 1.0}) {
      const SamplingOptions options{temperature, 0.9, 1, 1};
      EXPECT_EQ(sample_of(device, row_of({1.0, HUGE_VAL, NAN, 3.0, NAN}), options), Ids{2});
    }
  }
}

TEST(Sampling, Infinities) {
  for (const Device& device : testing::test_devices()) {
    for (std::uint64_t step = 0; step < 20; ++step) {
      const SamplingOptions options{1.0, 1.0, 1, step};
      EXPECT_EQ(sample_of(device, row_of({-HUGE_VAL, 1.0, -HUGE_VAL}), options), Ids{1});
      EXPECT_EQ(sample_of(device, row_of({1.0, HUGE_VAL, 2.0}), options), Ids{1});
      EXPECT_LT(sample_of(device, row_of({-HUGE_VAL, -HUGE_VAL}), options)[0], 2u);
    }
  }
}

TEST(Sampling, TopPKeepsTheMostProbableAndTheirEquals) {
  for (const Device& device : testing::test_devices()) {
    std::vector<bool> seen(6, false);
    for (std::uint64_t step = 0; step < 60; ++step) {
      // Shares of about .51 .19 .19 .07 .03 .01: .6 is reached by the second, whose equal stays.
      const testing::HostTensor logits = row_of({-1.0, 0.0, 2.0, -2.0, 1.0, 1.0});
      seen[sample_of(device, logits, {1.0, 0.6, 1, step})[0]] = true;
      EXPECT_EQ(sample_of(device, logits, {1.0, 0.0, 1, step}), Ids{2});
      EXPECT_EQ(sample_of(device, logits, {1e-300, 1.0, 1, step}), Ids{2});
    }
    EXPECT_EQ(seen, (std::vector<bool>{false, false, true, false, true, true}));
  }
}

// Shares of about .51 .19 .19 .07 .03 .01.
TEST(Sampling, TopKAndMinPKeepEqualsToo) {
  for (const Device& device : testing::test_devices()) {
    const testing::HostTensor logits = row_of({-1.0, 0.0, 2.0, -2.0, 1.0, 1.0});
    std::vector<bool> two(6, false), half(6, false);
    for (std::uint64_t step = 0; step < 60; ++step) {
      two[sample_of(device, logits, {1.0, 1.0, 1, step, 2})[0]] = true;
      half[sample_of(device, logits, {1.0, 1.0, 1, step, 0, 0.36})[0]] = true;
      EXPECT_EQ(sample_of(device, logits, {1.0, 1.0, 1, step, 1}), Ids{2});
      EXPECT_EQ(sample_of(device, logits, {1.0, 1.0, 1, step, 0, 1.0}), Ids{2});
    }
    EXPECT_EQ(two, (std::vector<bool>{false, false, true, false, true, true}));
    EXPECT_EQ(half, two);
    const testing::HostTensor even = row_of(std::vector<double>(70, 0.5));
    EXPECT_EQ(sample_of(device, even, {1.0, 1.0, 1, 2, 3}), sample_of(device, even, {1.0, 1.0, 1, 2}));
    EXPECT_EQ(sample_of(device, even, {1.0, 1.0, 1, 2, 1000}), sample_of(device, even, {1.0, 1.0, 1, 2}));
  }
}

TEST(Sampling, ArgmaxTakesTheLowestOfEquals) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    for (const std::int64_t cols : {6, 3000}) {
      std::vector<float> x(static_cast<std::size_t>(2 * cols), -1.0f);
      x[2] = -0.0f;
      x[4] = 0.0f;
      std::fill(x.begin() + cols, x.end(), -HUGE_VALF);
      const Buffer indices = device.alloc(DType::u32, {2, 1});
      argmax_forward(encoder, Buffer::from(device, {2, 1, cols}, x), indices);
      encoder.commit_and_wait();
      EXPECT_EQ(indices.to_vector<std::uint32_t>(), (Ids{2, 0}));
    }
  }
}

TEST(Sampling, OnATape) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {2, 3}, std::vector<float>{1, 5, 2, 7, 0, 2}));
    const Var last = argmax(x), first = argmax(x, 0), kept = argmax(x, 1, true);
    const Var drawn = sample(x, {.temperature = 1e-3}), none = argmax(slice(x, 0, 0, 0));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(last.value().to_vector<std::uint32_t>(), (Ids{1, 0}));
    EXPECT_EQ(first.value().to_vector<std::uint32_t>(), (Ids{1, 0, 0}));
    EXPECT_EQ(kept.shape(), (Shape{2, 1}));
    EXPECT_EQ(drawn.value().to_vector<std::uint32_t>(), (Ids{1, 0}));
    EXPECT_EQ(none.shape(), (Shape{0}));
    EXPECT_FALSE(last.requires_grad());
    const auto code = ErrorCode::invalid_argument;
    MIXTAPE_EXPECT_ERROR(argmax(x, 2), code, "argmax: invalid axis 2");
    MIXTAPE_EXPECT_ERROR(argmax(slice(x, 1, 0, 0)), code, "argmax: x is f32[2,0], expected no axis of 0");
    MIXTAPE_EXPECT_ERROR(sample(x, {.temperature = -1.0}), code, "sample: temperature is -1");
  }
}

TEST(Sampling, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), indices = device.alloc(DType::u32, {4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(argmax_forward(encoder, indices, indices), code, "argmax: x is u32[4]");
  MIXTAPE_EXPECT_ERROR(argmax_forward(encoder, x, x), code, "argmax: indices is f32[4,8], expected u32[4]");
  MIXTAPE_EXPECT_ERROR(argmax_forward(encoder, device.alloc(DType::f32, {4, 0}), indices), code,
                       "a last dimension of 1 or more");
  const auto sample = [&](const SamplingOptions& options) { sample_forward(encoder, x, options, indices); };
  MIXTAPE_EXPECT_ERROR(sample({-1.0, 1.0, 0, 0}), code, "sample: temperature is -1");
  MIXTAPE_EXPECT_ERROR(sample({NAN, 1.0, 0, 0}), code, "sample: temperature is nan");
  MIXTAPE_EXPECT_ERROR(sample({1.0, 1.5, 0, 0}), code, "sample: top_p is 1.5");
  MIXTAPE_EXPECT_ERROR(sample({1.0, 1.0, 0, 0, -1}), code, "sample: top_k is -1");
  MIXTAPE_EXPECT_ERROR(sample({1.0, 1.0, 0, 0, 0, NAN}), code, "sample: min_p is nan");
  MIXTAPE_EXPECT_ERROR(sample({1.0, 1.0, 0, std::uint64_t{1} << 32}), code, "sample: step is 4294967296");
  MIXTAPE_EXPECT_ERROR(sample_forward(encoder, device.alloc_uninitialized(DType::f16, {1, (1 << 23) + 1}), {},
                                      device.alloc(DType::u32, {1})),
                       code, "expected at most 8388608 columns");
}

}  // namespace
}  // namespace mixtape
