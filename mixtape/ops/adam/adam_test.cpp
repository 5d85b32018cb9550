#include "mixtape/ops/adam/adam.h"

#include <cmath>

#include "mixtape/ops/adam/adam_check.h"
#include "mixtape/ops/adam/adam_oracle.h"
#include "mixtape/ops/adam/adam_params.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;
using testing::upload;

AdamTensor make_tensors(const Device& device, const HostTensor& p, DType g_dtype, std::uint64_t seed) {
  return {upload(device, p), upload(device, testing::random_tensor(g_dtype, p.shape, seed)),
          device.alloc(DType::f32, p.shape), device.alloc(DType::f32, p.shape)};
}

// Several steps of one tensor, the gradients varying.
void check_steps(const Device& device, DType p_dtype, DType g_dtype, std::int64_t n,
                 const AdamOptions& options, float unit) {
  const HostTensor start = testing::random_tensor(p_dtype, {n}, 1);
  AdamTensor t = make_tensors(device, start, g_dtype, 2);
  t.unit = unit;
  oracle::AdamState wanted{start.values, Doubles(start.values.size(), 0.0),
                           Doubles(start.values.size(), 0.0)};
  const oracle::AdamSettings settings{options.lr,           options.beta1,      options.beta2, options.eps,
                                      options.weight_decay, options.grad_scale, unit};
  constexpr int kSteps = 4;
  for (int step = 1; step <= kSteps; ++step) {
    const HostTensor g = testing::random_tensor(g_dtype, {n}, static_cast<std::uint64_t>(10 + step));
    t.g = upload(device, g);
    AdamOptions now = options;
    now.step = step;
    CommandEncoder encoder(device);
    adam_step(encoder, {t}, now);
    encoder.commit_and_wait();
    oracle::adam_step(wanted, g.values, step, settings);
  }
  const std::string what = str("adam ", p_dtype, " ", g_dtype, " n ", n);
  // Each step adds its own roundings; m may nearly cancel, beside gradients of at most 5 grad_scale. |p|
  // <= 6.
  const double g_max = 5.0 * std::abs(static_cast<double>(options.grad_scale));
  const double step_size = static_cast<double>(options.lr) * static_cast<double>(unit) * 5.0;
  testing::expect_close(what + " m", t.m, wanted.m, {2.0 * kSteps, kSteps * g_max * 0x1p-23});
  testing::expect_close(what + " v", t.v, wanted.v, {3.0 * kSteps, 0.0});
  testing::expect_close(what + " p", t.p, wanted.p,
                        {0.0, kSteps * (3.0 * epsilon(p_dtype) + 60.0 * step_size * 0x1p-23)});
}

TEST(Adam, OneStepMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, adam_step_checks(device, dtype));
      check_ops(device, sum_of_squares_checks(device, dtype));
    }
  }
}

TEST(Adam, StepsMatchOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType p : testing::kValueDtypes) {
      for (const DType g : testing::kValueDtypes) {
        for (const std::int64_t n : {1, 15, 16, 17, 100}) {
          check_steps(device, p, g, n, {.lr = 0.05f}, 1.0f);
          check_steps(device, p, g, n,
                      {.lr = 0.05f,
                       .beta1 = 0.7f,
                       .beta2 = 0.8f,
                       .eps = 0.1f,
                       .weight_decay = 0.3f,
                       .grad_scale = 0.25f},
                      0.4f);
        }
      }
    }
  }
}

TEST(Adam, FirstStepIsTheSignOfTheGradient) {
  for (const Device& device : testing::test_devices()) {
    const AdamTensor t{Buffer::from(device, {3}, std::vector<float>{1.0f, 1.0f, 1.0f}),
                       Buffer::from(device, {3}, std::vector<float>{4.0f, -0.5f, 0.0f}),
                       device.alloc(DType::f32, {3}), device.alloc(DType::f32, {3})};
    CommandEncoder encoder(device);
    adam_step(encoder, {t}, {.lr = 0.25f});
    encoder.commit_and_wait();
    const std::vector<float> p = t.p.to_vector<float>();
    EXPECT_FLOAT_EQ(p[0], 0.75f);
    EXPECT_FLOAT_EQ(p[1], 1.25f);
    EXPECT_EQ(p[2], 1.0f);
  }
}

TEST(Adam, DecayDoesNotDependOnTheGradientOrTheUnit) {
  for (const Device& device : testing::test_devices()) {
    for (const float unit : {1.0f, 1e-3f}) {
      AdamTensor t{Buffer::from(device, {1}, std::vector<float>{2.0f}), device.alloc(DType::f32, {1}),
                   device.alloc(DType::f32, {1}), device.alloc(DType::f32, {1}), unit};
      CommandEncoder encoder(device);
      adam_step(encoder, {t}, {.lr = 0.5f, .weight_decay = 0.25f});
      encoder.commit_and_wait();
      EXPECT_EQ(t.p.to_vector<float>()[0], 1.75f);
    }
  }
}

// Ten of one dtype, more than a launch on a GPU takes, then others; of every size around blocks.
std::vector<AdamTensor> many_tensors(const Device& device) {
  std::vector<AdamTensor> tensors;
  for (const std::int64_t n :
       {std::int64_t{3}, std::int64_t{0}, kAdamBlock - 1, kAdamBlock, 3 * kAdamBlock + 5, std::int64_t{1},
        std::int64_t{2047}, std::int64_t{2048}, std::int64_t{2049}, std::int64_t{9}, std::int64_t{4096},
        std::int64_t{5}, std::int64_t{17}}) {
    const auto i = static_cast<std::uint64_t>(tensors.size());
    const DType dtype = testing::kValueDtypes[i < 10 ? 0 : i % 3];
    tensors.push_back(make_tensors(device, testing::random_tensor(dtype, {n}, i), DType::f32, 50 + i));
    tensors.back().unit = 1.0f + static_cast<float>(i);
  }
  return tensors;
}

TEST(Adam, ManyTensorsInOneLaunchEqualOneByOne) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<AdamTensor> together = many_tensors(device), apart = many_tensors(device);
    CommandEncoder encoder(device);
    adam_step(encoder, together, {.lr = 0.1f});
    for (const AdamTensor& t : apart) adam_step(encoder, {t}, {.lr = 0.1f});
    adam_step(encoder, {}, {});
    encoder.commit_and_wait();
    for (std::size_t i = 0; i < apart.size(); ++i) {
      EXPECT_EQ(testing::download_bytes(together[i].p), testing::download_bytes(apart[i].p)) << i;
      EXPECT_EQ(testing::download_bytes(together[i].m), testing::download_bytes(apart[i].m)) << i;
      EXPECT_EQ(testing::download_bytes(together[i].v), testing::download_bytes(apart[i].v)) << i;
    }
  }
}

TEST(Adam, SameBits) {
  for (const Device& device : testing::test_devices()) {
    testing::expect_same_bits(
        "adam_step and sum_of_squares",
        [&] {
          const std::vector<AdamTensor> tensors = many_tensors(device);
          std::vector<Buffer> all = {device.alloc(DType::f32, {1})}, gradients;
          for (const AdamTensor& t : tensors) gradients.push_back(t.g);
          CommandEncoder encoder(device);
          sum_of_squares(encoder, gradients, all[0]);
          adam_step(encoder, tensors, {.lr = 0.1f});
          encoder.commit_and_wait();
          for (const AdamTensor& t : tensors) all.insert(all.end(), {t.p, t.m, t.v});
          return all;
        },
        3);
  }
}

TEST(Adam, NanGoesThrough) {
  for (const Device& device : testing::test_devices()) {
    const AdamTensor t{device.alloc(DType::f32, {2}),
                       Buffer::from(device, {2}, std::vector<float>{NAN, 1.0f}),
                       device.alloc(DType::f32, {2}), device.alloc(DType::f32, {2})};
    CommandEncoder encoder(device);
    adam_step(encoder, {t}, {});
    encoder.commit_and_wait();
    for (const Buffer& b : {t.p, t.m, t.v}) {
      EXPECT_TRUE(std::isnan(b.to_vector<float>()[0]));
      EXPECT_FALSE(std::isnan(b.to_vector<float>()[1]));
    }
  }
}

TEST(SumOfSquares, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    std::vector<Buffer> tensors;
    double wanted = 0.0;
    for (const std::int64_t n :
         {std::int64_t{1}, std::int64_t{0}, std::int64_t{63}, std::int64_t{64}, 2 * kAdamBlock + 17}) {
      for (const DType dtype : testing::kValueDtypes) {
        const HostTensor x = testing::random_tensor(dtype, {n}, static_cast<std::uint64_t>(n));
        for (const double v : x.values) wanted += v * v;
        tensors.push_back(upload(device, x));
      }
    }
    const Buffer out = device.alloc_uninitialized(DType::f32, {1});
    CommandEncoder encoder(device);
    sum_of_squares(encoder, tensors, out);
    encoder.commit_and_wait();
    EXPECT_NEAR(out.to_vector<float>()[0], wanted, 600.0 * 0x1p-24 * wanted);
    sum_of_squares(encoder, {}, out);
    encoder.commit_and_wait();
    EXPECT_EQ(out.to_vector<float>()[0], 0.0f);
  }
}

// The square of 60000 is no f16: v and the norm are f32. Its gradient unscaled by 2^-16 moves p as ever.
TEST(Adam, F16GradientsMayBeScaled) {
  for (const Device& device : testing::test_devices()) {
    const AdamTensor t{Buffer::from(device, {2}, std::vector<f16>{f16(1.0f), f16(1.0f)}),
                       Buffer::from(device, {2}, std::vector<f16>{f16(60000.0f), f16(-0x1p-24f)}),
                       device.alloc(DType::f32, {2}), device.alloc(DType::f32, {2})};
    const Buffer norm = device.alloc(DType::f32, {1});
    CommandEncoder encoder(device);
    sum_of_squares(encoder, {t.g}, norm);
    adam_step(encoder, {t}, {.lr = 0.25f, .eps = 1e-20f, .grad_scale = 0x1p-16f});
    encoder.commit_and_wait();
    EXPECT_EQ(norm.to_vector<float>()[0], 3.6e9f);
    const auto p = t.p.to_vector<f16>();
    EXPECT_EQ(static_cast<float>(p[0]), 0.75f);
    EXPECT_EQ(static_cast<float>(p[1]), 1.25f);
  }
}

// Adding ones one after another in f32 stops at 2^24.
TEST(SumOfSquares, LongSumsDoNotStall) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t count = device.name() == "sim" ? 2'000'000 : 20'000'000;
    const Buffer x = device.alloc(DType::bf16, {count}), out = device.alloc(DType::f32, {1});
    CommandEncoder encoder(device);
    encoder.fill(x, 1.0f);
    sum_of_squares(encoder, {x}, out);
    encoder.commit_and_wait();
    EXPECT_EQ(out.to_vector<float>()[0], static_cast<float>(count));
  }
}

// Views that begin beside a pack.
TEST(Adam, SameBytesAsTheCpu) {
  const auto bytes_on = [](const Device& device, DType p, DType g, DType moments, bool is_view) {
    const auto tensor = [&](DType dtype, std::uint64_t seed) {
      HostTensor t = testing::random_tensor(dtype, {1003, 1}, seed);
      for (double& v : t.values) v = seed == 4 ? std::abs(v) : v;
      const Buffer b = upload(device, t);
      return is_view ? b.slice(1, 1003) : b;
    };
    const AdamTensor t{tensor(p, 1), tensor(g, 2), tensor(moments, 3), tensor(moments, 4), 0.7f};
    CommandEncoder encoder(device);
    adam_step(encoder, {t}, {.lr = 0.1f, .weight_decay = 0.1f, .step = 3, .grad_scale = 0.3f});
    encoder.commit_and_wait();
    std::vector<std::vector<std::byte>> all;
    for (const Buffer& b : {t.p, t.m, t.v}) all.push_back(testing::download_bytes(b));
    return all;
  };
  for (const Device& device : testing::test_devices()) {
    for (const DType p : testing::kValueDtypes) {
      for (const DType g : testing::kValueDtypes) {
        for (const DType moments : {DType::f32, DType::bf16}) {
          for (const bool is_view : {false, true}) {
            EXPECT_TRUE(bytes_on(device, p, g, moments, is_view) ==
                        bytes_on(Device::cpu(), p, g, moments, is_view))
                << device.name() << " " << p << " " << g << " " << moments << " view " << is_view;
          }
        }
      }
    }
  }
}

// Of one step: moments within a unit of the oracle's, the parameter as with f32 moments of the same values.
TEST(Adam, Bf16MomentsAreRoundedAfterTheStep) {
  constexpr std::int64_t n = 300;
  const HostTensor p = testing::random_tensor(DType::f32, {n}, 1),
                   g = testing::random_tensor(DType::bf16, {n}, 2),
                   m = testing::random_tensor(DType::bf16, {n}, 3);
  HostTensor v = testing::random_tensor(DType::bf16, {n}, 4);
  for (double& value : v.values) value = std::abs(value);
  oracle::AdamState wanted{p.values, m.values, v.values};
  const AdamOptions o{.lr = 0.05f, .step = 7};
  oracle::adam_step(wanted, g.values, o.step, {o.lr, o.beta1, o.beta2, o.eps, 0.0, 1.0, 1.0});
  for (const Device& device : testing::test_devices()) {
    const auto after = [&](DType moments) {
      AdamTensor t{upload(device, p), upload(device, g),
                   upload(device, testing::make_tensor(moments, {n}, m.values)),
                   upload(device, testing::make_tensor(moments, {n}, v.values))};
      CommandEncoder encoder(device);
      adam_step(encoder, {t}, o);
      encoder.commit_and_wait();
      return t;
    };
    const AdamTensor found = after(DType::bf16);
    testing::expect_close("m", found.m, wanted.m, {2.0, 5.0 * 0x1p-23});
    testing::expect_close("v", found.v, wanted.v, {1.1, 0.0});
    EXPECT_EQ(testing::download_bytes(found.p), testing::download_bytes(after(DType::f32).p));
  }
}

// v grows by a thousandth of what it lacks, far below half its last bit: it arrives all the same, over the elements.
TEST(Adam, Bf16MomentsArriveOnAverage) {
  constexpr std::int64_t n = 4096;
  constexpr int kSteps = 400;
  for (const Device& device : testing::test_devices()) {
    const int steps = device.name() == "sim" ? 20 : kSteps;
    const AdamTensor t{device.alloc(DType::f32, {n}), Buffer::from(device, {n}, std::vector<float>(n, 1.0f)),
                       device.alloc(DType::bf16, {n}), device.alloc(DType::bf16, {n})};
    CommandEncoder encoder(device);
    for (int step = 1; step <= steps; ++step) adam_step(encoder, {t}, {.step = step});
    encoder.commit_and_wait();
    double sum = 0.0;
    for (const double v : testing::download(t.v).values) sum += v;
    const double wanted = 1.0 - std::pow(0.999, steps);
    // A rounding's deviation is at most half a unit, 2^-8; of 4096 sums of `steps` of them, about four times.
    EXPECT_NEAR(sum / n, wanted, 4.0 * wanted * 0x1p-8 * std::sqrt(static_cast<double>(steps) / n));
  }
}

TEST(Adam, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto tensor = [&] {
    return make_tensors(device, testing::random_tensor(DType::f32, {4}, 1), DType::f32, 2);
  };
  const auto code = ErrorCode::invalid_argument;
  AdamTensor t = tensor();
  t.g = device.alloc(DType::f32, {5});
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {tensor(), t}, {}), code,
                       "adam_step: tensors[1].g is f32[5], expected the shape of p f32[4]");
  t = tensor();
  t.m = device.alloc(DType::bf16, {4});
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {t}, {}), code, "tensors[0].v is f32[4], expected bf16[4]");
  t.m = device.alloc(DType::f16, {4});
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {t}, {}), code, "tensors[0].m is f16[4], expected f32[4]");
  t = tensor();
  t.v = t.m;
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {t}, {}), code, "tensors[0].v shares memory with m");
  t = tensor();
  t.p = Buffer();
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {t}, {}), code, "tensors[0].p is null");
  t = tensor();
  t.unit = NAN;
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {t}, {}), code, "tensors[0].unit is");
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {}, {.lr = NAN}), code, "lr is");
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {}, {.beta1 = 1.0f}), code, "a beta is 1");
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {}, {.eps = 0.0f}), code, "eps is 0");
  MIXTAPE_EXPECT_ERROR(adam_step(encoder, {}, {.step = 0}), code, "step is 0");
  const Buffer out = device.alloc(DType::f32, {1});
  MIXTAPE_EXPECT_ERROR(sum_of_squares(encoder, {device.alloc(DType::u32, {4})}, out), code,
                       "tensors[0] is u32[4]");
  MIXTAPE_EXPECT_ERROR(sum_of_squares(encoder, {}, device.alloc(DType::f32, {2})), code,
                       "out is f32[2], expected f32[1]");
  MIXTAPE_EXPECT_ERROR(sum_of_squares(encoder, {out}, out), code, "out shares memory with tensors[0]");
}

}  // namespace
}  // namespace mixtape
