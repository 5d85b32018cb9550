#include "mixtape/backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <list>
#include <vector>

#include "mixtape/backend/cpu/blocks.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/core/error.h"

namespace mixtape::cpu {
namespace {

// Most rows, columns and depth of one tile: f32 copies of its operands and its result stay in the
// second-level cache, and each operand is widened seldom.
constexpr std::int64_t kTileRows = 512;
constexpr std::int64_t kTileCols = 288;
constexpr std::int64_t kTileDepth = 768;

// Up to so many rows against a weight [n,k] are dot products: packing the weight would cost more than it
// saves.
constexpr std::int64_t kFewRows = 4;

// Multiplications that are worth waking a thread for.
constexpr double kThreadWork = 1 << 20;

// Products of up to so many rows get narrower tiles: as wide as is worth a thread, and enough of them for many threads.
constexpr std::int64_t kShortRows = 128, kLeastTiles = 32, kLeastCols = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The length of equal parts of at most `most` elements, a multiple of `multiple`.
std::int64_t part(std::int64_t total, std::int64_t most, std::int64_t multiple) {
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(total, most));
  return std::max(multiple, ceil_div(ceil_div(total, parts), multiple) * multiple);
}

// oneDNN reads the thread count when it makes and when it runs a primitive.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A product as oneDNN sees it: operands of one type, f32 or bf16, sums in f32.
struct Key {
  DType operands;
  bool trans_a, trans_b, accumulate;
  std::int64_t m, n, k, lda, ldb, ldc;
  friend bool operator==(const Key&, const Key&) = default;
};

struct Primitive {
  Key key;
  dnnl::matmul matmul;
  dnnl::memory a, b, c;
};

// The primitives that a thread used last, most recent first.
class Primitives {
 public:
  Primitive& get(const Key& key) {
    const auto found =
        std::find_if(recent_.begin(), recent_.end(), [&](const Primitive& p) { return p.key == key; });
    if (found != recent_.end()) {
      recent_.splice(recent_.begin(), recent_, found);
    } else {
      recent_.push_front(make(key));
      if (recent_.size() > kKept) recent_.pop_back();
    }
    return recent_.front();
  }
  dnnl::stream& stream() { return stream_; }

 private:
  static constexpr std::size_t kKept = 48;

  static dnnl::memory::desc matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                   bool transposed) {
    const dnnl::memory::dims strides =
        transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
    const auto type = dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    return {{rows, cols}, type, strides};
  }
  Primitive make(const Key& key) {
    const auto a = matrix(key.operands, key.m, key.k, key.lda, key.trans_a);
    const auto b = matrix(key.operands, key.k, key.n, key.ldb, key.trans_b);
    const auto c = matrix(DType::f32, key.m, key.n, key.ldc, false);
    dnnl::post_ops post;
    if (key.accumulate) post.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), attributes, engine_);
#else
    const dnnl::matmul::primitive_desc desc(engine_, a, b, c, attributes);
#endif
    return {key, dnnl::matmul(desc), dnnl::memory(a, engine_, nullptr), dnnl::memory(b, engine_, nullptr),
            dnnl::memory(c, engine_, nullptr)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::list<Primitive> recent_;
};

// c (+)= a * b.
void multiply(Key key, const void* a, const void* b, float* c) {
  thread_local Primitives primitives;
  const OneThread guard;
  try {
    Primitive& p = primitives.get(key);
    p.a.set_data_handle(const_cast<void*>(a));
    p.b.set_data_handle(const_cast<void*>(b));
    p.c.set_data_handle(c);
    p.matmul.execute(primitives.stream(),
                     {{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}});
  } catch (const dnnl::error& error) {
    fail(error.status == dnnl_out_of_memory ? ErrorCode::out_of_memory : ErrorCode::device,
         "gemm: oneDNN refused ", key.m, "x", key.n, "x", key.k, ": ", error.what());
  }
}

// The next of few sizes: eight to an octave, and multiples of 8. The depth, whose parts oneDNN cuts by its
// size, is rounded less.
std::int64_t rounded_rows(std::int64_t size) {
  std::int64_t step = 8;
  while (size > 8 * step) step *= 2;
  return ceil_div(size, step) * step;
}
std::int64_t rounded_depth(std::int64_t size) { return ceil_div(size, 16) * 16; }

// A copy of `rows` x `cols` elements T with zeros around, up to to_rows x to_cols. Rows stay as far apart as they were
// where they fit: oneDNN's order of summing may depend on it.
template <class T>
struct Padded {
  Padded(const void* from, std::int64_t old_stride, std::int64_t rows, std::int64_t cols,
         std::int64_t to_rows, std::int64_t to_cols, Scratch& scratch)
      : stride(std::max(old_stride, to_cols)),
        values(scratch.get<T>(static_cast<std::size_t>(to_rows * stride))) {
    for (std::int64_t r = 0; r < to_rows; ++r) {
      const std::int64_t kept = r < rows ? cols : 0;
      T* row = values + r * stride;
      std::fill(std::copy_n(static_cast<const T*>(from) + r * old_stride, kept, row), row + to_cols, T{});
    }
  }
  std::int64_t stride;
  T* values;
};

// As multiply, with m and k rounded up: oneDNN compiles a primitive for every size and keeps it. The zeros that
// come in are the last terms of a sum.
template <class T>
void multiply_rounded(Key key, const void* a, const void* b, float* c) {
  const std::int64_t m = rounded_rows(key.m), k = rounded_depth(key.k), n = key.n;
  if (m == key.m && k == key.k) return multiply(key, a, b, c);
  thread_local Scratch a_scratch, b_scratch, c_scratch;
  const Padded<T> wide_a = key.trans_a ? Padded<T>(a, key.lda, key.k, key.m, k, m, a_scratch)
                                       : Padded<T>(a, key.lda, key.m, key.k, m, k, a_scratch);
  const Padded<float> wide_c(c, key.ldc, key.accumulate ? key.m : 0, n, m, n, c_scratch);
  Key wide = key;
  wide.m = m, wide.k = k, wide.lda = wide_a.stride, wide.ldc = wide_c.stride;
  if (k == key.k) {
    multiply(wide, wide_a.values, b, wide_c.values);
  } else {
    const Padded<T> wide_b = key.trans_b ? Padded<T>(b, key.ldb, n, key.k, n, k, b_scratch)
                                         : Padded<T>(b, key.ldb, key.k, n, k, n, b_scratch);
    wide.ldb = wide_b.stride;
    multiply(wide, wide_a.values, wide_b.values, wide_c.values);
  }
  for (std::int64_t r = 0; r < key.m; ++r) std::copy_n(wide_c.values + r * wide_c.stride, n, c + r * key.ldc);
}

// An operand's block in type `as`: the block itself, or a widened copy in `scratch`.
struct Operand {
  const void* values;
  std::int64_t stride;
};
Operand operand(DType as, DType dtype, const void* base, std::int64_t stride, std::int64_t row,
                std::int64_t col, std::int64_t rows, std::int64_t cols, Scratch& scratch) {
  const void* block = element(dtype, base, row * stride + col);
  if (dtype == as) return {block, stride};
  float* copy = scratch.get<float>(static_cast<std::size_t>(rows * cols));
  load_block(dtype, block, stride, rows, cols, copy, cols);
  return {copy, cols};
}

struct Tile {
  std::int64_t row, col, rows, cols;
};

// Whether oneDNN multiplies as 16 bits what is widened otherwise.
bool multiplies_bf16(const Gemm& g) { return g.a == DType::bf16 && g.b == DType::bf16 && has_fast_bf16(); }

// The tile's f32 sums into c (row stride ldc), depth part by depth part in ascending order.
void multiply_tile(const Gemm& g, const void* a, const void* b, const Tile& t, float* c, std::int64_t ldc,
                   bool accumulate) {
  thread_local Scratch a_scratch, b_scratch;
  if (g.m <= kFewRows && !g.trans_a && g.trans_b) {
    const Operand rows = operand(DType::f32, g.a, a, g.lda, t.row, 0, t.rows, g.k, a_scratch);
    dot_block(static_cast<const float*>(rows.values), rows.stride, t.rows, g.b,
              element(g.b, b, t.col * g.ldb), g.ldb, t.cols, g.k, c, ldc, accumulate);
    return;
  }
  const bool is_bf16 = multiplies_bf16(g);
  const DType as = is_bf16 ? DType::bf16 : DType::f32;
  const std::int64_t depth = part(g.k, kTileDepth, 16);
  for (std::int64_t k = 0; k < g.k; k += depth) {
    const std::int64_t ks = std::min(depth, g.k - k);
    const Operand at = g.trans_a ? operand(as, g.a, a, g.lda, k, t.row, ks, t.rows, a_scratch)
                                 : operand(as, g.a, a, g.lda, t.row, k, t.rows, ks, a_scratch);
    const Operand bt = g.trans_b ? operand(as, g.b, b, g.ldb, t.col, k, t.cols, ks, b_scratch)
                                 : operand(as, g.b, b, g.ldb, k, t.col, ks, t.cols, b_scratch);
    const Key key{as,     g.trans_a, g.trans_b, accumulate || k > 0, t.rows,
                  t.cols, ks,        at.stride, bt.stride,           ldc};
    const auto rounded = is_bf16 ? multiply_rounded<std::uint16_t> : multiply_rounded<float>;
    (g.sizes_vary ? rounded : multiply)(key, at.values, bt.values, c);
  }
}

float* tile_scratch(const Tile& t) {
  thread_local Scratch scratch;
  return scratch.get<float>(static_cast<std::size_t>(t.rows * t.cols));
}

void run_tile(const Gemm& g, const void* a, const void* b, void* c, const Tile& t) {
  void* out = element(g.c, c, t.row * g.ldc + t.col);
  if (g.c == DType::f32 && g.k > 0) {
    multiply_tile(g, a, b, t, static_cast<float*>(out), g.ldc, g.accumulate);
    return;
  }
  float* sums = tile_scratch(t);
  if (g.k == 0) std::fill_n(sums, t.rows * t.cols, 0.0f);
  multiply_tile(g, a, b, t, sums, t.cols, false);
  store_block(sums, t.cols, t.rows, t.cols, g.c, out, g.ldc, g.accumulate);
}

// Products of few rows, such as a step of sampling has.
bool is_short(const Gemm& g) { return g.m > kFewRows && g.m <= kShortRows; }

// The tiles of one product; they follow from its shape alone.
struct Grid {
  explicit Grid(const Gemm& g)
      : m(g.m), n(g.n), rows(part(g.m, kTileRows, 16)), cols(part(g.n, most_cols(g), 16)) {}
  static std::int64_t most_cols(const Gemm& g) {
    if (!is_short(g)) return kTileCols;
    const auto worth = static_cast<std::int64_t>(kThreadWork) / std::max<std::int64_t>(1, g.m * g.k);
    return std::min(kTileCols, std::max({worth, g.n / kLeastTiles, kLeastCols}));
  }
  std::int64_t count() const { return ceil_div(m, rows) * ceil_div(n, cols); }
  // Neighbouring tiles share columns of b.
  Tile tile(std::int64_t i) const {
    const std::int64_t down = ceil_div(m, rows);
    const std::int64_t row = i % down * rows;
    const std::int64_t col = i / down * cols;
    return {row, col, std::min(rows, m - row), std::min(cols, n - col)};
  }
  std::int64_t m, n, rows, cols;
};

}  // namespace

bool has_fast_bf16() {
#if defined(__x86_64__)
  static const bool is_fast = __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
  return is_fast;
#else
  return false;
#endif
}

void gemm_on_this_thread(const Gemm& g, const void* a, const void* b, void* c) {
  const Grid grid(g);
  for (std::int64_t i = 0; i < grid.count(); ++i) run_tile(g, a, b, c, grid.tile(i));
}

void gemm(const Gemm& g, const void* a, const void* b, void* c) {
  GemmCall call{g, a, b, c};
  thread_local Scratch scratch;
  if (is_short(g) && g.a != DType::f32 && !multiplies_bf16(g)) {  // widened once for the many narrow tiles
    const std::int64_t rows = g.trans_a ? g.k : g.m, cols = g.trans_a ? g.m : g.k;
    call.a = operand(DType::f32, g.a, a, g.lda, 0, 0, rows, cols, scratch).values;
    call.gemm.a = DType::f32, call.gemm.lda = cols;
  }
  gemm_all({&call, 1});
}

void gemm_all(std::span<const GemmCall> calls) {
  std::vector<std::int64_t> first{0};  // the number of a product's first tile
  double work = 0.0;
  for (const GemmCall& call : calls) {
    first.push_back(first.back() + Grid(call.gemm).count());
    work += static_cast<double>(call.gemm.m) * static_cast<double>(call.gemm.n * call.gemm.k);
  }
  const double per_tile = std::max(1.0, work / static_cast<double>(std::max<std::int64_t>(1, first.back())));
  parallel_for(first.back(), static_cast<std::int64_t>(std::max(1.0, kThreadWork / per_tile)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const auto which = std::upper_bound(first.begin(), first.end(), i) - first.begin() - 1;
                   const GemmCall& call = calls[static_cast<std::size_t>(which)];
                   const Tile tile = Grid(call.gemm).tile(i - first[static_cast<std::size_t>(which)]);
                   run_tile(call.gemm, call.a, call.b, call.c, tile);
                 }
               });
}

}  // namespace mixtape::cpu
