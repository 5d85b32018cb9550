#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/attention/attention_params.h"

namespace mixtape::gpu {
namespace {

constexpr std::int64_t kTile = 64;

// Kernels for up to 64, 128 and 256 dimensions.
int chunks(const AttentionParams& p) { return p.head_dim <= 64 ? 1 : p.head_dim <= 128 ? 2 : 4; }

struct Lengths {
  Argument lengths, errors;
};
Lengths lengths_of(const Call& call, const AttentionParams& p) {
  if (p.has_lengths == 0) return {};
  return {call.dispatch.reads.back(), call.index_errors(p.k_len + 1, true)};
}

void forward(const Call& call) {
  const auto& p = call.params<AttentionParams>();
  const auto [lengths, errors] = lengths_of(call, p);
  call.launch(str(call.dispatch.kernel, "_", chunks(p)),
              grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTile)), kBlock256, p,
              {call.read(0), call.read(1), call.read(2), lengths, call.write(0), call.write(1), errors});
}

void backward(const Call& call) {
  const auto& p = call.params<AttentionParams>();
  const auto [lengths, errors] = lengths_of(call, p);
  const Buffer &q = call.read(0), &k = call.read(1), &v = call.read(2), &y = call.read(3),
               &lse = call.read(4), &dy = call.read(5);
  const std::shared_ptr<Memory> delta = call.queue.scratch(lse.bytes());
  call.launch(str("attention_delta_", q.dtype()), grid_of(ceil_div(lse.numel(), 8)), {32, 8, 1}, p,
              {y, dy, *delta});
  const auto launch = [&, errors = errors, lengths = lengths](std::uint32_t bit, const char* name,
                                                              std::int64_t tiles) {
    if ((p.wanted & bit) == 0) return;
    const auto index = static_cast<std::size_t>(std::popcount(p.wanted & (bit - 1)));
    call.launch(str("attention_", name, "_", q.dtype(), "_", chunks(p)), grid_of(tiles), kBlock256, p,
                {q, k, v, dy, lse, *delta, lengths, call.write(index), errors});
  };
  const std::int64_t key_tiles = p.batch * p.kv_heads * ceil_div(p.k_len, kTile);
  launch(2, "dk", key_tiles);
  launch(4, "dv", key_tiles);
  launch(1, "dq", p.batch * p.q_heads * ceil_div(p.q_len, kTile));
}

MIXTAPE_GPU_LAUNCHERS("attention_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("attention_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
