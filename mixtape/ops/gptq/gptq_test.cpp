#include "mixtape/ops/gptq/gptq.h"

#include "mixtape/ops/gptq/gptq_problem_check.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

TEST(Gptq, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, gptq_checks(device, dtype));
  }
}

TEST(Gptq, EveryInstructionSet) {
  testing::for_every_instruction_set([] {
    for (const DType dtype : testing::kValueDtypes) {
      const GptqCase c{{70, 192}, true, {3, 32}, dtype};
      EXPECT_EQ(gptq_codes(Device::cpu(), inputs_of(c), c.format), oracle_codes(inputs_of(c), c.format));
    }
  });
}

TEST(Gptq, EveryCodeIsANearestOne) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {96, 384, 800}) {
      if (device.name() == "sim" && cols > 384) continue;
      const AffineParams format{4, 32};
      const std::vector<HostTensor> in = problem(67, random_spd(1, cols, 1, 0.01), format, 2);
      const Doubles codes = gptq_codes(device, in, format);
      expect_nearest(in, codes, format);
      EXPECT_LE(squared_error(in, codes, format),
                1.001 * squared_error(in, oracle_codes(in, format), format));
    }
  }
}

TEST(Gptq, DiagonalIsRoundingToNearest) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {16, 32, 64, 128}) {
        const AffineParams format{bits, group};
        HostTensor h = testing::make_tensor(DType::f32, {256, 256}, Doubles(256 * 256));
        for (std::int64_t i = 0; i < 256; ++i) h.values[i * 257] = group == 64 ? 1.0 : std::exp2(i % 40 - 20);
        const std::vector<HostTensor> in = problem(5, h, format, 7);
        CommandEncoder encoder(device);
        const Shape shape = in[0].shape;
        const QuantizedWeight plain = alloc_quantized(device, shape, format, DType::f32);
        quantize_affine_forward(encoder, upload(device, in[0]), plain, Rounding::cpu);
        const Buffer found = device.alloc(DType::u32, plain.codes.shape());
        gptq_forward(encoder, upload(device, in[0]), upload(device, in[1]),
                     {found, plain.scales, plain.biases, format});
        encoder.commit_and_wait();
        EXPECT_EQ(found.to_vector<std::uint32_t>(), plain.codes.to_vector<std::uint32_t>())
            << bits << " " << group;
      }
    }
  }
}

TEST(Gptq, ScalesOfZeroGiveCodesOfZero) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams format{4, 32};
    std::vector<HostTensor> in = problem(4, random_spd(1, 96, 12, 0.1), format, 13);
    in[2].values[1] = in[2].values[6] = 0.0;
    const Doubles codes = gptq_codes(device, in, format);
    EXPECT_EQ(codes, oracle_codes(in, format));
    for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(codes[32 + c] + codes[2 * 96 + c], 0.0);
  }
}

TEST(Gptq, NanStaysInItsRow) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams format{4, 32};
    std::vector<HostTensor> in = problem(11, random_spd(1, 160, 14, 0.1), format, 15);
    const Doubles before = gptq_codes(device, in, format);
    in[0].values[3 * 160 + 20] = NAN;
    const Doubles after = gptq_codes(device, in, format);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool is_behind = i >= 3 * 160 + 20 && i < 4 * 160;
      EXPECT_EQ(after[i], is_behind ? 0.0 : before[i]) << i;
    }
  }
}

TEST(Gptq, WithoutRows) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
    const Buffer scales = make(DType::f32, {0, 2}), codes = make(DType::u32, {0, 8});
    gptq_forward(encoder, make(DType::f32, {0, 64}), make(DType::f32, {64, 64}),
                 {codes, scales, scales, {4, 32}});
    const Buffer none = make(DType::f32, {0, 3, 2});
    gptq_forward(encoder, make(DType::f32, {0, 3, 64}), make(DType::f32, {0, 64, 64}),
                 {make(DType::u32, {0, 3, 8}), none, none, {4, 32}});
    encoder.commit_and_wait();
  }
}

TEST(Gptq, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
  const Buffer w = make(DType::f32, {3, 64}), factor = make(DType::f32, {64, 64});
  const Buffer scales = make(DType::f32, {3, 2}), codes = make(DType::u32, {3, 8});
  const auto code = ErrorCode::invalid_argument;
  const auto run = [&](const Buffer& a, const Buffer& l, const Buffer& s, const Buffer& q, AffineParams p) {
    gptq_forward(encoder, a, l, {q, s, s, p});
  };
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, codes, {7, 32}), code, "gptq: bits is 7");
  MIXTAPE_EXPECT_ERROR(run(make(DType::f32, {64}), factor, scales, codes, {4, 32}), code, "w is f32[64]");
  MIXTAPE_EXPECT_ERROR(run(make(DType::bf16, {3, 64}), factor, scales, codes, {4, 32}), code, "w is bf16");
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, codes, {4, 128}), code, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(run(w, make(DType::f32, {3, 64}), scales, codes, {4, 32}), code,
                       "factor is f32[3,64], expected f32[64,64]");
  MIXTAPE_EXPECT_ERROR(
      run(make(DType::f32, {2, 3, 64}), make(DType::f32, {3, 64, 64}), scales, codes, {4, 32}), code,
      "factor is f32[3,64,64], expected f32[2,64,64]");
  MIXTAPE_EXPECT_ERROR(run(w, factor, make(DType::f32, {3, 4}), codes, {4, 32}), code, "scales is f32[3,4]");
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, make(DType::u32, {3, 10}), {4, 32}), code,
                       "codes is u32[3,10]");
}

}  // namespace
}  // namespace mixtape
