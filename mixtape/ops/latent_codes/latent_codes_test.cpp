#include "mixtape/ops/latent_codes/latent_codes.h"

#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/latent_codes/latent_codes_check.h"
#include "mixtape/ops/latent_codes/latent_codes_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;
using Bytes = std::vector<std::byte>;

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {16, 32, 64, 128};
constexpr auto kInvalid = ErrorCode::invalid_argument;

TEST(LatentCodes, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, latent_codes_checks(device, dtype));
    check_op(device, latent_codes_check(DType::bf16, {4, 130, 64}, {3, 32}));
  }
}

// A weight, upstream gradient and outputs, on one device.
struct Weight {
  Weight(const Device& device, DType dtype, const Shape& shape, AffineParams p)
      : format(p),
        u(upload(device, random_latent(shape, 1, p))),
        scales(upload(device, testing::random_tensor(DType::f32, scales_shape(shape, p), 2, 0.3))),
        biases(upload(device, testing::random_tensor(DType::f32, scales.shape(), 3, 2.0))),
        dw(upload(device, testing::random_tensor(dtype, shape, 4))) {}
  Buffer like(const Buffer& b) const { return b.device().alloc_uninitialized(b.dtype(), b.shape()); }

  AffineParams format;
  Buffer u, scales, biases, dw;
};

// {w, dscales, dbiases} of the op, and of dequantize_affine on its packed codes.
using Results = std::vector<Bytes>;
Results latent_results(const Weight& q) {
  const testing::Poison poison(q.u.device());
  const Buffer w = q.like(q.dw), dscales = q.like(q.scales), dbiases = q.like(q.scales);
  CommandEncoder encoder(q.u.device());
  latent_codes_forward(encoder, q.u, q.scales, q.biases, w, q.format);
  latent_codes_backward(encoder, q.dw, q.u, q.scales, {}, {dscales, Accumulate::no},
                        {dbiases, Accumulate::no}, q.format);
  encoder.commit_and_wait();
  return {testing::download_bytes(w), testing::download_bytes(dscales), testing::download_bytes(dbiases)};
}
Buffer packed(const Buffer& u, AffineParams p) {
  const testing::Poison poison(u.device());
  Buffer codes = u.device().alloc_uninitialized(DType::u32, packed_shape(u.shape(), p));
  CommandEncoder encoder(u.device());
  pack_codes_forward(encoder, u, codes, p);
  encoder.commit_and_wait();
  return codes;
}
Results packed_results(const Weight& q) {
  const Buffer codes = packed(q.u, q.format);
  const Buffer w = q.like(q.dw), dscales = q.like(q.scales), dbiases = q.like(q.scales);
  CommandEncoder encoder(q.u.device());
  const QuantizedWeight plain{codes, q.scales, q.biases, q.format};
  dequantize_affine_forward(encoder, plain, w);
  dequantize_affine_backward(encoder, plain, q.dw, {dscales, Accumulate::no}, {dbiases, Accumulate::no});
  encoder.commit_and_wait();
  return {testing::download_bytes(w), testing::download_bytes(dscales), testing::download_bytes(dbiases)};
}

TEST(LatentCodes, HasTheBitsOfThePackedCodes) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      for (const int group : kGroups) {
        for (const DType dtype : testing::kValueDtypes) {
          const Weight q(device, dtype, {7, 384}, {bits, group});
          EXPECT_EQ(latent_results(q), packed_results(q))
              << device.name() << " " << dtype << " " << bits << " " << group;
        }
      }
    }
  }
}

TEST(LatentCodes, NonFiniteScalesGoThroughAsInThePackedCodes) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      Weight q(device, dtype, {2, 64}, {4, 32});
      q.scales = Buffer::from(device, {2, 2}, std::vector<float>{HUGE_VALF, 3e38f, NAN, 1.0f});
      EXPECT_EQ(latent_results(q), packed_results(q)) << device.name() << " " << dtype;
    }
  }
}

// Outputs of 16 MB are stored past the caches.
TEST(LatentCodes, LargeWeightHasTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Weight q(Device::cpu(), dtype, {dtype == DType::f32 ? 2048 : 4096, 2048}, {4, 64});
    EXPECT_TRUE(latent_results(q) == packed_results(q)) << dtype;
  }
}

TEST(LatentCodes, EveryInstructionSetDecodesToTheSameBits) {
  for (const int bits : kWidths) {
    for (const DType dtype : testing::kValueDtypes) {
      const Weight q(Device::cpu(), dtype, {5, 256}, {bits, 64});
      const Bytes wanted = latent_results(q)[0];
      testing::for_every_instruction_set([&] {
        EXPECT_EQ(latent_results(q), packed_results(q));
        EXPECT_EQ(latent_results(q)[0], wanted);
      });
    }
  }
}

// Views that begin at an odd element.
TEST(LatentCodes, AnyAddress) {
  const AffineParams p{5, 32};
  const auto moved = [](const Buffer& b) {
    const Buffer room = b.device().alloc(b.dtype(), {b.numel() + 1});
    Buffer view = room.slice(1, b.numel() + 1).reshape(b.shape());
    CommandEncoder encoder(b.device());
    encoder.copy(b, view);
    encoder.commit_and_wait();
    return view;
  };
  for (const Device& device : testing::test_devices()) {
    Weight q(device, DType::bf16, {3, 96}, p);
    const Results wanted = latent_results(q);
    const Bytes codes = testing::download_bytes(packed(q.u, p));
    q.u = moved(q.u);
    q.scales = moved(q.scales);
    q.dw = moved(q.dw);
    EXPECT_EQ(latent_results(q), wanted) << device.name();
    EXPECT_EQ(testing::download_bytes(packed(q.u, p)), codes) << device.name();
    const Buffer w = moved(q.dw), du = moved(q.u);
    CommandEncoder encoder(device);
    latent_codes_forward(encoder, q.u, q.scales, q.biases, w, p);
    latent_codes_backward(encoder, q.dw, q.u, q.scales, {du, Accumulate::no}, {}, {}, p);
    encoder.commit_and_wait();
    EXPECT_EQ(testing::download_bytes(w), wanted[0]) << device.name();
    const Doubles u = testing::download(q.u).values, s = testing::download(q.scales).values;
    testing::expect_close("du", du, oracle::latent_codes_backward(u, s, testing::download(q.dw).values, p)[0],
                          {0.51, 0.0});
  }
}

TEST(LatentCodes, PacksAsTheRowCodec) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : kWidths) {
      const AffineParams p{bits, 32};
      const HostTensor u = random_latent({1, 160}, 9, p);
      std::vector<std::uint8_t> codes;
      for (const double v : u.values) codes.push_back(static_cast<std::uint8_t>(oracle::latent_code(v, p)));
      std::vector<std::uint32_t> words(static_cast<std::size_t>(p.packed_cols(160)));
      pack_codes(codes, bits, words);
      EXPECT_EQ(packed(upload(device, u), p).to_vector<std::uint32_t>(), words) << device.name() << bits;
    }
  }
}

// A scale of 2 and a bias of 1: w = 2q + 1, and du is 2 where it passes.
struct Point {
  float u;
  float code;
  bool passes;
};
constexpr Point kPoints[] = {
    {-HUGE_VALF, 0, false},    {-3.0f, 0, false},         {-0x1.000002p-1f, 0, false},
    {-0.5f, 0, true},          {-0.25f, 0, true},         {-0.0f, 0, true},
    {0.0f, 0, true},           {1e-30f, 0, true},         {0.5f, 0, true},
    {0x1.000002p-1f, 1, true}, {1.0f, 1, true},           {1.5f, 2, true},
    {2.5f, 2, true},           {2.75f, 3, true},          {3.0f, 3, true},
    {3.5f, 3, true},           {0x1.c00002p1f, 3, false}, {4.0f, 3, false},
    {1e30f, 3, false},         {HUGE_VALF, 3, false},     {NAN, 0, false}};

TEST(LatentCodes, H16_HalvesEndsAndNan) {
  std::vector<float> u(32, 0.0f), w(32, 1.0f), du(32, 2.0f);
  for (std::size_t i = 0; i < std::size(kPoints); ++i) {
    u[i] = kPoints[i].u;
    w[i] = 2.0f * kPoints[i].code + 1.0f;
    du[i] = kPoints[i].passes ? 2.0f : 0.0f;
  }
  for (const Device& device : testing::test_devices()) {
    const auto filled = [&](const Shape& shape, float value) {
      const auto count = static_cast<std::size_t>(shape.numel());
      return Buffer::from(device, shape, std::vector<float>(count, value));
    };
    const Buffer latent = Buffer::from(device, {1, 32}, u), scales = filled({1, 1}, 2.0f);
    const Buffer ones = filled({1, 32}, 1.0f), out = filled({1, 32}, 9.0f), grad = filled({1, 32}, 9.0f);
    CommandEncoder encoder(device);
    latent_codes_forward(encoder, latent, scales, filled({1, 1}, 1.0f), out, {2, 32});
    latent_codes_backward(encoder, ones, latent, scales, {grad, Accumulate::no}, {}, {}, {2, 32});
    encoder.commit_and_wait();
    EXPECT_EQ(out.to_vector<float>(), w) << device.name();
    EXPECT_EQ(grad.to_vector<float>(), du) << device.name();
  }
}

TEST(LatentCodes, H16_PackingRefusesTheFirstNan) {
  const AffineParams p{4, 64};
  for (const Device& device : testing::test_devices()) {
    HostTensor u = random_latent({700, 128}, 5, p);
    u.values[130 * 128 + 77] = u.values[130 * 128 + 78] = u.values[600 * 128] = NAN;
    MIXTAPE_EXPECT_ERROR(packed(upload(device, u), p), kInvalid,
                         "pack_codes: u at row 130, column 77 is nan, expected a number");
  }
}

TEST(LatentCodes, EachGradientIsWrittenOrAddedTo) {
  const AffineParams p{4, 32};
  for (const Device& device : testing::test_devices()) {
    const Weight q(device, DType::f32, {3, 64}, p);
    const std::vector<Doubles> wanted = oracle::latent_codes_backward(
        testing::download(q.u).values, testing::download(q.scales).values, testing::download(q.dw).values, p);
    for (unsigned which = 0; which < 64; ++which) {  // wanted, then added to
      std::vector<Buffer> out;
      std::vector<Accumulate> adds;
      CommandEncoder encoder(device);
      for (unsigned i = 0; i < 3; ++i) {
        out.push_back((which >> i & 1) != 0 ? q.like(i == 0 ? q.u : q.scales) : Buffer());
        if (out[i]) encoder.fill(out[i], 100.0f);
        adds.push_back(Accumulate{which >> (3 + i) & 1});
      }
      latent_codes_backward(encoder, q.dw, q.u, q.scales, {out[0], adds[0]}, {out[1], adds[1]},
                            {out[2], adds[2]}, p);
      encoder.commit_and_wait();
      for (std::size_t i = 0; i < 3; ++i) {
        if (!out[i]) continue;
        Doubles sum = wanted[i];
        for (double& v : sum) v += adds[i] == Accumulate::yes ? 100.0 : 0.0;
        testing::expect_close(str(device.name(), " ", which, ", gradient ", i), out[i], sum, {1.0, 1e-4});
      }
    }
  }
}

TEST(LatentCodes, GradientInPlaceOfItsUpstream) {
  const AffineParams p{4, 64};
  for (const Device& device : testing::test_devices()) {
    const std::int64_t rows = device.name() == "sim" ? 3 : 4096;  // large outputs are stored past the caches
    const Weight q(device, DType::f32, {rows, 1024}, p);
    const Buffer du = q.like(q.u);
    CommandEncoder encoder(device);
    latent_codes_backward(encoder, q.dw, q.u, q.scales, {du, Accumulate::no}, {}, {}, p);
    latent_codes_backward(encoder, q.dw, q.u, q.scales, {q.dw, Accumulate::no}, {}, {}, p);
    encoder.commit_and_wait();
    EXPECT_TRUE(testing::download_bytes(q.dw) == testing::download_bytes(du)) << device.name();
  }
}

TEST(LatentCodes, OneVariableAsScalesAndBiases) {
  const AffineParams p{3, 32};
  for (const Device& device : testing::test_devices()) {
    const Weight q(device, DType::f32, {2, 64}, p);
    Tape tape(device);
    const Var u = tape.constant(q.u), both = tape.parameter(q.scales);
    tape.backward(latent_codes(u, both, both, p, DType::f32), q.dw);
    tape.encoder().commit_and_wait();
    const std::vector<Doubles> wanted = oracle::latent_codes_backward(
        testing::download(q.u).values, testing::download(q.scales).values, testing::download(q.dw).values, p);
    Doubles sum = wanted[1];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += wanted[2][i];
    testing::expect_close(device.name(), both.grad(), sum, {2.0, 1e-4});
    EXPECT_FALSE(u.grad());
  }
}

// Gradient descent on (w - target)^2 finds the target's codes.
TEST(LatentCodes, CodesLearn) {
  const AffineParams p{4, 32};
  for (const Device& device : testing::test_devices()) {
    const HostTensor wanted = random_latent({2, 64}, 6, p);
    const Weight q(device, DType::f32, {2, 64}, p);
    Doubles u(128, 7.4);
    const Doubles scales = testing::download(q.scales).values, biases = testing::download(q.biases).values;
    const Doubles target = oracle::latent_codes(wanted.values, scales, biases, p);
    for (int step = 0; step < 30; ++step) {
      Tape tape(device);
      const Var latent = tape.parameter(upload(device, testing::make_tensor(DType::f32, {2, 64}, u)));
      const Var w = latent_codes(latent, tape.constant(q.scales), tape.constant(q.biases), p, DType::f32);
      Doubles dw = testing::download(w.value()).values;
      for (std::size_t i = 0; i < dw.size(); ++i) dw[i] -= target[i];
      tape.backward(w, upload(device, testing::make_tensor(DType::f32, {2, 64}, dw)));
      tape.encoder().commit_and_wait();
      const Doubles du = testing::download(latent.grad()).values;
      for (std::size_t i = 0; i < u.size(); ++i) u[i] -= 0.4 * du[i] / (scales[i / 32] * scales[i / 32]);
    }
    const Buffer found = upload(device, testing::make_tensor(DType::f32, {2, 64}, u));
    EXPECT_EQ(testing::download_bytes(packed(found, p)),
              testing::download_bytes(packed(upload(device, wanted), p)))
        << device.name();
  }
}

TEST(LatentCodes, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var u = tape.parameter(device.alloc(DType::f32, {0, 64}));
    const Var scales = tape.parameter(device.alloc(DType::f32, {0, 2}));
    const Var w = latent_codes(u, scales, scales, {4, 32}, DType::bf16);
    EXPECT_EQ(w.shape(), Shape({0, 64}));
    EXPECT_EQ(w.dtype(), DType::bf16);
    tape.backward(w, device.alloc(DType::bf16, {0, 64}));
    EXPECT_EQ(u.grad().shape(), u.shape());
  }
}

TEST(LatentCodes, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const AffineParams p{4, 32};
  const Buffer u = device.alloc(DType::f32, {4, 64}), w = device.alloc(DType::f32, {4, 64});
  const Buffer scales = device.alloc(DType::f32, {4, 2}), other = device.alloc(DType::f32, {4, 2});
  const auto forward = [&](const Buffer& from, const Buffer& s, const Buffer& to, AffineParams format) {
    latent_codes_forward(encoder, from, s, other, to, format);
  };
  MIXTAPE_EXPECT_ERROR(forward(u, scales, w, {7, 32}), kInvalid, "latent_codes: bits is 7");
  MIXTAPE_EXPECT_ERROR(forward(u, scales, w, {4, 128}), kInvalid, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(forward(device.alloc(DType::bf16, {4, 64}), scales, w, p), kInvalid,
                       "u is bf16[4,64], expected f32");
  MIXTAPE_EXPECT_ERROR(forward(u, device.alloc(DType::bf16, {4, 2}), w, p), kInvalid,
                       "scales is bf16[4,2], expected f32[4,2]");
  MIXTAPE_EXPECT_ERROR(forward(u, scales, u, p), kInvalid, "w shares memory with u");
  MIXTAPE_EXPECT_ERROR(latent_codes_backward(encoder, w, u, scales, {u, Accumulate::no}, {}, {}, p), kInvalid,
                       "latent_codes_backward: du shares memory with an input");
  MIXTAPE_EXPECT_ERROR(
      latent_codes_backward(encoder, w, u, scales, {}, {other, Accumulate::no}, {other, Accumulate::no}, p),
      kInvalid, "dbiases shares memory with dscales");
  MIXTAPE_EXPECT_ERROR(pack_codes_forward(encoder, u, device.alloc(DType::u32, {4, 10}), p), kInvalid,
                       "pack_codes: codes is u32[4,10], expected u32[4,8]");
  Tape tape(device);
  const Var v = tape.constant(u), s = tape.constant(scales);
  MIXTAPE_EXPECT_ERROR(latent_codes(v, s, s, p, DType::u32), kInvalid, "dtype is u32");
}

}  // namespace
}  // namespace mixtape
