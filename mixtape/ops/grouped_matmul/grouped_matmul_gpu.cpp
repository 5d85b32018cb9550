#include "mixtape/ops/grouped_matmul/grouped_matmul_gpu.h"

#include <algorithm>
#include <array>

#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_params.h"

namespace mixtape::gpu {
namespace {

// Each expert may leave one tile of rows partly empty.
std::int64_t tiles(const GroupedGemm& g) {
  const std::int64_t columns = ceil_div(g.kind == GroupedGemm::Kind::rows ? g.n : g.k, kGroupTile);
  if (g.kind == GroupedGemm::Kind::rows) return columns * (ceil_div(g.rows, kGroupTile) + g.experts);
  return columns * ceil_div(g.n, kGroupTile) * g.experts;
}

// Whether every row is bf16 or f16 in whole packs of 16 bytes.
bool are_for_tensors(const GroupedGemm& g) {
  const bool are_aligned = std::ranges::all_of(std::array{g.a, g.b, g.c, g.a2, g.b2},
                                               [](const Argument& each) { return each.offset % 16 == 0; });
  return g.a_type == g.b_type && g.a_type != DType::f32 && g.n % 8 == 0 && g.k % 8 == 0 && are_aligned;
}

GroupedGemm gemm_of(const Call& call, GroupedGemm::Kind kind) {
  const auto& p = call.params<GroupedMatmulParams>();
  GroupedGemm g;
  g.kind = kind;
  g.a_type = call.dtype(0), g.b_type = call.dtype(1), g.c_type = call.write(0).dtype();
  g.rows = p.rows, g.experts = p.experts, g.n = p.n, g.k = p.k;
  g.accumulate = p.accumulate != 0;
  g.a = call.read(0), g.b = call.read(1), g.offsets = call.read(2), g.c = call.write(0);
  return g;
}

void forward(const Call& call) {
  GroupedGemm g = gemm_of(call, GroupedGemm::Kind::rows);
  g.trans_b = true;
  grouped_gemm(call, g);
}

void backward_x(const Call& call) {
  GroupedGemm g = gemm_of(call, GroupedGemm::Kind::rows);
  std::swap(g.n, g.k);
  grouped_gemm(call, g);
}

void backward_pair(const Call& call) {
  GroupedGemm g = gemm_of(call, GroupedGemm::Kind::rows);
  std::swap(g.n, g.k);
  g.a2 = call.read(2), g.b2 = call.read(3), g.offsets = call.read(4);
  grouped_gemm(call, g);
}

void backward_w(const Call& call) { grouped_gemm(call, gemm_of(call, GroupedGemm::Kind::weights)); }

MIXTAPE_GPU_LAUNCHERS("grouped_matmul_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("grouped_matmul_backward_x_", backward_x);
MIXTAPE_GPU_LAUNCHERS("grouped_matmul_backward_pair_", backward_pair);
MIXTAPE_GPU_LAUNCHERS("grouped_matmul_backward_w_", backward_w);

}  // namespace

void grouped_gemm(const Call& call, const GroupedGemm& g) {
  const GroupedGemmParams p{g.rows, g.experts, g.n, g.k, g.trans_b, g.accumulate};
  const std::vector<Argument> arguments = {g.a,  g.b, g.offsets, g.c, call.index_errors(g.rows + 1, false),
                                           g.a2, g.b2};
  const char* kind = g.kind == GroupedGemm::Kind::weights ? "grouped_weights"
                     : g.a2.memory != nullptr             ? "grouped_rows_pair"
                                                          : "grouped_rows";
  const std::string types = str(kind, g.trans_b ? "_trans_" : "_", g.a_type, "_", g.c_type);
  for (const auto& [units, threads] : {std::pair{"_group", 256u}, {"_tensor", 128u}}) {
    if (are_for_tensors(g) && call.queue.has(types + units, kTensorBytes))
      return call.launch(types + units, grid_of(tiles(g)), {threads, 1, 1}, p, arguments, kTensorBytes);
  }
  call.launch(str(kind, "_", g.a_type, "_", g.b_type, "_", g.c_type), grid_of(tiles(g)), kBlock256, p,
              arguments);
}

}  // namespace mixtape::gpu
