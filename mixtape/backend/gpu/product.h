// Matrix products by kernels of the library's own, for cards without cuBLASLt: right, and many times slower.
#pragma once

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

void own_product(Queue& queue, const Gemm& gemm);

}  // namespace mixtape::gpu
