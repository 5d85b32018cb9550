#include <cmath>

#include "mixtape/ops/adam/adam.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::HostTensor;
using testing::upload;

constexpr std::int64_t kRows = 40;

struct Table {
  Buffer p, m, v;
};
Table make_table(const Device& device, DType dtype, std::int64_t hidden) {
  HostTensor v = testing::random_tensor(DType::f32, {kRows, hidden}, 3);
  for (double& value : v.values) value = std::abs(value);
  return {upload(device, testing::random_tensor(dtype, {kRows, hidden}, 1)),
          upload(device, testing::random_tensor(DType::f32, {kRows, hidden}, 2)), upload(device, v)};
}

// The rows named are those of the dense step, bit for bit; the others keep their bits.
void expect_rows_of_dense_step(const Device& device, DType dtype, DType g_dtype, std::int64_t hidden) {
  const HostTensor ids = testing::random_indices({30}, 4, kRows);
  const Buffer id_buffer = upload(device, ids);
  const Buffer dy = upload(device, testing::random_tensor(g_dtype, {30, hidden}, 5));
  const AdamOptions options{.lr = 0.05f, .weight_decay = 0.3f, .step = 3, .grad_scale = 0.5f};
  const Table before = make_table(device, dtype, hidden), dense = make_table(device, dtype, hidden),
              lazy = make_table(device, dtype, hidden);
  const Buffer g = device.alloc_uninitialized(g_dtype, {kRows, hidden});
  const SparseRows rows = alloc_sparse_rows(device, g_dtype, 30, kRows, hidden);
  CommandEncoder encoder(device);
  embedding_backward(encoder, id_buffer, dy, g);
  embedding_backward_sparse(encoder, id_buffer, dy, kRows, rows);
  adam_step(encoder, {{dense.p, g, dense.m, dense.v, 0.4f}}, options);
  adam_step_rows(encoder, {lazy.p, rows, lazy.m, lazy.v, 0.4f}, options);
  encoder.commit_and_wait();
  for (const Buffer Table::*part : {&Table::p, &Table::m, &Table::v}) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      const bool is_named = std::count(ids.values.begin(), ids.values.end(), static_cast<double>(row)) > 0;
      EXPECT_EQ(testing::download_bytes((lazy.*part).slice(row, row + 1)),
                testing::download_bytes(((is_named ? dense : before).*part).slice(row, row + 1)))
          << device.name() << " " << dtype << " " << g_dtype << " row " << row;
    }
  }
}

TEST(AdamRows, RowsOfTheDenseStep) {
  for (const Device& device : testing::test_devices()) {
    for (const DType p : testing::kValueDtypes) {
      for (const DType g : testing::kValueDtypes) expect_rows_of_dense_step(device, p, g, 24);
      expect_rows_of_dense_step(device, p, p, 33);
    }
  }
}

TEST(AdamRows, C10_IdOutsideTheTable) {
  for (const Device& device : testing::test_devices()) {
    const auto floats = [&](std::vector<float> values) {
      return Buffer::from(device, {static_cast<std::int64_t>(values.size()), 1}, values);
    };
    const SparseRows g{Buffer::from(device, {3}, std::vector<std::uint32_t>{1, 2, 5}), floats({4, 4, 4}),
                       Buffer::from(device, {1}, std::vector<std::uint32_t>{2})};
    const Buffer p = floats({1, 1}), m = floats({0, 0}), v = floats({0, 0});
    CommandEncoder encoder(device);
    adam_step_rows(encoder, {p, g, m, v}, {.lr = 0.25f});
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range,
                         "index 2 at position 1 is out of range, expected 0 to 1");
    EXPECT_EQ(p.to_vector<float>()[0], 1.0f);
    EXPECT_FLOAT_EQ(p.to_vector<float>()[1], 0.75f);
  }
}

TEST(AdamRows, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Table t = make_table(device, DType::f32, 4);
  const SparseRows g = alloc_sparse_rows(device, DType::f32, 3, kRows, 4);
  const auto code = ErrorCode::invalid_argument;
  const auto step = [&](const AdamRows& table) { adam_step_rows(encoder, table, {}); };
  MIXTAPE_EXPECT_ERROR(step({t.p.reshape({160}), g, t.m, t.v}), code, "adam_step_rows: p is f32[160]");
  MIXTAPE_EXPECT_ERROR(step({t.p, alloc_sparse_rows(device, DType::f32, 3, kRows, 5), t.m, t.v}), code,
                       "g.rows is f32[3,5], expected f32[3,4]");
  MIXTAPE_EXPECT_ERROR(step({t.p, g, t.p, t.v}), code, "m shares memory with p");
  MIXTAPE_EXPECT_ERROR(step({t.p, g, t.m, t.v, NAN}), code, "unit is nan");
  MIXTAPE_EXPECT_ERROR(step({t.p, {g.ids, g.rows, Buffer()}, t.m, t.v}), code, "g.count is null");
}

}  // namespace
}  // namespace mixtape
