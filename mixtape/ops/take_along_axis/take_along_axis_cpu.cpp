#include <algorithm>
#include <vector>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/take_along_axis/take_along_axis_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

struct Indices {
  const void* data;
  bool is_signed;
  std::int64_t operator[](std::int64_t i) const {
    if (is_signed) return static_cast<const std::int32_t*>(data)[i];
    return static_cast<const std::uint32_t*>(data)[i];
  }
};

bool in_range(std::int64_t index, std::int64_t cols) { return index >= 0 && index < cols; }

template <class T>
void forward(const HostCall& call) {
  const auto& p = call.params<TakeAlongAxisParams>();
  const T* x = call.read<T>(0);
  const Indices index{call.read<void>(1), p.index_is_signed != 0};
  T* y = call.write<T>(0);
  cpu::parallel_for(p.rows * p.k, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = index[i];
      const bool is_good = in_range(at, p.cols);
      if (!is_good) call.report_index(i, at, p.cols);
      y[i] = is_good ? x[i / p.k * p.cols + at] : T(0.0f);
    }
  });
}

// `sums` holds cols zeros, before and after. An index that repeats finds its sum only once.
template <class T>
void backward_row(const TakeAlongAxisParams& p, const Indices& index, std::int64_t first, const T* dy, T* dx,
                  float* sums) {
  if (!p.accumulate) std::fill(dx, dx + p.cols, T(0.0f));
  for (std::int64_t i = first; i < first + p.k; ++i) {
    if (in_range(index[i], p.cols)) sums[index[i]] += static_cast<float>(dy[i]);
  }
  for (std::int64_t i = first; i < first + p.k; ++i) {
    const std::int64_t at = index[i];
    if (!in_range(at, p.cols) || sums[at] == 0.0f) continue;
    dx[at] = T(static_cast<float>(dx[at]) + sums[at]);
    sums[at] = 0.0f;
  }
}

template <class T>
void backward(const HostCall& call) {
  const auto& p = call.params<TakeAlongAxisParams>();
  const T* dy = call.read<T>(0);
  const Indices index{call.read<void>(1), p.index_is_signed != 0};
  T* dx = call.write<T>(0);
  const std::int64_t grain = std::max<std::int64_t>(8, cpu::row_grain(p.cols));
  cpu::parallel_for(p.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>(p.cols), 0.0f);
    for (std::int64_t r = begin; r < end; ++r)
      backward_row(p, index, r * p.k, dy, dx + r * p.cols, sums.data());
    for (std::int64_t i = begin * p.k; i < end * p.k; ++i) {
      if (!in_range(index[i], p.cols)) call.report_index(i, index[i], p.cols);
    }
  });
}

MIXTAPE_HOST_KERNEL("take_along_axis_forward_f32", forward<float>);
MIXTAPE_HOST_KERNEL("take_along_axis_forward_bf16", forward<bf16>);
MIXTAPE_HOST_KERNEL("take_along_axis_forward_f16", forward<f16>);
MIXTAPE_HOST_KERNEL("take_along_axis_backward_f32", backward<float>);
MIXTAPE_HOST_KERNEL("take_along_axis_backward_bf16", backward<bf16>);
MIXTAPE_HOST_KERNEL("take_along_axis_backward_f16", backward<f16>);

}  // namespace
}  // namespace mixtape
