#include "mixtape/ops/take_along_axis/take_along_axis.h"

#include <climits>
#include <cmath>

#include "mixtape/ops/take_along_axis/take_along_axis_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Ids = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

TEST(TakeAlongAxis, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, take_along_axis_checks(device, dtype));
  }
}

struct Taken {
  Floats y;
  Floats dx;
};

Taken take(const Device& device, const Shape& shape, const Floats& x, const Shape& index_shape,
           const Buffer& index, const Floats& dy) {
  const testing::Poison poison(device);
  Tape tape(device);
  const Var leaf = tape.parameter(Buffer::from(device, shape, x));
  const Var y = take_along_axis(leaf, index);
  tape.backward(y, Buffer::from(device, index_shape, dy));
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), leaf.grad().to_vector<float>()};
}

TEST(TakeAlongAxis, C1_RepeatedIndexAdds) {
  for (const Device& device : testing::test_devices()) {
    const Buffer twice = Buffer::from(device, {1, 2}, Ids{0, 0});
    const Taken both = take(device, {1, 2}, {0.1f, 7.0f}, {1, 2}, twice, {0.2f, 0.3f});
    EXPECT_EQ(both.y, (Floats{0.1f, 0.1f}));
    EXPECT_EQ(both.dx, (Floats{0.5f, 0.0f}));
    EXPECT_EQ(take(device, {1, 2}, {0.1f, 7.0f}, {1, 2}, twice, {0.2f, 0.0f}).dx, (Floats{0.2f, 0.0f}));
  }
}

TEST(TakeAlongAxis, C5_C6_FewerPicksThanColumns) {
  for (const Device& device : testing::test_devices()) {
    const Buffer index = Buffer::from(device, {2, 1}, Ids{2, 0});
    const Taken t = take(device, {2, 3}, {1, 2, 3, 4, 5, 6}, {2, 1}, index, {10.0f, 20.0f});
    EXPECT_EQ(t.y, (Floats{3.0f, 4.0f}));
    EXPECT_EQ(t.dx, (Floats{0, 0, 10, 20, 0, 0}));
  }
}

TEST(TakeAlongAxis, C6_EmptyBatchGivesZeroGradient) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 3}));
    const Var y = take_along_axis(x, device.alloc(DType::u32, {0, 2}));
    EXPECT_EQ(y.shape(), (Shape{0, 2}));
    tape.backward(y, device.alloc(DType::f32, {0, 2}));
    EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
    const Var full = tape.parameter(device.alloc(DType::f32, {2, 3}));
    tape.backward(take_along_axis(full, device.alloc(DType::u32, {2, 0})), device.alloc(DType::f32, {2, 0}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(full.grad().to_vector<float>(), Floats(6, 0.0f));
  }
}

// The index comes from the tape's own values, and even from an op on the differentiated input.
TEST(TakeAlongAxis, C7_ComputedIndex) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var w = tape.parameter(Buffer::from(device, {1, 4}, Floats{3, 9, 1, 7}));
    const Buffer best = device.alloc(DType::u32, {1, 2});
    best.copy_from<std::uint32_t>(Ids{1, 3});
    const Var index = tape.record("top_k", {w.detach()}, best, nullptr);
    const Var y = take_along_axis(w, index);
    tape.backward(y, Buffer::from(device, {1, 2}, Floats{1, 1}));
    EXPECT_EQ(w.grad().to_vector<float>(), (Floats{0, 1, 0, 1}));
    EXPECT_FALSE(index.requires_grad());
  }
}

void expect_index_error(const Device& device, const Buffer& index, const std::string& message) {
  CommandEncoder encoder(device);
  const testing::Poison poison(device);
  const std::int64_t k = index.shape().cols();
  const Buffer x = Buffer::from(device, {2, 2}, Floats{1, 2, 3, 4});
  const Buffer y = device.alloc_uninitialized(DType::f32, {2, k});
  take_along_axis_forward(encoder, x, index, y);
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range, message);
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 0, 0, 0}));
  const Buffer dx = device.alloc_uninitialized(DType::f32, {2, 2});
  take_along_axis_backward(encoder, index, Buffer::from(device, {2, k}, Floats{5, 6, 7, 8}), dx);
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range, "position 1");
  EXPECT_EQ(dx.to_vector<float>(), (Floats{5, 0, 0, 0}));
  encoder.commit_and_wait();
}

TEST(TakeAlongAxis, C10_BadIndexIsReported) {
  for (const Device& device : testing::test_devices()) {
    using Signed = std::vector<std::int32_t>;
    expect_index_error(device, Buffer::from(device, {2, 2}, Signed{0, 2, -3, INT_MIN}),
                       "index 2 at position 1 is out of range, expected 0 to 1");
    expect_index_error(device, Buffer::from(device, {2, 2}, Signed{0, -3, 2, INT_MIN}),
                       "index -3 at position 1");
    expect_index_error(device, Buffer::from(device, {2, 2}, Signed{0, INT_MIN, 2, 2}),
                       "index -2147483648 at");
    expect_index_error(device, Buffer::from(device, {2, 2}, Ids{0, 0xffffffffu, 2, 0x80000000u}),
                       "index 4294967295 at position 1");
  }
}

// Many bad indices over many chunks: always the lowest.
TEST(TakeAlongAxis, C10_LowestPositionOfMany) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    Ids ids(200000, 1);
    for (std::size_t i = 777; i < ids.size(); ++i) ids[i] = 4;
    const Buffer index = Buffer::from(device, {100000, 2}, ids);
    const Buffer x = device.alloc(DType::bf16, {100000, 4});
    const Buffer y = device.alloc(DType::bf16, {100000, 2});
    for (int run = 0; run < 5; ++run) {
      take_along_axis_forward(encoder, x, index, y);
      MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range,
                           "take_along_axis_forward_bf16: index 4 at position 777 is");
    }
  }
}

TEST(TakeAlongAxis, C11_SignedIndex) {
  for (const Device& device : testing::test_devices()) {
    const Buffer index = Buffer::from(device, {2, 1}, std::vector<std::int32_t>{0, 1});
    EXPECT_EQ(take(device, {2, 2}, {1, 2, 3, 4}, {2, 1}, index, {1, 1}).y, (Floats{1, 4}));
  }
}

// 300 gradients of 1 for one element: a bf16 running sum would stick at 256.
TEST(TakeAlongAxis, RepeatsAreSummedInF32) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer dy = device.alloc(DType::bf16, {1, 300});
    const Buffer dx = device.alloc(DType::bf16, {1, 300});
    encoder.fill(dy, 1.0f);
    encoder.fill(dx, 8.0f);
    take_along_axis_backward(encoder, Buffer::from(device, {1, 300}, Ids(300, 7)), dy, dx, Accumulate::yes);
    encoder.commit_and_wait();
    const auto found = dx.to_vector<bf16>();
    EXPECT_EQ(static_cast<float>(found[7]), 308.0f);
    EXPECT_EQ(static_cast<float>(found[6]), 8.0f);
  }
}

// 60000 twice is no f16, 60000 twice and -60000 once is.
TEST(TakeAlongAxis, F16RepeatsDoNotOverflowOnTheWay) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const std::vector<f16> dy = {f16(60000.0f), f16(60000.0f), f16(-60000.0f)};
    const Buffer dx = device.alloc(DType::f16, {1, 3});
    take_along_axis_backward(encoder, Buffer::from(device, {1, 3}, Ids{1, 1, 1}),
                             Buffer::from(device, {1, 3}, dy), dx);
    encoder.commit_and_wait();
    EXPECT_EQ(static_cast<float>(dx.to_vector<f16>()[1]), 60000.0f);
  }
}

TEST(TakeAlongAxis, NanGradientArrives) {
  for (const Device& device : testing::test_devices()) {
    const Buffer index = Buffer::from(device, {1, 1}, Ids{1});
    const Taken t = take(device, {1, 2}, {1, NAN}, {1, 1}, index, {NAN});
    EXPECT_TRUE(std::isnan(t.y[0]) && std::isnan(t.dx[1]));
    EXPECT_EQ(t.dx[0], 0.0f);
  }
}

struct Bytes {
  std::vector<std::byte> y, dx;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// Row 0 is cut off, so that the others need not begin where packs do.
Bytes bytes_on(const Device& device, DType dtype, const Shape& shape, std::int64_t k, Accumulate accumulate) {
  const Shape picks = shape.with(1, k);
  const auto view = [&](const testing::HostTensor& t) {
    const Buffer b = upload(device, t);
    return b.slice(1, shape[0]);
  };
  // Few columns: they repeat.
  const Buffer index = view(testing::random_indices(picks, 2, std::min(shape[1], 2 * k)));
  const Buffer x = view(testing::random_tensor(dtype, shape, 1));
  const Buffer dx = view(testing::random_tensor(dtype, shape, 4));
  const Buffer y = device.alloc_uninitialized(dtype, index.shape());
  CommandEncoder encoder(device);
  take_along_axis_forward(encoder, x, index, y);
  take_along_axis_backward(encoder, index, view(testing::random_tensor(dtype, picks, 3)), dx, accumulate);
  encoder.commit_and_wait();
  return {testing::download_bytes(y), testing::download_bytes(dx)};
}

TEST(TakeAlongAxis, SameBytesAsTheCpu) {
  struct Size {
    std::int64_t rows, cols, k;
  };
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const Size s : {Size{40, 128, 8}, Size{20, 33, 32}, Size{5, 5001, 20}, Size{5, 200, 131},
                           Size{3, 5000, 1024}, Size{3, 1500, 1205}, Size{3, 2500, 2500}}) {
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          const Shape shape{s.rows, s.cols};
          EXPECT_TRUE(bytes_on(device, dtype, shape, s.k, accumulate) ==
                      bytes_on(Device::cpu(), dtype, shape, s.k, accumulate))
              << device.name() << " " << dtype << shape << " k " << s.k << " accumulate "
              << static_cast<int>(accumulate);
        }
      }
    }
  }
}

TEST(TakeAlongAxis, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer y = device.alloc(DType::f32, {4, 2});
  const auto ids = [&](const Shape& shape, DType dtype = DType::u32) { return device.alloc(dtype, shape); };
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({4, 9}), y), code,
                       "index is u32[4,9], expected at most 8 per row of x f32[4,8]");
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({4, 2}, DType::u8), y), code,
                       "index is u8[4,2]");
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({3, 2}), y), code, "leading dimensions of x");
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({8}), y), code, "leading dimensions of x");
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({4, 2}), x), code, "y is f32[4,8]");
  MIXTAPE_EXPECT_ERROR(take_along_axis_forward(encoder, x, ids({4, 2}), device.alloc(DType::bf16, {4, 2})),
                       code, "y is bf16[4,2], expected f32[4,2]");
  MIXTAPE_EXPECT_ERROR(take_along_axis_backward(encoder, ids({4, 2}), x, x), code, "dy is f32[4,8]");
}

}  // namespace
}  // namespace mixtape
