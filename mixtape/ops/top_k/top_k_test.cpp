#include "mixtape/ops/top_k/top_k.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "mixtape/ops/top_k/top_k_check.h"
#include "mixtape/ops/top_k/top_k_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using ::testing::ElementsAre;
using testing::HostTensor;

TEST(TopK, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, top_k_checks(device, dtype));
  }
}

struct Found {
  std::vector<float> values;
  std::vector<std::uint32_t> indices;
};

Found top_k_of(const Device& device, const Shape& shape, const std::vector<float>& x, std::int64_t k) {
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const Shape out = shape.with(shape.rank() - 1, k);
  const Buffer values = device.alloc_uninitialized(DType::f32, out);
  const Buffer indices = device.alloc_uninitialized(DType::u32, out);
  top_k_forward(encoder, Buffer::from(device, shape, x), values, indices);
  encoder.commit_and_wait();
  return {values.to_vector<float>(), indices.to_vector<std::uint32_t>()};
}

void expect_oracle(const Device& device, const std::string& what, const Shape& shape,
                   const std::vector<float>& x, std::int64_t k) {
  const Found found = top_k_of(device, shape, x, k);
  const Doubles exact(x.begin(), x.end());
  const std::vector<std::int64_t> indices = oracle::top_k_indices(exact, shape.cols(), k);
  ASSERT_TRUE(std::equal(indices.begin(), indices.end(), found.indices.begin())) << what << " k " << k;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const float wanted = x[static_cast<std::int64_t>(i) / k * shape.cols() + indices[i]];
    ASSERT_EQ(std::memcmp(&found.values[i], &wanted, sizeof(float)), 0) << what << " k " << k << " at " << i;
  }
}

TEST(TopK, TiesSortedAndEqualRows) {
  for (const Device& device : testing::test_devices()) {
    const Shape shape{3, 5000};
    std::vector<float> few, rising, falling;
    const HostTensor digits = testing::random_indices(shape, 7, 9);
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      few.push_back(static_cast<float>(digits.values[i]) - 4.0f);
      rising.push_back(static_cast<float>(i));
      falling.push_back(-static_cast<float>(i));
    }
    for (const std::int64_t k : {1, 5, 16, 17, 100, 1024, 2500, 5000}) {
      expect_oracle(device, "few values", shape, few, k);
      expect_oracle(device, "rising", shape, rising, k);
      expect_oracle(device, "falling", shape, falling, k);
      expect_oracle(device, "equal", shape, std::vector<float>(15000, 2.0f), k);
    }
  }
}

TEST(TopK, ExtremesSubnormalsAndNan) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<float> x = {-HUGE_VALF, -1.0f, -0.0f,  0.0f, 1e-45f, -1e-45f, HUGE_VALF,
                                  NAN,        3e38f, -3e38f, -NAN, 0.0f,   -0.0f,   1.0f};
    const Found found = top_k_of(device, {1, 14}, x, 14);
    EXPECT_THAT(found.indices, ElementsAre(7, 10, 6, 8, 13, 4, 2, 3, 11, 12, 5, 1, 9, 0));
    EXPECT_TRUE(std::signbit(found.values[6]) && !std::signbit(found.values[7]));  // copies, not keys
    std::vector<float> wide(20 * 14);
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = x[i % 14];
    for (const std::int64_t k : {3, 30, 280}) expect_oracle(device, "extremes", {1, 280}, wide, k);
  }
}

TEST(TopK, ExtremesOfF16) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<f16> x = {f16(-HUGE_VALF), f16(0x1p-24f), f16(-0.0f), f16(0.0f),
                                f16(-0x1p-24f),  f16(65504.0f), f16(NAN),   f16(HUGE_VALF)};
    CommandEncoder encoder(device);
    const Buffer values = device.alloc(DType::f16, {1, 8}), indices = device.alloc(DType::u32, {1, 8});
    top_k_forward(encoder, Buffer::from(device, {1, 8}, x), values, indices);
    encoder.commit_and_wait();
    const auto places = indices.to_vector<std::uint32_t>();
    EXPECT_THAT(places, ElementsAre(6, 7, 5, 1, 2, 3, 4, 0));
    const auto found = values.to_vector<f16>();
    for (std::size_t j = 0; j < 8; ++j) EXPECT_EQ(found[j].bits, x[places[j]].bits);
  }
}

TEST(TopK, G3_EveryExpertOrTooMany) {
  for (const Device& device : testing::test_devices()) {
    const HostTensor x = testing::random_tensor(DType::f32, {5, 8}, 3);
    const std::vector<float> values(x.values.begin(), x.values.end());
    const Found found = top_k_of(device, {5, 8}, values, 8);
    for (std::ptrdiff_t r = 0; r < 5; ++r) {
      std::vector<std::uint32_t> row(found.indices.begin() + r * 8, found.indices.begin() + (r + 1) * 8);
      std::sort(row.begin(), row.end());
      EXPECT_THAT(row, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    }
    MIXTAPE_EXPECT_ERROR(top_k_of(device, {5, 8}, values, 16), ErrorCode::invalid_argument,
                         "top_k: k is 16, expected 1 to the 8 columns of x");
  }
}

TEST(TopK, VocabularyRows) {
  for (const Device& device : testing::test_devices()) {
    const HostTensor x = testing::random_tensor(DType::f32, {2, 49152}, 3, 4.0);
    expect_oracle(device, "vocabulary", x.shape, {x.values.begin(), x.values.end()}, 1024);
    testing::expect_same_bits(
        "top_k",
        [&] {
          CommandEncoder encoder(device);
          const std::vector<Buffer> out = {device.alloc_uninitialized(DType::f32, {2, 1024}),
                                           device.alloc_uninitialized(DType::u32, {2, 1024})};
          top_k_forward(encoder, upload(device, x), out[0], out[1]);
          encoder.commit_and_wait();
          return out;
        },
        3);
  }
}

struct Bytes {
  std::vector<std::byte> values, indices, dx;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// Row 0 is cut off, so that the others need not begin where packs do. `digits` > 0: so many different values.
Bytes bytes_on(const Device& device, DType dtype, const Shape& shape, std::int64_t k, std::int64_t digits) {
  const auto view = [&](const HostTensor& t) { return upload(device, t).slice(1, shape[0]); };
  HostTensor x = testing::random_tensor(dtype, shape, 1);
  if (digits > 0) x = testing::make_tensor(dtype, shape, testing::random_indices(shape, 1, digits).values);
  const Shape out{shape[0] - 1, k};
  const Buffer values = device.alloc_uninitialized(dtype, out);
  const Buffer indices = device.alloc_uninitialized(DType::u32, out);
  const Buffer dx = view(testing::random_tensor(dtype, shape, 2));
  CommandEncoder encoder(device);
  top_k_forward(encoder, view(x), values, indices);
  top_k_backward(encoder, indices, values, dx, digits > 0 ? Accumulate::yes : Accumulate::no);
  encoder.commit_and_wait();
  return {testing::download_bytes(values), testing::download_bytes(indices), testing::download_bytes(dx)};
}

TEST(TopK, SameBytesAsTheCpu) {
  struct Size {
    std::int64_t rows, cols, k;
  };
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const Size s : {Size{20, 128, 8}, Size{9, 60, 6}, Size{5, 512, 32}, Size{5, 300, 33},
                           Size{3, 4100, 8}, Size{3, 5003, 700}, Size{3, 6000, 2500}}) {
        for (const std::int64_t digits : {0, 3}) {
          const Shape shape{s.rows, s.cols};
          EXPECT_TRUE(bytes_on(device, dtype, shape, s.k, digits) ==
                      bytes_on(Device::cpu(), dtype, shape, s.k, digits))
              << device.name() << " " << dtype << shape << " k " << s.k << " digits " << digits;
        }
      }
    }
  }
}

TEST(TopK, BackwardReportsForeignIndices) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer indices = Buffer::from(device, {2, 2}, std::vector<std::uint32_t>{1, 0, 3, 7});
    const Buffer dvalues = Buffer::from(device, {2, 2}, std::vector<float>{1, 2, 3, 4});
    const Buffer dx = device.alloc(DType::f32, {2, 3});
    top_k_backward(encoder, indices, dvalues, dx);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range,
                         "index 3 at position 2 is out of range, expected 0 to 2");
    EXPECT_THAT(dx.to_vector<float>(), ElementsAre(2, 1, 0, 0, 0, 0));
  }
}

TEST(TopK, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 8}));
    const TopK top = top_k(x, 3);
    EXPECT_EQ(top.indices.shape(), (Shape{0, 3}));
    tape.backward(top.values, top.values.value());
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
}

TEST(TopK, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), values = device.alloc(DType::f32, {4, 3});
  const Buffer indices = device.alloc(DType::u32, {4, 3});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(top_k_forward(encoder, x, device.alloc(DType::f32, {4, 0}), indices), code, "k is 0");
  MIXTAPE_EXPECT_ERROR(top_k_forward(encoder, device.alloc(DType::f32, {0, 8}), values, indices), code,
                       "values is f32[4,3], expected f32[0,3]");
  MIXTAPE_EXPECT_ERROR(top_k_forward(encoder, x, device.alloc(DType::bf16, {4, 3}), indices), code,
                       "values is bf16[4,3], expected f32[4,3]");
  MIXTAPE_EXPECT_ERROR(top_k_forward(encoder, x, values, device.alloc(DType::i32, {4, 3})), code,
                       "indices is i32[4,3], expected u32[4,3]");
  MIXTAPE_EXPECT_ERROR(top_k_backward(encoder, indices, values, device.alloc(DType::f32, {3, 8})), code,
                       "top_k_backward: dvalues is f32[4,3], expected f32[3,3]");
}

}  // namespace
}  // namespace mixtape
