#include "mixtape/ops/embedding/embedding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "mixtape/ops/embedding/embedding_check.h"
#include "mixtape/ops/embedding/embedding_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;

TEST(Embedding, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, embedding_checks(device, dtype));
  }
}

enum class Ids { uniform, zipf, one };

HostTensor make_ids(Ids kind, std::int64_t count, std::int64_t rows) {
  HostTensor ids = testing::random_indices({count}, 4, kind == Ids::zipf ? 1 << 20 : rows);
  for (double& id : ids.values) {
    if (kind == Ids::one) id = 3;
    if (kind == Ids::zipf) id = std::floor(std::pow(static_cast<double>(rows), id / (1 << 20)) - 1.0);
  }
  return ids;
}

// The documented order, element by element, and one rounding.
template <class T>
std::vector<T> serial_backward(const HostTensor& ids, const std::vector<T>& dy, std::int64_t hidden,
                               std::vector<T> dtable, bool accumulate) {
  std::map<std::int64_t, std::vector<std::size_t>> places;
  for (std::size_t b = 0; b < ids.values.size(); ++b) {
    places[static_cast<std::int64_t>(ids.values[b])].push_back(b);
  }
  if (!accumulate) dtable.assign(dtable.size(), T(0.0f));
  for (const auto& [id, positions] : places) {
    for (std::int64_t h = 0; h < hidden; ++h) {
      std::vector<float> occurrences;
      for (const std::size_t b : positions) {
        occurrences.push_back(static_cast<float>(dy[b * static_cast<std::size_t>(hidden) + h]));
      }
      const float sum = oracle::embedding_segment_sum(occurrences, kSegmentBlock);
      T& out = dtable[id * hidden + h];
      out = T(accumulate ? static_cast<float>(out) + sum : sum);
    }
  }
  return dtable;
}

template <class T>
void expect_documented_order(const Device& device, Ids kind, std::int64_t rows, std::int64_t hidden,
                             std::int64_t count) {
  const HostTensor ids = make_ids(kind, count, rows);
  const Buffer dy = upload(device, testing::random_tensor(dtype_of<T>(), {count, hidden}, 5));
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    const Buffer dtable = upload(device, testing::random_tensor(dtype_of<T>(), {rows, hidden}, 6));
    const std::vector<T> wanted =
        serial_backward(ids, dy.to_vector<T>(), hidden, dtable.to_vector<T>(), accumulate == Accumulate::yes);
    CommandEncoder encoder(device);
    embedding_backward(encoder, upload(device, ids), dy, dtable, accumulate);
    encoder.commit_and_wait();
    const std::vector<std::byte> found = testing::download_bytes(dtable);
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size()), 0)
        << dtable << " ids " << static_cast<int>(kind) << " accumulate " << static_cast<int>(accumulate);
  }
}

TEST(Embedding, SumsInTheDocumentedOrder) {
  for (const Device& device : testing::test_devices()) {
    for (const Ids kind : {Ids::uniform, Ids::zipf, Ids::one}) {
      expect_documented_order<float>(device, kind, 50, 33, 3000);
      expect_documented_order<bf16>(device, kind, 50, 33, 3000);
      expect_documented_order<f16>(device, kind, 50, 33, 3000);
      expect_documented_order<float>(device, kind, 1000, 300, 200);
    }
    expect_documented_order<float>(device, Ids::one, 4, 270, 1025);
    expect_documented_order<float>(device, Ids::one, 4, 2, 65536);
  }
}

struct Bytes {
  std::vector<std::byte> y, dtable;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// The first row of each matrix is cut off, so that the others need not begin where packs do.
Bytes bytes_on(const Device& device, DType dtype, Ids kind, std::int64_t rows, std::int64_t hidden,
               std::int64_t count, Accumulate accumulate) {
  const auto random = [&](std::int64_t n, std::uint64_t seed) {
    return upload(device, testing::random_tensor(dtype, {n + 1, hidden}, seed)).slice(1, n + 1);
  };
  const Buffer table = random(rows, 1), dy = random(count, 2), dtable = random(rows, 3);
  const Buffer ids = upload(device, make_ids(kind, count, rows));
  const Buffer y = device.alloc_uninitialized(dtype, {count, hidden});
  CommandEncoder encoder(device);
  embedding_forward(encoder, table, ids, y);
  embedding_backward(encoder, ids, dy, dtable, accumulate);
  encoder.commit_and_wait();
  return {testing::download_bytes(y), testing::download_bytes(dtable)};
}

TEST(Embedding, SameBytesAsTheCpu) {
  struct Size {
    std::int64_t rows, hidden, count;
  };
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const Ids kind : {Ids::uniform, Ids::zipf, Ids::one}) {
        for (const Size s : {Size{70, 40, 2500}, Size{70, 41, 300}, Size{9, 1100, 700}}) {
          for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
            EXPECT_TRUE(bytes_on(device, dtype, kind, s.rows, s.hidden, s.count, accumulate) ==
                        bytes_on(Device::cpu(), dtype, kind, s.rows, s.hidden, s.count, accumulate))
                << device.name() << " " << dtype << " " << s.rows << "x" << s.hidden << " of " << s.count
                << " ids " << static_cast<int>(kind) << " accumulate " << static_cast<int>(accumulate);
          }
        }
      }
    }
  }
}

// Ids of three digits in the sort.
TEST(Embedding, SameBytesAsTheCpuForManyRows) {
  for (const Device& device : testing::test_devices()) {
    EXPECT_TRUE(bytes_on(device, DType::bf16, Ids::uniform, 300000, 1, 5000, Accumulate::yes) ==
                bytes_on(Device::cpu(), DType::bf16, Ids::uniform, 300000, 1, 5000, Accumulate::yes))
        << device.name();
  }
}

// A sum that starts from +0 never ends at -0.
TEST(Embedding, NegativeZeroGradientBecomesZero) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer dtable = device.alloc_uninitialized(DType::f32, {2, 1});
    embedding_backward(encoder, Buffer::from(device, {1}, std::vector<std::uint32_t>{1}),
                       Buffer::from(device, {1, 1}, std::vector<float>{-0.0f}), dtable);
    encoder.commit_and_wait();
    for (const float d : dtable.to_vector<float>()) EXPECT_FALSE(std::signbit(d));
  }
}

TEST(Embedding, LookupThenScatterCounts) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer table = upload(device, testing::random_tensor(DType::f32, {9, 4}, 1));
    const Buffer ids = Buffer::from(device, {4}, std::vector<std::uint32_t>{5, 5, 5, 5});
    const Buffer y = device.alloc(DType::f32, {4, 4}), dtable = device.alloc(DType::f32, {9, 4});
    embedding_forward(encoder, table, ids, y);
    embedding_backward(encoder, ids, y, dtable);
    encoder.commit_and_wait();
    const std::vector<float> e = table.to_vector<float>(), rows = y.to_vector<float>();
    const std::vector<float> d = dtable.to_vector<float>();
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(rows[i], e[20 + i % 4]);
    for (std::size_t i = 0; i < 36; ++i) EXPECT_EQ(d[i], i / 4 == 5 ? 4.0f * e[i] : 0.0f);
  }
}

template <class Id>
void expect_refused(const Device& device, const std::vector<Id>& ids, std::int64_t rows, const char* text) {
  const Shape shape{static_cast<std::int64_t>(ids.size())};
  const Buffer b = Buffer::from(device, shape, ids);
  const Buffer table = upload(device, testing::random_tensor(DType::f32, {rows, 3}, 1));
  const Buffer y = device.alloc_uninitialized(DType::f32, {shape[0], 3});
  CommandEncoder encoder(device);
  embedding_forward(encoder, table, b, y);
  MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, text);
  const std::vector<float> found = y.to_vector<float>();
  EXPECT_EQ(found[0], table.to_vector<float>()[0]);
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(found[i], 0.0f);
  const Buffer dtable = device.alloc_uninitialized(DType::f32, {rows, 3});
  embedding_backward(encoder, b, y, dtable);
  MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, text);
  EXPECT_EQ(dtable.to_vector<float>()[0], found[0]);
}

// Position 1 is the lowest bad one in each.
TEST(Embedding, C10_IdOutsideTheTable) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    expect_refused<std::uint32_t>(device, {0, 2, 1, 7}, 2,
                                  "index 2 at position 1 is out of range, expected 0 to 1");
    expect_refused<std::uint32_t>(device, {0, 0xffffffff}, 2, "index 4294967295 at position 1");
    expect_refused<std::int32_t>(device, {0, -3, 1, -1}, 2, "index -3 at position 1");
    expect_refused<std::int32_t>(device, {0, std::numeric_limits<std::int32_t>::min()}, 2,
                                 "index -2147483648 at position 1");
    expect_refused<std::uint32_t>(device, {0, 50300}, 50254, "expected 0 to 50253");
  }
}

TEST(Embedding, C12_OffsetsPast2To31) { EXPECT_EQ(row_offset(239674, 8960) + 8959, 2147487999); }

// 4.7 GB of address space, of which three pages are touched.
TEST(Embedding, C12_LargeTable) {
  const Device device = Device::cpu();
  constexpr std::int64_t kRow = 239674, kHidden = 8960;
  const Buffer table = device.alloc_uninitialized(DType::bf16, {262144, kHidden});
  const HostTensor row = testing::random_tensor(DType::bf16, {1, kHidden}, 1);
  const Buffer ids = Buffer::from(device, {2}, std::vector<std::uint32_t>{kRow, kRow});
  const Buffer y = device.alloc(DType::bf16, {2, kHidden});
  table.slice(kRow, kRow + 1).write_bytes(testing::download_bytes(upload(device, row)).data());
  CommandEncoder encoder(device);
  embedding_forward(encoder, table, ids, y);
  embedding_backward(encoder, ids, y, table, Accumulate::yes);
  encoder.commit_and_wait();
  EXPECT_EQ(testing::download(y.slice(1, 2)).values, row.values);
  std::vector<double> tripled = row.values;
  for (double& v : tripled) v *= 3.0;
  EXPECT_EQ(testing::download(table.slice(kRow, kRow + 1)).values,
            testing::make_tensor(DType::bf16, {1, kHidden}, tripled).values);
}

// A running f32 sum of ones stops at 16777216.
TEST(Embedding, C14_ManyOnesIntoOneCell) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t count = device.name() == "sim" ? 40000 : 13300000;
    const Buffer ids = device.alloc(DType::u32, {count});
    const Buffer dy = device.alloc(DType::f32, {count, 1}), sum = device.alloc(DType::f32, {1, 1});
    CommandEncoder encoder(device);
    encoder.fill(dy, 1.0f);
    for (int i = 0; i < 3; ++i) embedding_backward(encoder, ids, dy, sum, Accumulate::yes);
    encoder.commit_and_wait();
    EXPECT_EQ(sum.to_vector<float>()[0], 3.0f * static_cast<float>(count));
  }
}

TEST(Embedding, C16_SameBitsEveryTime) {
  for (const Device& device : testing::test_devices()) {
    std::vector<std::uint32_t> cyclic(320);
    for (std::uint32_t i = 0; i < 320; ++i) cyclic[i] = i % 8;
    const Buffer ids = Buffer::from(device, {10, 32}, cyclic);
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, {10, 32, 16}, 1));
    const Buffer many = upload(device, make_ids(Ids::zipf, 2063, 300));
    const Buffer many_dy = upload(device, testing::random_tensor(DType::bf16, {2063, 520}, 2));
    const int runs = device.name() == "sim" ? 3 : 20;
    const auto work = [&] {
      CommandEncoder encoder(device);
      const Buffer d = device.alloc_uninitialized(DType::f32, {8, 16});
      const Buffer many_d = device.alloc_uninitialized(DType::bf16, {300, 520});
      embedding_backward(encoder, ids, dy, d);
      embedding_backward(encoder, many, many_dy, many_d);
      encoder.commit_and_wait();
      return std::vector<Buffer>{d, many_d};
    };
    testing::expect_same_bits("embedding_backward", work, runs);
  }
}

TEST(Embedding, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const testing::Poison poison(device);
    const Var table = tape.parameter(device.alloc(DType::f32, {5, 4}));
    const Var y = embedding(table, device.alloc(DType::u32, {2, 0}));
    EXPECT_EQ(y.shape(), (Shape{2, 0, 4}));
    tape.backward(y, y.value());
    EXPECT_EQ(table.grad().to_vector<float>(), std::vector<float>(20, 0.0f));
  }
}

TEST(Embedding, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer table = device.alloc(DType::f32, {5, 4}), y = device.alloc(DType::f32, {3, 4});
  const Buffer ids = device.alloc(DType::u32, {3});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, device.alloc(DType::f32, {20}), ids, y), code,
                       "embedding: table is f32[20], expected [rows, hidden]");
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, device.alloc(DType::f32, {0, 4}), ids, y), code,
                       "no dimension of 0");
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, table, y, y), code, "ids is f32[3,4], expected u32 or i32");
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, table, device.alloc(DType::u32, {0}), y), code,
                       "y is f32[3,4], expected f32[0,4]");
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, table, ids, device.alloc(DType::bf16, {3, 4})), code,
                       "y is bf16[3,4], expected f32[3,4]");
  MIXTAPE_EXPECT_ERROR(embedding_forward(encoder, table, ids, table.slice(0, 3)), code, "shares memory");
  MIXTAPE_EXPECT_ERROR(embedding_backward(encoder, ids, table, table), code,
                       "embedding_backward: dy is f32[5,4], expected f32[3,4]");
}

}  // namespace
}  // namespace mixtape
