// sm_90a alone.
// Rows that warps take from shared memory.
#include "mixtape/backend/gpu/fetched_rows.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"
#include "mixtape/ops/rms_norm/rstd_gpu.h"

namespace mixtape {

template <class T, class W>
MIXTAPE_DEVICE void rms_norm_forward_fetched(const RmsNormParams& p, FetchedRows<T> rows, Global<const W> w,
                                             Global<T> y, Global<float> rstd) {
  constexpr int kPack = 16 / sizeof(T), kStep = kLanes * kPack;
  const int cols = static_cast<int>(p.cols), first = lane() * kPack;
  for (; rows.has_row(); rows.next()) {
    const Shared<const T> row = rows.take();
    float sum = 0.0f;
    MIXTAPE_UNROLL_4
    for (int c = first; c < cols; c += kStep) {
      const Pack<T, kPack> pack = load_pack<kPack>(row + c);
      float part = 0.0f;
      MIXTAPE_UNROLL
      for (int i = 0; i < kPack; ++i) part = fma_f32(to_f32(pack.v[i]), to_f32(pack.v[i]), part);
      sum += part;
    }
    const float r = rstd_of(lane_sum(sum), p.cols, p.eps);
    if (lane() == 0) rstd[rows.row()] = r;
    const Global<T> out_row = y + rows.row() * p.cols;
    MIXTAPE_UNROLL_4
    for (int c = first; c < cols; c += kStep) {
      const Pack<T, kPack> pack = load_pack<kPack>(row + c);
      const Pack<W, kPack> weight = load_pack<kPack>(w + c);
      Pack<T, kPack> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < kPack; ++i)
        out.v[i] = from_f32<T>(to_f32(pack.v[i]) * r * to_f32(weight.v[i]));
      store_pack(out_row + c, out);
    }
  }
}

#define FORWARD(NAME, T, W)                                                                            \
  MIXTAPE_FETCHED_KERNEL(rms_norm_forward_##NAME##_fetched, RmsNormParams p, Global<const T> x,        \
                         Global<const W> w, Global<T> y, Global<float> rstd) {                         \
    MIXTAPE_SHARED(std::uint64_t, arrivals, kRowsAhead);                                               \
    MIXTAPE_SHARED_DYNAMIC(T, landing);                                                                \
    rms_norm_forward_fetched<T, W>(p, FetchedRows<T>(x, p.rows, p.cols, landing, arrivals), w, y, rstd); \
  }
FORWARD(f32, f32, f32)
FORWARD(bf16, bf16, bf16)
FORWARD(bf16_w_f32, bf16, f32)
FORWARD(f16, f16, f16)
FORWARD(f16_w_f32, f16, f32)

}  // namespace mixtape
