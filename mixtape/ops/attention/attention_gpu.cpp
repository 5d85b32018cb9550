#include <algorithm>
#include <array>
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

// Kernels for matrix units take bf16 in whole packs of 16 bytes, and distances between rows that fit in 23
// bits.
bool is_for_tensors(const Call& call, const AttentionParams& p) {
  const auto is_aligned = [](const Buffer& b) { return b.byte_offset() % 16 == 0; };
  return call.dtype(0) == DType::bf16 && p.head_dim % 8 == 0 && p.q_heads * p.head_dim < (1 << 23) &&
         p.scale > 0.0f && std::ranges::all_of(call.dispatch.reads, is_aligned) &&
         std::ranges::all_of(call.dispatch.writes, is_aligned);
}

bool forward_on_tensors(const Call& call, const AttentionParams& p, const Lengths& lengths) {
  struct Shape {
    std::int64_t dim, keys;
    std::uint32_t threads;
  };
  constexpr std::array kShapes = {Shape{64, 64, 128}, Shape{128, 48, 128}, Shape{256, 64, 256}};
  constexpr std::int64_t kQueries = 128;
  const Shape s = *std::ranges::find_if(kShapes, [&](const Shape& shape) { return p.head_dim <= shape.dim; });
  const std::string kernel = str("attention_forward_tensor_", s.dim);
  if (!is_for_tensors(call, p) || !call.queue.has(kernel)) return false;
  const auto shared_bytes = static_cast<std::uint32_t>((kQueries + 2 * s.keys) * s.dim * 2);
  call.launch(kernel, grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kQueries)), {s.threads, 1, 1}, p,
              {call.read(0), call.read(1), call.read(2), lengths.lengths, call.write(0), call.write(1),
               lengths.errors},
              shared_bytes);
  return true;
}

void forward(const Call& call) {
  const auto& p = call.params<AttentionParams>();
  const Lengths lengths = lengths_of(call, p);
  if (forward_on_tensors(call, p, lengths)) return;
  call.launch(str(call.dispatch.kernel, "_", chunks(p)),
              grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTile)), kBlock256, p,
              {call.read(0), call.read(1), call.read(2), lengths.lengths, call.write(0), call.write(1),
               lengths.errors});
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
