#include "mixtape/ops/layout/layout.h"

#include <climits>
#include <numeric>

#include "mixtape/ops/layout/layout_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;

TEST(Layout, PutsWhereABufferSays) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t inner : {3, 8}) {
      const auto x = testing::random_tensor(DType::bf16, {2, 1, inner}, 1),
                 y = testing::random_tensor(DType::bf16, {2, 4, inner}, 2);
      const Buffer b = upload(device, y), start = Buffer::from(device, {1}, std::vector<std::uint32_t>{2});
      CommandEncoder encoder(device);
      put_forward(encoder, upload(device, x), 1, start, b);
      encoder.commit_and_wait();
      const auto found = testing::download(b);
      for (std::int64_t r = 0; r < 2; ++r) {
        for (std::int64_t i = 0; i < 4 * inner; ++i) {
          const bool is_put = i / inner == 2;
          const std::int64_t at = r * 4 * inner + i;
          ASSERT_EQ(found.values[static_cast<std::size_t>(at)],
                    is_put ? x.values[static_cast<std::size_t>(r * inner + i % inner)]
                           : y.values[static_cast<std::size_t>(at)]);
        }
      }
      start.copy_from(std::span<const std::uint32_t>(std::vector<std::uint32_t>{4}));
      put_forward(encoder, upload(device, x), 1, start, b);
      MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "4");
      EXPECT_EQ(testing::download(b).values, found.values);
    }
  }
}

TEST(Layout, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, permute_checks(device, dtype));
      check_ops(device, transpose_checks(device, dtype));
      check_ops(device, reshape_checks(device, dtype));
      check_ops(device, slice_checks(device, dtype));
      check_ops(device, repeat_checks(device, dtype));
      check_ops(device, concat_checks(device, dtype));
    }
  }
}

// Query head h uses kv head h / times.
TEST(Layout, RepeatKeepsCopiesTogether) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {2, 1}, Floats{1, 2}));
    const Var y = repeat(x, 0, 2);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (Floats{1, 1, 2, 2}));
  }
}

TEST(Layout, C5_ConcatOffsetsAdvancePastInputsWithoutGradient) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t axis : {0, 1}) {
      Tape tape(device);
      const Var a = tape.constant(device.alloc(DType::f32, {2, 2}));
      const Var b = tape.parameter(device.alloc(DType::f32, {2, 2}));
      const Var y = concat({a, b, a}, axis);
      Floats dy(12);
      std::iota(dy.begin(), dy.end(), 0.0f);
      tape.backward(y, Buffer::from(device, y.shape(), dy));
      tape.encoder().commit_and_wait();
      EXPECT_EQ(b.grad().to_vector<float>(), axis == 0 ? (Floats{4, 5, 6, 7}) : (Floats{2, 3, 8, 9}));
    }
  }
}

TEST(Layout, OneVarTwiceInAConcat) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {1, 2}));
    tape.backward(concat({x, x}, 1), Buffer::from(device, {1, 4}, Floats{1, 2, 10, 20}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{11, 22}));
  }
}

// The upstream gradient of a slice reaches one part; two slices add up.
TEST(Layout, F2_SlicesOfOneInput) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {2, 4}));
    const testing::Poison poison(device);
    const Var y = concat({slice(x, 1, 2, 4), slice(x, 1, 1, 3)}, 1);
    tape.backward(y, Buffer::from(device, {2, 4}, Floats{1, 2, 3, 4, 5, 6, 7, 8}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 3, 5, 2, 0, 7, 13, 6}));
  }
}

TEST(Layout, ReshapeAndFirstAxisSliceAreViews) {
  Tape tape(Device::cpu());
  const Var x = tape.parameter(tape.device().alloc(DType::f32, {4, 6}));
  EXPECT_TRUE(overlap(reshape(x, {3, 8}).value(), x.value()));
  EXPECT_TRUE(overlap(slice(x, 0, 1, 3).value(), x.value()));
  const Buffer dy = tape.device().alloc(DType::f32, {3, 8});
  tape.backward(reshape(x, {3, 8}), dy);
  EXPECT_EQ(x.grad().shape(), (Shape{4, 6}));
  EXPECT_FALSE(overlap(x.grad(), dy));
}

TEST(Layout, ReshapeFindsTheSizeThatIsLeft) {
  Tape tape(Device::cpu());
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.constant(tape.device().alloc(DType::f32, {2, 3, 4}));
  EXPECT_EQ(reshape(x, {-1}).shape(), (Shape{24}));
  EXPECT_EQ(reshape(x, {6, -1}).shape(), (Shape{6, 4}));
  EXPECT_EQ(reshape(x, {2, -1, 2, 1}).shape(), (Shape{2, 6, 2, 1}));
  EXPECT_EQ(reshape(slice(x, 1, 0, 0), {2, -1}).shape(), (Shape{2, 0}));
  MIXTAPE_EXPECT_ERROR(
      reshape(x, {-1, 5}), code,
      "reshape: f32[2,3,4] has 24 elements, expected a multiple of 5 for the sizes beside -1");
  MIXTAPE_EXPECT_ERROR(reshape(x, {0, -1}), code, "expected a multiple of 0");
  MIXTAPE_EXPECT_ERROR(reshape(x, {-1, -1}), code, "dimension is -1");
  MIXTAPE_EXPECT_ERROR(reshape(x, {-2, 12}), code, "dimension is -2");
}

TEST(Layout, BroadcastShapes) {
  EXPECT_EQ(broadcast_shape("f", {3, 1}, {2, 1, 5}), (Shape{2, 3, 5}));
  EXPECT_EQ(broadcast_shape("f", {1}, {4}), (Shape{4}));
  EXPECT_EQ(broadcast_shape("f", {1, 4}, {0, 1}), (Shape{0, 4}));
  MIXTAPE_EXPECT_ERROR(broadcast_shape("f", {2, 3}, {2}), ErrorCode::invalid_argument,
                       "f: shapes [2,3] and [2] don't broadcast, expected axis -1 equal or 1");
}

TEST(Layout, EveryDtypeMoves) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::i32, DType::u32, DType::u16, DType::u8}) {
      const testing::HostTensor x = testing::random_indices({3, 4}, 5, 100, dtype);
      Tape tape(device);
      const Var v = tape.constant(upload(device, x));
      const Var y = concat({transpose(transpose(slice(v, 1, 0, 2))), slice(v, 1, 2, 4)}, 1);
      tape.encoder().commit_and_wait();
      EXPECT_EQ(testing::download(y.value()).values, x.values) << dtype;
    }
  }
}

TEST(Layout, EmptyParts) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {2, 3}));
    const testing::Poison poison(device);
    const Var none = slice(x, 1, 1, 1);
    EXPECT_EQ(none.shape(), (Shape{2, 0}));
    EXPECT_EQ(transpose(none).shape(), (Shape{0, 2}));
    EXPECT_EQ(repeat(none, 0, 3).shape(), (Shape{6, 0}));
    tape.backward(concat({none, x}, 1), Buffer::from(device, {2, 3}, Floats{1, 2, 3, 4, 5, 6}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  }
}

TEST(Layout, C9_InvalidAxis) {
  Tape tape(Device::cpu());
  const Var x = tape.constant(tape.device().alloc(DType::f32, {2, 3, 4}));
  const auto code = ErrorCode::invalid_argument;
  for (const std::int64_t axis : {std::int64_t{-4}, std::int64_t{-100}, std::int64_t{3}, std::int64_t{100},
                                  std::int64_t{INT64_MIN}, std::int64_t{INT64_MAX}}) {
    const std::string text = str("invalid axis ", axis, ", expected -3 to 2 for shape [2,3,4]");
    MIXTAPE_EXPECT_ERROR(slice(x, axis, 0, 1), code, "slice: " + text);
    MIXTAPE_EXPECT_ERROR(concat({x, x}, axis), code, "concat: " + text);
    MIXTAPE_EXPECT_ERROR(permute(x, {0, 1, axis}), code, "permute: " + text);
    MIXTAPE_EXPECT_ERROR(repeat(x, axis, 2), code, "repeat: " + text);
  }
}

TEST(Layout, RefusesBadArguments) {
  const Device device = Device::cpu();
  Tape tape(device);
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.constant(device.alloc(DType::f32, {2, 3, 4}));
  MIXTAPE_EXPECT_ERROR(permute(x, {0, 1}), code, "got 2 axes, expected 3");
  MIXTAPE_EXPECT_ERROR(permute(x, {0, 1, 1}), code, "axis 1 is named twice");
  MIXTAPE_EXPECT_ERROR(permute(x, {0, 1, -2}), code, "axis 1 is named twice");
  MIXTAPE_EXPECT_ERROR(slice(x, 1, 2, 4), code, "slice: [2,4) is outside axis 1 of x f32[2,3,4]");
  MIXTAPE_EXPECT_ERROR(slice(x, 1, -1, 2), code, "[-1,2)");
  MIXTAPE_EXPECT_ERROR(slice(x, 1, 2, 1), code, "[2,1)");
  MIXTAPE_EXPECT_ERROR(reshape(x, {5, 5}), code, "reshape: f32[2,3,4] has 24 elements, expected 25");
  MIXTAPE_EXPECT_ERROR(repeat(x, 1, 0), code, "times is 0");
  for (const int bit : {61, 62}) {  // the products wrap round to a small number, and to 0
    for (const std::int64_t more : {0, 1}) {
      const std::int64_t times = (std::int64_t{1} << bit) + more;
      MIXTAPE_EXPECT_ERROR(repeat(x, 0, times), code, "more");
      MIXTAPE_EXPECT_ERROR(repeat_forward(tape.encoder(), x.value(), 0, times, x.value()), code, "more");
    }
  }
  MIXTAPE_EXPECT_ERROR(transpose(tape.constant(device.alloc(DType::f32, {3}))), code, "rank 2 or more");
  MIXTAPE_EXPECT_ERROR(concat({}, 0), code, "concat: no inputs");
  MIXTAPE_EXPECT_ERROR(concat({x, tape.constant(device.alloc(DType::f32, {2, 2, 3}))}, 1), code,
                       "concat: part 1 is f32[2,2,3], expected f32[2,3,4] like part 0, but for axis 1");
  MIXTAPE_EXPECT_ERROR(concat({x, tape.constant(device.alloc(DType::bf16, {2, 3, 4}))}, 1), code,
                       "part 1 is bf16");
  MIXTAPE_EXPECT_ERROR(permute_forward(encoder, x.value(), {0, 1, 2}, x.value()), code, "shares memory");
  MIXTAPE_EXPECT_ERROR(slice_forward(encoder, x.value(), 1, 2, device.alloc(DType::f32, {2, 2, 4})), code,
                       "[2,4) is outside axis 1");
}

}  // namespace
}  // namespace mixtape
