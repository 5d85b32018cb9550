#include "mixtape/backend/gpu/convert.h"

#include <utility>

#include "mixtape/backend/gpu/memory_params.h"
#include "mixtape/backend/gpu/split.h"

namespace mixtape::gpu {

void convert(const Call& call, const Argument& x, DType from, const Argument& y, DType to, std::int64_t count,
             bool accumulate) {
  call.launch(str("convert_", from, "_", to), grid_for(count, 4), kBlock256,
              ConvertParams{count, accumulate ? 1u : 0u}, {x, y});
}

Converted in_dtype(const Call& call, const Argument& x, DType from, DType to, std::int64_t count) {
  if (from == to) return {x, nullptr};
  Converted made;
  made.memory = call.queue.scratch(static_cast<std::size_t>(count) * size_of(to));
  made.argument = *made.memory;
  convert(call, x, from, made.argument, to, count);
  return made;
}

void mixed_gemm(const Call& call, Gemm gemm, DType a, DType b) {
  if (can_split(gemm, a, b)) return split_gemm(call, gemm);
  gemm.in = a == b ? a : DType::f32;
  const Converted first = in_dtype(call, gemm.a, a, gemm.in, gemm.batch * gemm.m * gemm.k);
  const Converted second = in_dtype(call, gemm.b, b, gemm.in, gemm.batch * gemm.k * gemm.n);
  gemm.a = first.argument;
  gemm.b = second.argument;
  if (gemm.out == DType::f32 || gemm.out == gemm.in) return call.queue.gemm(gemm);
  const std::int64_t count = gemm.batch * gemm.m * gemm.n;
  const auto wide = call.queue.scratch(static_cast<std::size_t>(count) * sizeof(float));
  const Argument c = std::exchange(gemm.c, *wide);
  const DType out = std::exchange(gemm.out, DType::f32);
  const bool accumulate = std::exchange(gemm.accumulate, false);
  call.queue.gemm(gemm);
  convert(call, *wide, DType::f32, c, out, count, accumulate);
}

}  // namespace mixtape::gpu
