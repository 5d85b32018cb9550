#include "mixtape/ops/quantized_matmul/quantized_matmul.h"

#include "mixtape/ops/quantized_matmul/quantized_matmul_check.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

TEST(QuantizedMatmul, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, quantized_matmul_checks(device, dtype));
      check_ops(device, grouped_quantized_matmul_checks(device, dtype));
    }
  }
}

// More rows than are decoded at a time: dx adds up over blocks, and more rows than one gradient block.
void check_blocks(const Device& device, DType dtype, std::int64_t n, std::int64_t k) {
  const AffineParams format{4, 128};
  const std::int64_t rows = 9;  // more than decode the weight on their way
  const QuantizedMatmulCase c{{n, k, {rows}}, format, dtype, DType::f32, dtype};
  const std::vector<HostTensor> in = inputs_of(c);
  const HostTensor dy = testing::random_tensor(dtype, {rows, n}, 9);
  std::vector<Doubles> x;
  for (const HostTensor& t : in) x.push_back(t.values);
  const Doubles y = oracle::quantized_matmul(c.sizes, format, x[0], x[1], x[2], x[3]);
  const auto gradients =
      oracle::quantized_matmul_backward(c.sizes, format, x[0], x[1], x[2], x[3], dy.values);
  const auto run = [&] {
    Tape tape(device);
    const Var vx = tape.parameter(upload(device, in[0])), s = tape.parameter(upload(device, in[2]));
    const Var b = tape.constant(upload(device, in[3]));
    const Var out = quantized_matmul(vx, {upload(device, in[1]), s, b, format});
    tape.backward(out, upload(device, dy));
    return std::vector<Buffer>{out.value(), vx.grad(), s.grad()};
  };
  const std::vector<Buffer> found = run();
  const auto length = static_cast<double>(k), height = static_cast<double>(n);
  testing::expect_close("y", found[0], y,
                        {1.0, ((length + 2) * 0x1p-24 + weight_rounding(device, c)) * length});
  testing::expect_close("dx", found[1], gradients[0],
                        {1.0, ((height + 2) * 0x1p-24 + weight_rounding(device, c)) * height});
  testing::expect_close("dscales", found[2], gradients[2], {1.0, 141 * 0x1p-24 * 9 * 128 * 15});
  testing::expect_same_bits("several blocks", run, 2);
}

// Of every width of codes, in blocks that are not full; one row more goes another way.
TEST(QuantizedMatmul, AFewRows) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const std::int64_t rows : {1, 3, 4, 7, 8, 9}) {
        for (const std::int64_t n : {1, 6}) {
          const AffineParams format{bits, 32};
          check_op(device, quantized_matmul_case(device, {{n, 96, {rows}}, format})[0], 2);
          if (rows % 4 != 3) continue;
          for (const DType half : {DType::bf16, DType::f16}) {
            check_op(device, quantized_matmul_case(device, {{n, 96, {rows}}, format, half, half, half})[0],
                     2);
            check_op(
                device,
                quantized_matmul_case(device, {{n, 96, {rows}}, format, half, DType::f32, DType::f32})[0], 2);
          }
        }
      }
    }
    // More chunks of k than a block has threads.
    check_op(
        device,
        quantized_matmul_case(device, {{5, 2080, {2}}, {4, 32}, DType::bf16, DType::bf16, DType::bf16})[0],
        2);
  }
}

TEST(QuantizedMatmul, SeveralDecodedBlocks) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      if (device.name() == "sim") {
        check_blocks(device, dtype, 140, 256);
      } else {
        check_blocks(device, dtype, device == Device::cpu() ? 1100 : 4500, 4096);
      }
    }
  }
}

TEST(QuantizedMatmul, G4_ExpertsWithoutRowsHaveGradientZero) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    const QuantizedMatmulCase c{{3, 32, {2, 0, 3}}, {4, 32}, DType::bf16, DType::bf16, DType::bf16, true};
    const std::vector<HostTensor> in = inputs_of(c);
    CommandEncoder encoder(device);
    const Buffer scales = upload(device, in[2]);
    const Buffer dscales = device.alloc_uninitialized(DType::bf16, scales.shape());
    const Buffer dbiases = device.alloc_uninitialized(DType::bf16, scales.shape());
    const QuantizedWeight w{upload(device, in[1]), scales, upload(device, in[3]), c.format};
    quantized_matmul_backward(encoder, upload(device, in[0]), w, upload_offsets(device, c.sizes.sizes),
                              upload(device, testing::random_tensor(DType::bf16, {5, 3}, 7)), {},
                              {dscales, Accumulate::no}, {dbiases, Accumulate::no});
    encoder.commit_and_wait();
    for (const Buffer& found : {dscales, dbiases}) {
      const Doubles values = testing::download(found).values;
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] == 0.0, i / 3 == 1) << i;
    }
  }
}

TEST(QuantizedMatmul, BadOffsetsAreReportedAndOutputsAreZero) {
  for (const Device& device : testing::test_devices()) {
    const QuantizedMatmulCase c{{3, 32, {2, 3}}, {4, 32}, DType::f32, DType::f32, DType::f32, true};
    const std::vector<HostTensor> in = inputs_of(c);
    const Buffer x = upload(device, in[0]), scales = upload(device, in[2]);
    const QuantizedWeight w{upload(device, in[1]), scales, upload(device, in[3]), c.format};
    const Buffer offsets = Buffer::from(device, {3}, std::vector<std::uint32_t>{0, 9, 5});
    CommandEncoder encoder(device);
    const Buffer y = upload(device, testing::random_tensor(DType::f32, {5, 3}, 7));
    const Buffer dscales = upload(device, testing::random_tensor(DType::f32, scales.shape(), 8));
    quantized_matmul_backward(encoder, x, w, offsets, y, {}, {dscales, Accumulate::no}, {});
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "9");
    quantized_matmul_forward(encoder, x, w, offsets, y);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "9");
    for (const Buffer& found : {y, dscales})
      for (const float v : found.to_vector<float>()) EXPECT_EQ(v, 0.0f);
  }
}

TEST(QuantizedMatmul, EmptyBatchAndLeadingDimensions) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const QuantizedMatmulCase c{{3, 32, {6}}, {4, 32}};
    const std::vector<HostTensor> in = inputs_of(c);
    const Var scales = tape.parameter(upload(device, in[2])), biases = tape.constant(upload(device, in[3]));
    const QuantizedVar w{upload(device, in[1]), scales, biases, c.format};
    const Var y = quantized_matmul(tape.constant(device.alloc(DType::f32, {2, 0, 32})), w);
    EXPECT_EQ(y.shape(), (Shape{2, 0, 3}));
    tape.backward(y, y.value());
    testing::expect_close("dscales", scales.grad(), Doubles(3, 0.0), {0.0, 0.0});
    const Buffer x = upload(device, in[0]);
    const Var flat = quantized_matmul(tape.constant(x), w);
    const Var folded = quantized_matmul(tape.constant(x.reshape({2, 3, 32})), w);
    EXPECT_EQ(folded.shape(), (Shape{2, 3, 3}));
    EXPECT_EQ(folded.value().to_vector<float>(), flat.value().to_vector<float>());
  }
}

TEST(QuantizedMatmul, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const AffineParams format{4, 32};
  const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
  const Buffer codes = make(DType::u32, {3, 8}), scales = make(DType::f32, {3, 2}),
               biases = make(DType::f32, {3, 2});
  const Buffer x = make(DType::f32, {5, 64}), y = make(DType::f32, {5, 3});
  const auto code = ErrorCode::invalid_argument;
  const auto run = [&](const Buffer& x_in, const Buffer& q, const Buffer& s, const Buffer& offsets,
                       const Buffer& out) {
    quantized_matmul_forward(encoder, x_in, {q, s, biases, format}, offsets, out);
  };
  MIXTAPE_EXPECT_ERROR(run(Buffer(), codes, scales, {}, y), code, "quantized_matmul: x is null");
  MIXTAPE_EXPECT_ERROR(run(make(DType::f32, {5, 32}), codes, scales, {}, y), code, "x is f32[5,32]");
  MIXTAPE_EXPECT_ERROR(run(x, make(DType::i32, {3, 8}), scales, {}, y), code, "codes");
  MIXTAPE_EXPECT_ERROR(run(x, codes, make(DType::f32, {3, 4}), {}, y), code, "scales");
  MIXTAPE_EXPECT_ERROR(run(x, codes, scales, make(DType::u32, {2}), y), code, "rank 3 with offsets");
  MIXTAPE_EXPECT_ERROR(run(x, codes, scales, {}, make(DType::f32, {5, 4})), code, "y is f32[5,4]");
  MIXTAPE_EXPECT_ERROR(run(x, codes, scales, {}, make(DType::bf16, {5, 3})), code, "y is bf16[5,3]");
  MIXTAPE_EXPECT_ERROR(quantized_matmul_forward(encoder, x, {codes, scales, biases, {7, 32}}, {}, y), code,
                       "bits");
  MIXTAPE_EXPECT_ERROR(quantized_matmul_backward(encoder, x, {codes, scales, biases, format}, {}, y, {},
                                                 {make(DType::bf16, {3, 2}), Accumulate::no}, {}),
                       code, "dscales is bf16[3,2]");
}

}  // namespace
}  // namespace mixtape
