#include <cmath>
#include <cstring>

#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

// Ids of which some come often: every third is one of a few.
HostTensor skewed_ids(std::int64_t count, std::int64_t rows, DType dtype) {
  HostTensor ids = testing::random_indices({count}, 4, rows, dtype);
  for (std::size_t i = 0; i < ids.values.size(); i += 3)
    ids.values[i] = std::floor(ids.values[i] / static_cast<double>(rows) * 3.0);
  return ids;
}

std::vector<std::byte> row_bytes(const std::vector<std::byte>& all, std::size_t row, std::size_t size) {
  return {all.begin() + static_cast<std::ptrdiff_t>(row * size),
          all.begin() + static_cast<std::ptrdiff_t>((row + 1) * size)};
}

// The named rows, byte for byte those of the dense gradient, and all the others of that are zeros.
void expect_dense_rows(const Device& device, DType dtype, std::int64_t rows, std::int64_t hidden,
                       const HostTensor& ids) {
  const std::string what = str(device.name(), " ", dtype, " ", rows, "x", hidden, " ids ", ids.shape);
  const std::int64_t count = ids.shape.numel();
  CommandEncoder encoder(device);
  const testing::Poison poison(device);
  const Buffer id_buffer = upload(device, ids);
  const Buffer dy = upload(device, testing::random_tensor(dtype, {count, hidden}, 5));
  const Buffer dense = device.alloc_uninitialized(dtype, {rows, hidden});
  const SparseRows sparse = alloc_sparse_rows(device, dtype, count, rows, hidden);
  embedding_backward(encoder, id_buffer, dy, dense);
  embedding_backward_sparse(encoder, id_buffer, dy, rows, sparse);
  encoder.commit_and_wait();
  std::vector<bool> is_named(static_cast<std::size_t>(rows), false);
  for (const double id : ids.values) is_named[static_cast<std::size_t>(id)] = true;
  const std::vector<std::byte> wanted = testing::download_bytes(dense);
  const std::uint32_t found = sparse.count.to_vector<std::uint32_t>()[0];
  const auto distinct = static_cast<std::uint32_t>(std::count(is_named.begin(), is_named.end(), true));
  ASSERT_EQ(found, distinct) << what;
  const std::vector<std::uint32_t> found_ids = sparse.ids.slice(0, found).to_vector<std::uint32_t>();
  const std::vector<std::byte> found_rows = testing::download_bytes(sparse.rows.slice(0, found));
  const std::size_t size = static_cast<std::size_t>(hidden) * size_of(dtype);
  std::size_t at = 0;
  for (std::size_t id = 0; id < is_named.size(); ++id) {
    if (!is_named[id]) {
      EXPECT_EQ(row_bytes(wanted, id, size), std::vector<std::byte>(size)) << what << " row " << id;
    } else {
      ASSERT_EQ(found_ids[at], id) << what;
      ASSERT_EQ(row_bytes(found_rows, at, size), row_bytes(wanted, id, size)) << what << " row " << id;
      ++at;
    }
  }
}

TEST(EmbeddingSparse, RowsOfTheDenseGradient) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      expect_dense_rows(device, dtype, 70, 40, skewed_ids(900, 70, DType::u32));
      expect_dense_rows(device, dtype, 1200, 17, skewed_ids(300, 1200, DType::i32));
      expect_dense_rows(device, dtype, 1, 8, skewed_ids(5, 1, DType::u32));
    }
    expect_dense_rows(device, DType::f32, 9000, 2, skewed_ids(1500, 9000, DType::u32));
    expect_dense_rows(device, DType::bf16, 9, 1100, skewed_ids(1, 9, DType::u32));
  }
}

// Adding to a gradient touches the rows that ids name and no other: those are NaNs of odd bits before, and
// after.
TEST(EmbeddingSparse, AccumulateTouchesNamedRowsOnly) {
  constexpr std::int64_t kRows = 200, kHidden = 24;
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const HostTensor ids = skewed_ids(150, kRows / 2, DType::u32);
      const std::size_t size = kHidden * size_of(dtype);
      std::vector<std::byte> before(kRows * size, std::byte{0xff});
      for (const double id : ids.values)
        std::memset(before.data() + static_cast<std::size_t>(id) * size, 0, size);
      const std::vector<std::byte> zeros(size);
      const Buffer dtable = device.alloc(dtype, {kRows, kHidden});
      dtable.write_bytes(before.data());
      const Buffer dy = upload(device, testing::random_tensor(dtype, {150, kHidden}, 5));
      CommandEncoder encoder(device);
      embedding_backward(encoder, upload(device, ids), dy, dtable, Accumulate::yes);
      encoder.commit_and_wait();
      const std::vector<std::byte> after = testing::download_bytes(dtable);
      for (std::size_t row = 0; row < kRows; ++row) {
        const bool was_named = row_bytes(before, row, size) == zeros;
        EXPECT_EQ(row_bytes(after, row, size) == row_bytes(before, row, size), !was_named)
            << device.name() << " " << dtype << " row " << row;
      }
      for (const double id : ids.values) {
        const auto row = static_cast<std::int64_t>(id);
        for (const double d : testing::download(dtable.slice(row, row + 1)).values)
          EXPECT_TRUE(std::isfinite(d));
      }
    }
  }
}

TEST(EmbeddingSparse, C10_IdOutsideTheTable) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer ids = Buffer::from(device, {4}, std::vector<std::int32_t>{3, -1, 7, 3});
    const Buffer dy = Buffer::from(device, {4, 1}, std::vector<float>{1, 2, 3, 4});
    const SparseRows sparse = alloc_sparse_rows(device, DType::f32, 4, 5, 1);
    embedding_backward_sparse(encoder, ids, dy, 5, sparse);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range,
                         "index -1 at position 1 is out of range, expected 0 to 4");
    EXPECT_EQ(sparse.count.to_vector<std::uint32_t>()[0], 1u);
    EXPECT_EQ(sparse.ids.slice(0, 1).to_vector<std::uint32_t>()[0], 3u);
    EXPECT_EQ(sparse.rows.slice(0, 1).to_vector<float>()[0], 5.0f);
  }
}

TEST(EmbeddingSparse, SameBitsEveryTime) {
  for (const Device& device : testing::test_devices()) {
    const Buffer ids = upload(device, skewed_ids(700, 90, DType::u32));
    const Buffer dy = upload(device, testing::random_tensor(DType::bf16, {700, 72}, 2));
    const auto work = [&] {
      CommandEncoder encoder(device);
      const SparseRows s = alloc_sparse_rows(device, DType::bf16, 700, 90, 72);
      embedding_backward_sparse(encoder, ids, dy, 90, s);
      encoder.commit_and_wait();
      const std::int64_t found = s.count.to_vector<std::uint32_t>()[0];
      return std::vector<Buffer>{s.ids.slice(0, found), s.rows.slice(0, found), s.count};
    };
    testing::expect_same_bits("embedding_backward_sparse", work, 3);
  }
}

TEST(EmbeddingSparse, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer ids = device.alloc(DType::u32, {3}), dy = device.alloc(DType::f32, {3, 4});
  const auto code = ErrorCode::invalid_argument;
  const auto run = [&](std::int64_t rows, const SparseRows& s) {
    embedding_backward_sparse(encoder, ids, dy, rows, s);
  };
  const SparseRows good = alloc_sparse_rows(device, DType::f32, 3, 9, 4);
  MIXTAPE_EXPECT_ERROR(run(0, good), code, "embedding_backward_sparse: table_rows is 0");
  MIXTAPE_EXPECT_ERROR(run(2, good), code, "rows is f32[3,4], expected f32[2,4]");
  MIXTAPE_EXPECT_ERROR(run(9, {good.ids, device.alloc(DType::bf16, {3, 4}), good.count}), code,
                       "dy is f32[3,4], expected bf16[3,4]");
  MIXTAPE_EXPECT_ERROR(run(9, {ids, good.rows, good.count}), code, "gradient.ids shares memory with ids");
  MIXTAPE_EXPECT_ERROR(run(9, {good.ids, good.rows, Buffer()}), code, "count is null");
}

}  // namespace
}  // namespace mixtape
