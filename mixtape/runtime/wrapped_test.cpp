// Buffers around memory that is not the library's.
#include <gtest/gtest.h>

#include "mixtape/runtime/command_encoder.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Values = std::vector<float>;

// `values`, owned by buffers; `*is_freed` becomes true with the last one.
struct Outside {
  explicit Outside(Values v, bool* is_freed = nullptr)
      : values(new Values(std::move(v)), [is_freed](const Values* p) {
          if (is_freed != nullptr) *is_freed = true;
          delete p;
        }) {}
  Buffer buffer(const Shape& shape) const {
    return Buffer::wrap(Device::cpu(), DType::f32, shape, values->data(), values);
  }
  std::shared_ptr<Values> values;
};

TEST(Wrapped, IsTheCallersMemory) {
  const Outside outside({1, 2, 3, 4});
  const std::size_t before = Device::cpu().memory_stats().live_bytes;
  const Buffer b = outside.buffer({2, 2});
  EXPECT_EQ(Device::cpu().memory_stats().live_bytes, before);
  EXPECT_EQ(b.host_data<float>(), outside.values->data());
  EXPECT_EQ(b.slice(1, 2).to_vector<float>(), (Values{3, 4}));
  (*outside.values)[0] = 7;
  EXPECT_EQ(b.to_vector<float>()[0], 7);
  b.copy_from<float>(Values{5, 6, 7, 8});
  EXPECT_EQ(*outside.values, (Values{5, 6, 7, 8}));
}

TEST(Wrapped, OwnerGoesWithTheLastBuffer) {
  bool is_freed = false;
  Buffer view;
  {
    Outside outside({1, 2}, &is_freed);
    const Buffer b = outside.buffer({2});
    outside.values.reset();
    view = b.slice(1, 2);
  }
  EXPECT_FALSE(is_freed);
  EXPECT_EQ(view.to_vector<float>(), (Values{2}));
  view = Buffer();
  EXPECT_TRUE(is_freed);
}

// Kernels read and write at any address of an element, in sizes that go past the caches too.
TEST(Wrapped, KernelsWorkOnIt) {
  CommandEncoder encoder(Device::cpu());
  for (const std::int64_t n : {1, 1000, 3'000'001}) {
    const Outside outside(Values(static_cast<std::size_t>(n + 1), 1.0f));
    const Buffer to = outside.buffer({n + 1}).slice(1, n + 1), from = Device::cpu().alloc(DType::f32, {n});
    encoder.fill(from, 2.0f);
    encoder.accumulate(from, to);
    encoder.commit_and_wait();
    EXPECT_EQ(outside.values->front(), 1.0f);
    EXPECT_EQ(to.to_vector<float>(), Values(static_cast<std::size_t>(n), 3.0f));
    encoder.copy(from, to);
    encoder.commit_and_wait();
    EXPECT_EQ(to.to_vector<float>(), Values(static_cast<std::size_t>(n), 2.0f));
  }
}

TEST(Wrapped, OverlapIsFoundByAddress) {
  const Outside outside({1, 2, 3, 4}), other({1, 2, 3, 4});
  const Buffer a = outside.buffer({4}), again = outside.buffer({4});
  EXPECT_TRUE(overlap(a, again));
  EXPECT_TRUE(overlap(a.slice(0, 2), again.slice(1, 3)));
  EXPECT_FALSE(overlap(a.slice(0, 2), again.slice(2, 4)));
  EXPECT_FALSE(overlap(a, other.buffer({4})));
  EXPECT_FALSE(overlap(a, Device::open("sim").alloc(DType::f32, {4})));
  CommandEncoder encoder(Device::cpu());
  MIXTAPE_EXPECT_ERROR(encoder.copy(a, again), ErrorCode::invalid_argument, "share memory");
}

TEST(Wrapped, Refused) {
  Values values(4);
  const auto wrap = [&](const Device& device, void* data, const Shape& shape) {
    return Buffer::wrap(device, DType::f32, shape, data, nullptr);
  };
  MIXTAPE_EXPECT_ERROR(wrap(Device::cpu(), nullptr, {4}), ErrorCode::invalid_argument,
                       "wrap: the memory of f32[4] is null");
  MIXTAPE_EXPECT_ERROR(wrap(Device::cpu(), reinterpret_cast<char*>(values.data()) + 2, {1}),
                       ErrorCode::invalid_argument, "expected a multiple of 4 bytes");
  MIXTAPE_EXPECT_ERROR(wrap(Device::open("sim"), values.data(), {4}), ErrorCode::not_supported,
                       "wrap: sim does not work on host memory");
  EXPECT_EQ(wrap(Device::cpu(), nullptr, {0}).numel(), 0);
}

}  // namespace
}  // namespace mixtape
