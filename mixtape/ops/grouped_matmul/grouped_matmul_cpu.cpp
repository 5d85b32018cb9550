#include <cstring>

#include "mixtape/backend/cpu/blocks.h"
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/ops/grouped_matmul/group_offsets.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_params.h"

namespace mixtape {

std::vector<std::int64_t> cpu::group_offsets(const HostCall& call, const Buffer& offsets, std::int64_t rows) {
  const auto* given = reinterpret_cast<const std::uint32_t*>(offsets.host_bytes());
  const std::int64_t last = offsets.numel() - 1;
  std::vector<std::int64_t> values;
  for (std::int64_t e = 0; e <= last; ++e) {
    const std::int64_t low = e == 0 ? 0 : values.back();
    const std::int64_t high = e == 0 ? 0 : rows;
    if (given[e] < low || given[e] > high || (e == last && given[e] != rows)) {
      call.report_index(e, given[e], rows + 1);
      return {};
    }
    values.push_back(given[e]);
  }
  return values;
}

namespace {

void zero(const HostCall& call, std::uint32_t accumulate) {
  if (accumulate == 0) std::memset(call.write<std::byte>(0), 0, call.writes[0].bytes());
}

// One product per expert: make(params, expert, first row, rows). Offsets are read last.
template <class Make>
void for_each_expert(const HostCall& call, Make&& make) {
  const auto& p = call.params<GroupedMatmulParams>();
  const std::vector<std::int64_t> offsets = cpu::group_offsets(call, call.reads.back(), p.rows);
  if (offsets.empty()) return zero(call, p.accumulate);
  std::vector<cpu::GemmCall> products;
  for (std::int64_t e = 0; e < p.experts; ++e)
    products.push_back(make(p, e, offsets[e], offsets[e + 1] - offsets[e]));
  cpu::gemm_all(products);
}

cpu::Gemm types(const HostCall& call) {
  cpu::Gemm gemm;
  gemm.a = call.reads[0].dtype();
  gemm.b = call.reads[1].dtype();
  gemm.c = call.writes[0].dtype();
  gemm.sizes_vary = true;
  return gemm;
}

// Element `index` of buffer i, as the products want it.
const void* read_at(const HostCall& call, std::size_t i, std::int64_t index) {
  return cpu::element(call.reads[i].dtype(), call.read<std::byte>(i), index);
}
void* write_at(const HostCall& call, std::int64_t index) {
  return cpu::element(call.writes[0].dtype(), call.write<std::byte>(0), index);
}

void forward(const HostCall& call) {
  for_each_expert(call,
                  [&](const GroupedMatmulParams& p, std::int64_t e, std::int64_t begin, std::int64_t rows) {
                    cpu::Gemm g = types(call);
                    g.trans_b = true;
                    g.m = rows, g.n = p.n, g.k = p.k;
                    g.lda = p.k, g.ldb = p.k, g.ldc = p.n;
                    return cpu::GemmCall{g, read_at(call, 0, begin * p.k), read_at(call, 1, e * p.n * p.k),
                                         write_at(call, begin * p.n)};
                  });
}

// Of the gradient and weight that are read at `first` and after it.
void add_to_dx(const HostCall& call, std::size_t first, bool accumulate) {
  for_each_expert(
      call, [&](const GroupedMatmulParams& p, std::int64_t e, std::int64_t begin, std::int64_t rows) {
        cpu::Gemm g = types(call);
        g.m = rows, g.n = p.k, g.k = p.n;
        g.lda = p.n, g.ldb = p.k, g.ldc = p.k;
        g.accumulate = accumulate;
        return cpu::GemmCall{g, read_at(call, first, begin * p.n), read_at(call, first + 1, e * p.n * p.k),
                             write_at(call, begin * p.k)};
      });
}

void backward_x(const HostCall& call) {
  add_to_dx(call, 0, call.params<GroupedMatmulParams>().accumulate != 0);
}

void backward_pair(const HostCall& call) {
  backward_x(call);
  add_to_dx(call, 2, true);
}

void backward_w(const HostCall& call) {
  for_each_expert(call,
                  [&](const GroupedMatmulParams& p, std::int64_t e, std::int64_t begin, std::int64_t rows) {
                    cpu::Gemm g = types(call);
                    g.trans_a = true;
                    g.m = p.n, g.n = p.k, g.k = rows;
                    g.lda = p.n, g.ldb = p.k, g.ldc = p.k;
                    g.accumulate = p.accumulate != 0;
                    return cpu::GemmCall{g, read_at(call, 0, begin * p.n), read_at(call, 1, begin * p.k),
                                         write_at(call, e * p.n * p.k)};
                  });
}

MIXTAPE_HOST_KERNEL("grouped_matmul_forward_f32", forward);
MIXTAPE_HOST_KERNEL("grouped_matmul_forward_bf16", forward);
MIXTAPE_HOST_KERNEL("grouped_matmul_forward_f16", forward);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_x_f32", backward_x);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_x_bf16", backward_x);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_x_f16", backward_x);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_pair_f32", backward_pair);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_pair_bf16", backward_pair);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_pair_f16", backward_pair);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_w_f32", backward_w);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_w_bf16", backward_w);
MIXTAPE_HOST_KERNEL("grouped_matmul_backward_w_f16", backward_w);

}  // namespace
}  // namespace mixtape
