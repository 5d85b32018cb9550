// Which kernel runs, the first that fits:
//   attention_query_*  attention_query_gpu.cu, forward of one query of each sequence; heads of whole packs of 8; aligned
//       buffers.
//   attention_{forward,dq,dkv}_group_*  attention_group_cuda.cu, attention_group_backward_cuda.cu, products of warp
//       groups on matrix units: Hopper; up to 128 dimensions, and what the next ones want.
//   attention_{forward,dq,dk,dv,dkv}_tensor_*  attention_cuda.cu, products on matrix units: Ampere and newer, as far as
//       their shared memory reaches; bf16, forward also f16; heads of whole 16-byte packs; aligned buffers; a positive
//       scale. The last number is the head_dim it has room for; dk and dv are one kernel up to 128, beyond which a
//       thread's registers hold the sums of one.
//   attention_*_1, _2, _4  attention_gpu.cu, products on ordinary cores, in f32: everything else. The number
//       is that of chunks of 64 dimensions.
#include <algorithm>
#include <array>
#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/attention/attention_params.h"
#include "mixtape/ops/attention/attention_query_params.h"

namespace mixtape::gpu {
namespace {

constexpr std::int64_t kTile = 64;  // queries or keys of a block of attention_gpu.cu

// Kernels for up to 64, 128 and 256 dimensions.
int chunks(const AttentionParams& p) { return p.head_dim <= 64 ? 1 : p.head_dim <= 128 ? 2 : 4; }

struct Lengths {
  Argument lengths, errors;
};
Lengths lengths_of(const Call& call, const AttentionParams& p) {
  if (p.has_lengths == 0) return {};
  return {call.dispatch.reads.back(), call.index_errors(p.k_len + 1, true)};
}

Argument sinks_of(const Call& call, const AttentionParams& p, std::size_t read) {
  return p.has_sinks != 0 ? Argument(call.read(read)) : Argument();
}

// What the kernels for matrix units, of which `kernel` is one, do not take; null where they run.
const char* obstacle_to_tensors(const Call& call, const AttentionParams& p, const std::string& kernel,
                                std::uint32_t shared_bytes) {
  const auto is_aligned = [](const Buffer& b) { return b.byte_offset() % 16 == 0; };
  if (call.dtype(0) == DType::f32) return "it takes 16-bit values";
  if (p.head_dim % 8 != 0) return "a head is no whole packs of 16 bytes";
  if (p.q_heads * p.head_dim >= (1 << 23)) return "rows are too far apart for 23 bits";
  if (!(p.scale > 0.0f)) return "the scale is not positive";
  if (!std::ranges::all_of(call.dispatch.reads, is_aligned) ||
      !std::ranges::all_of(call.dispatch.writes, is_aligned))
    return "a buffer is not aligned to 16 bytes";
  return call.queue.has(kernel, shared_bytes) ? nullptr : "this card has none, or too little shared memory";
}

bool runs_on_tensors(const Call& call, const AttentionParams& p, const std::string& kernel,
                     std::uint32_t shared_bytes) {
  const char* obstacle = obstacle_to_tensors(call, p, kernel, shared_bytes);
  if (obstacle != nullptr) trace_pass_over(kernel, obstacle);
  return obstacle == nullptr;
}

// Tiles of the kernels for up to `dim` dimensions: forward has `threads` and that many keys beside 128
// queries, dq 256 and two times `dq_keys`, dk and dv two times `queries` beside 128 keys.
struct TensorShape {
  std::int64_t dim;
  std::uint32_t threads;
  std::int64_t keys, dq_keys, queries;
};
constexpr std::array kTensorShapes = {TensorShape{64, 128, 64, 32, 64}, TensorShape{128, 128, 48, 64, 32},
                                      TensorShape{256, 256, 64, 32, 32}};
constexpr std::int64_t kTensorTile = 128;

const TensorShape& tensor_shape(const AttentionParams& p) {
  return *std::ranges::find_if(kTensorShapes, [&](const TensorShape& s) { return p.head_dim <= s.dim; });
}
// For `rows` rows of 16-bit values.
std::uint32_t tensor_bytes(const TensorShape& s, std::int64_t rows) {
  return static_cast<std::uint32_t>(rows * s.dim * 2);
}

// The kernels of warp groups have room for as many dimensions, beside 128 rows: forward for two tiles of 128 keys and of
// values, dq and dkv for two of 64 rows of two matrices beside 128 of two.
constexpr std::int64_t kGroupKeys = 128, kGroupRows = 64;
// A large card has as many multiprocessors, about.
constexpr std::int64_t kFewTiles = 160;
std::int64_t group_dim(const AttentionParams& p) { return p.head_dim <= 64 ? 64 : 128; }
std::uint32_t group_bytes(const AttentionParams& p, std::int64_t rows) {
  return static_cast<std::uint32_t>(rows * group_dim(p) * 2);
}

bool runs_on_groups(const Call& call, const AttentionParams& p, const std::string& kernel,
                    std::uint32_t shared_bytes) {
  if (p.head_dim <= 128) return runs_on_tensors(call, p, kernel, shared_bytes);
  trace_pass_over(kernel, "heads are wider than 128");
  return false;
}

bool forward_on_groups(const Call& call, const AttentionParams& p, const Lengths& lengths) {
  const std::string kernel = str("attention_forward_group_", call.dtype(0), "_", group_dim(p));
  const std::uint32_t bytes = group_bytes(p, kTensorTile + 4 * kGroupKeys);
  if (!runs_on_groups(call, p, kernel, bytes)) return false;
  call.launch(kernel, grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTensorTile)), kBlock256, p,
              {call.read(0), call.read(1), call.read(2), sinks_of(call, p, 3), lengths.lengths, call.write(0),
               call.write(1), lengths.errors},
              bytes);
  return true;
}

bool forward_on_tensors(const Call& call, const AttentionParams& p, const Lengths& lengths) {
  const TensorShape& s = tensor_shape(p);
  const std::string kernel = str("attention_forward_tensor_", call.dtype(0), "_", s.dim);
  const std::uint32_t bytes = tensor_bytes(s, kTensorTile + 2 * s.keys);
  if (!runs_on_tensors(call, p, kernel, bytes)) return false;
  call.launch(kernel, grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTensorTile)), {s.threads, 1, 1}, p,
              {call.read(0), call.read(1), call.read(2), sinks_of(call, p, 3), lengths.lengths, call.write(0),
               call.write(1), lengths.errors},
              bytes);
  return true;
}

// Q of the kernel: of the query heads that share keys, a block takes so many.
std::int64_t queries_at_once(std::int64_t group) { return group == 1 ? 1 : group == 2 ? 2 : 4; }

bool forward_of_one(const Call& call, const AttentionParams& p, const Lengths& lengths) {
  const auto is_for_packs = [](const Buffer& b) { return b.byte_offset() % (8 * size_of(b.dtype())) == 0; };
  if (p.q_len != 1) return false;
  if (p.head_dim % 8 != 0 || !is_for_packs(call.read(0)) || !is_for_packs(call.read(1)) ||
      !is_for_packs(call.read(2)) || !is_for_packs(call.write(0))) {
    trace_pass_over("attention_query_*", "heads are no whole, aligned packs of 8");
    return false;
  }
  const std::int64_t group = p.q_heads / p.kv_heads, queries = queries_at_once(group);
  const std::int64_t chunks = ceil_div(p.k_len, kQueryKeys), states = p.batch * p.q_heads * chunks;
  const auto found = call.queue.scratch(static_cast<std::size_t>(states * 2) * sizeof(float));
  const auto outs = call.queue.scratch(static_cast<std::size_t>(states * p.head_dim) * sizeof(float));
  const DType dtype = call.dtype(0);
  constexpr Grid kBlock = {kQueryThreads, 1, 1};
  call.launch(str("attention_query_", dtype, "_", queries),
              grid_of(p.batch * chunks * p.kv_heads * ceil_div(group, queries)), kBlock, p,
              {call.read(0), call.read(1), call.read(2), lengths.lengths, *found, *outs, lengths.errors});
  call.launch(str("attention_query_sum_", dtype), grid_of(p.batch * p.q_heads), kBlock, p,
              {*found, *outs, sinks_of(call, p, 3), call.write(0), call.write(1)});
  return true;
}

void forward(const Call& call) {
  const auto& p = call.params<AttentionParams>();
  const Lengths lengths = lengths_of(call, p);
  if (forward_of_one(call, p, lengths)) return;
  if (forward_on_groups(call, p, lengths) || forward_on_tensors(call, p, lengths)) return;
  call.launch(str(call.dispatch.kernel, "_", chunks(p)),
              grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTile)), kBlock256, p,
              {call.read(0), call.read(1), call.read(2), sinks_of(call, p, 3), lengths.lengths, call.write(0),
               call.write(1), lengths.errors});
}

// What every kernel of the backward reads.
struct BackwardReads {
  Buffer q, k, v, dy, lse;
  Argument delta;
  Lengths lengths;
  std::vector<Argument> with(std::initializer_list<Argument> gradients) const {
    std::vector<Argument> all = {q, k, v, dy, lse, delta, lengths.lengths};
    all.insert(all.end(), gradients);
    all.push_back(lengths.errors);
    return all;
  }
};

// dk and dv come first: where inputs are one variable, that is the order in which gradients are added.
bool backward_on_groups(const Call& call, const AttentionParams& p, const BackwardReads& in) {
  const std::string dq_kernel = str("attention_dq_group_", group_dim(p));
  const std::uint32_t bytes = group_bytes(p, 2 * kTensorTile + 4 * kGroupRows);
  if (in.q.dtype() != DType::bf16 || !runs_on_groups(call, p, dq_kernel, bytes)) return false;
  if ((p.wanted & (p.dk | p.dv)) != 0) {
    const std::int64_t heads = p.batch * p.kv_heads;
    const std::int64_t keys = heads * ceil_div(p.k_len, kTensorTile) <= kFewTiles ? 64 : kTensorTile;
    call.launch(str("attention_dkv_group_", group_dim(p), "_", keys),
                grid_of(heads * ceil_div(p.k_len, keys)), {static_cast<std::uint32_t>(2 * keys), 1, 1}, p,
                in.with({call.write_if(p.wanted, p.dk), call.write_if(p.wanted, p.dv)}),
                group_bytes(p, 2 * keys + 4 * kGroupRows));
  }
  if ((p.wanted & p.dq) != 0) {
    call.launch(dq_kernel, grid_of(p.batch * p.q_heads * ceil_div(p.q_len, kTensorTile)), kBlock256, p,
                in.with({call.write_if(p.wanted, p.dq)}), bytes);
  }
  return true;
}

bool backward_on_tensors(const Call& call, const AttentionParams& p, const BackwardReads& in) {
  const TensorShape& s = tensor_shape(p);
  const std::string dq_kernel = str("attention_dq_tensor_", s.dim);
  if (in.q.dtype() == DType::f16) {
    trace_pass_over(dq_kernel, "it takes bf16 alone");
    return false;
  }
  const std::uint32_t key_bytes = tensor_bytes(s, 2 * kTensorTile + 4 * s.queries),
                      query_bytes = tensor_bytes(s, 2 * kTensorTile + 4 * s.dq_keys);
  if (!runs_on_tensors(call, p, dq_kernel, std::max(key_bytes, query_bytes))) return false;
  const std::int64_t query_tiles = p.batch * p.q_heads * ceil_div(p.q_len, kTensorTile),
                     key_tiles = p.batch * p.kv_heads * ceil_div(p.k_len, kTensorTile);
  const Argument dq = call.write_if(p.wanted, p.dq), dk = call.write_if(p.wanted, p.dk),
                 dv = call.write_if(p.wanted, p.dv);
  const auto keys = [&](const char* name, std::uint32_t bits) {
    if ((p.wanted & bits) == 0) return;
    call.launch(str("attention_", name, "_tensor_", s.dim), grid_of(key_tiles), kBlock256, p,
                in.with({dk, dv}), key_bytes);
  };
  if (s.dim <= 128) {
    keys("dkv", p.dk | p.dv);
  } else {
    keys("dk", p.dk);
    keys("dv", p.dv);
  }
  if ((p.wanted & p.dq) != 0) {
    call.launch(dq_kernel, grid_of(query_tiles), kBlock256, p, in.with({dq}), query_bytes);
  }
  return true;
}

void backward_on_cores(const Call& call, const AttentionParams& p, const BackwardReads& in) {
  const auto launch = [&](std::uint32_t bit, const char* name, std::int64_t tiles) {
    if ((p.wanted & bit) == 0) return;
    call.launch(str("attention_", name, "_", in.q.dtype(), "_", chunks(p)), grid_of(tiles), kBlock256, p,
                in.with({call.write_if(p.wanted, bit)}));
  };
  const std::int64_t key_tiles = p.batch * p.kv_heads * ceil_div(p.k_len, kTile);
  launch(p.dk, "dk", key_tiles);
  launch(p.dv, "dv", key_tiles);
  launch(p.dq, "dq", p.batch * p.q_heads * ceil_div(p.q_len, kTile));
}

void launch_delta(const Call& call, const AttentionParams& p, const Argument& delta) {
  const Buffer &y = call.read(3), &dy = call.read(5);
  const bool has_packs = rows_are_packs({&y, &dy});
  const auto pack = static_cast<std::int64_t>(has_packs ? 16 / size_of(y.dtype()) : 1);
  const auto threads = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(32, std::bit_ceil(static_cast<std::uint64_t>(ceil_div(p.head_dim, pack)))));
  const std::uint32_t rows = 256 / threads;
  call.launch(str("attention_delta_", y.dtype(), has_packs ? "_packs" : "_any"),
              grid_of(ceil_div(p.batch * p.q_len * p.q_heads, rows)), {threads, rows, 1}, p, {y, dy, delta});
}

void backward(const Call& call) {
  const auto& p = call.params<AttentionParams>();
  const Buffer &lse = call.read(4), &dy = call.read(5);
  const std::shared_ptr<Memory> delta = call.queue.scratch(lse.bytes());
  launch_delta(call, p, *delta);
  if ((p.wanted & p.dsinks) != 0) {
    call.launch("attention_dsinks", grid_of(p.q_heads), kBlock256, p,
                {sinks_of(call, p, 6), lse, *delta, call.write_if(p.wanted, p.dsinks)});
  }
  const BackwardReads in{call.read(0), call.read(1), call.read(2), dy, lse, *delta, lengths_of(call, p)};
  if (!backward_on_groups(call, p, in) && !backward_on_tensors(call, p, in)) backward_on_cores(call, p, in);
}

MIXTAPE_GPU_LAUNCHERS("attention_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("attention_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
