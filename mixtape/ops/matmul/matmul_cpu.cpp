#include <cstring>
#include <vector>

#include "mixtape/backend/cpu/blocks.h"
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/ops/matmul/matmul_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// Forward and both gradients are products that differ in their flags.
void matmul(const HostCall& call) {
  const auto& p = call.params<MatmulParams>();
  const bool adds = call.reads.size() > 2;
  if (adds) std::memcpy(call.write<std::byte>(0), call.read<std::byte>(2), call.writes[0].bytes());
  const cpu::Gemm gemm{.a = call.reads[0].dtype(),
                       .b = call.reads[1].dtype(),
                       .c = call.writes[0].dtype(),
                       .trans_a = p.trans_a != 0,
                       .trans_b = p.trans_b != 0,
                       .m = p.m,
                       .n = p.n,
                       .k = p.k,
                       .lda = p.trans_a ? p.m : p.k,
                       .ldb = p.trans_b ? p.k : p.n,
                       .ldc = p.n,
                       .accumulate = adds || p.accumulate != 0};
  std::vector<cpu::GemmCall> products;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    products.push_back({gemm, cpu::element(gemm.a, call.read<std::byte>(0), i * p.m * p.k),
                        cpu::element(gemm.b, call.read<std::byte>(1), i * p.k * p.n),
                        cpu::element(gemm.c, call.write<std::byte>(0), i * p.m * p.n)});
  }
  cpu::gemm_all(products);
}

MIXTAPE_HOST_KERNEL("matmul_forward_f32", matmul);
MIXTAPE_HOST_KERNEL("matmul_forward_bf16", matmul);
MIXTAPE_HOST_KERNEL("matmul_forward_f16", matmul);
MIXTAPE_HOST_KERNEL("matmul_backward_f32", matmul);
MIXTAPE_HOST_KERNEL("matmul_backward_bf16", matmul);
MIXTAPE_HOST_KERNEL("matmul_backward_f16", matmul);

}  // namespace
}  // namespace mixtape
