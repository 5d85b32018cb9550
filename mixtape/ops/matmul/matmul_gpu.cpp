#include "mixtape/backend/gpu/convert.h"
#include "mixtape/ops/matmul/matmul_params.h"

namespace mixtape::gpu {
namespace {

// Forward and both gradients are products that differ in their flags.
void product(const Call& call) {
  const auto& p = call.params<MatmulParams>();
  Gemm gemm;
  gemm.out = call.write(0).dtype();
  gemm.batch = p.batch;
  gemm.m = p.m;
  gemm.n = p.n;
  gemm.k = p.k;
  gemm.trans_a = p.trans_a != 0;
  gemm.trans_b = p.trans_b != 0;
  gemm.accumulate = p.accumulate != 0;
  gemm.a = call.read(0);
  gemm.b = call.read(1);
  gemm.c = call.write(0);
  if (call.dispatch.reads.size() > 2) gemm.addend = call.read(2);
  mixed_gemm(call, gemm, call.dtype(0), call.dtype(1));
}

MIXTAPE_GPU_LAUNCHERS("matmul_forward_", product);
MIXTAPE_GPU_LAUNCHERS("matmul_backward_", product);

}  // namespace
}  // namespace mixtape::gpu
