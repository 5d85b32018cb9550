#include <algorithm>
#include <cstring>

#include "mixtape/backend/cpu/blocks.h"
#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/ops/grouped_matmul/group_offsets.h"
#include "mixtape/ops/quantize/quantize_cpu.h"
#include "mixtape/ops/quantized_matmul/few_rows_cpu.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_params.h"

namespace mixtape {
namespace {

// Elements of the weight that are decoded at a time: 16 MB of f32, 8 of bf16.
constexpr std::int64_t kDecoded = std::int64_t{1} << 22;
// Rows of the weight whose gradient one thread makes at a time.
constexpr std::int64_t kGradientRows = 96;

// Rows [n, n + rows) of one expert's matrix; decoded, they begin at element `at` of the scratch.
struct Piece {
  std::int64_t expert, n, rows, at;
};

struct Product {
  explicit Product(const HostCall& host_call) : call(host_call), p(call.params<QuantizedMatmulParams>()) {
    offsets = p.has_offsets ? cpu::group_offsets(call, call.reads.back(), p.rows)
                            : std::vector<std::int64_t>{0, p.rows};
  }
  bool is_bad() const { return offsets.empty(); }
  std::int64_t first(std::int64_t expert) const { return offsets[static_cast<std::size_t>(expert)]; }
  std::int64_t rows(std::int64_t expert) const { return first(expert + 1) - first(expert); }
  // Rows of a matrix that fit in one decoded block.
  std::int64_t block_rows() const { return std::max<std::int64_t>(1, kDecoded / p.k); }
  const void* read_at(std::size_t i, std::int64_t index) const {
    return cpu::element(call.reads[i].dtype(), call.read<std::byte>(i), index);
  }

  const HostCall& call;
  const QuantizedMatmulParams& p;
  std::vector<std::int64_t> offsets;
};

void zero_outputs(const HostCall& call, std::uint32_t kept) {
  for (std::size_t i = 0; i < call.writes.size(); ++i) {
    if ((kept >> i & 1u) == 0) std::memset(call.write<std::byte>(i), 0, call.writes[i].bytes());
  }
}

// The matrices of all experts that have rows, in runs of pieces that are decoded together. Whole matrices
// where they fit in a run.
std::vector<std::vector<Piece>> runs(const Product& product) {
  std::vector<std::vector<Piece>> all;
  std::int64_t used = kDecoded;
  for (std::int64_t e = 0; e < product.p.experts; ++e) {
    if (product.rows(e) == 0) continue;
    for (std::int64_t n = 0; n < product.p.n; n += product.block_rows()) {
      const std::int64_t rows = std::min(product.block_rows(), product.p.n - n);
      if (used + rows * product.p.k > kDecoded) {
        all.emplace_back();
        used = 0;
      }
      all.back().push_back({e, n, rows, used});
      used += rows * product.p.k;
    }
  }
  return all;
}

// Decodes a run of pieces of the weight in buffers 1 to 3.
template <class T>
void decode(const Product& product, const std::vector<Piece>& run, T* decoded) {
  const HostCall& call = product.call;
  const cpu::QuantizedRows w({call.reads[1], call.reads[2], call.reads[3], product.p.format});
  const std::int64_t k = product.p.k;
  const std::int64_t grain = cpu::row_grain(k);
  std::vector<Piece> parts;
  for (const Piece& piece : run) {
    for (std::int64_t r = 0; r < piece.rows; r += grain)
      parts.push_back({piece.expert, piece.n + r, std::min(grain, piece.rows - r), piece.at + r * k});
  }
  const auto count = static_cast<std::int64_t>(parts.size());
  const std::int64_t elements = parts.back().at + parts.back().rows * k;
  cpu::parallel_for(count, cpu::row_grain(elements / count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Piece& part = parts[static_cast<std::size_t>(i)];
      const std::int64_t row = part.expert * product.p.n + part.n;
      cpu::dequantize_rows(w, row, row + part.rows, decoded + part.at);
    }
  });
}

// Decodes run after run to T and computes the products that make(piece, decoded rows) describes.
template <class T, class Make>
void for_each_run(const Product& product, Make&& make) {
  thread_local cpu::Scratch scratch;
  for (const std::vector<Piece>& run : runs(product)) {
    const Piece& last = run.back();
    T* decoded = scratch.get<T>(static_cast<std::size_t>(last.at + last.rows * product.p.k));
    decode(product, run, decoded);
    std::vector<cpu::GemmCall> products;
    for (const Piece& piece : run) products.push_back(make(piece, decoded + piece.at));
    cpu::gemm_all(products);
  }
}

// Where bf16 products are fast the weight meets a bf16 x in its type.
bool decodes_to_bf16(const HostCall& call) {
  return call.reads[0].dtype() == DType::bf16 && cpu::has_fast_bf16();
}

template <class T>
void forward_as(const HostCall& call, const Product& product) {
  const QuantizedMatmulParams& p = product.p;
  const DType y_dtype = call.writes[0].dtype();
  for_each_run<T>(product, [&](const Piece& piece, const T* w) {
    const cpu::Gemm g{.a = call.reads[0].dtype(),
                      .b = dtype_of<T>(),
                      .c = y_dtype,
                      .trans_b = true,
                      .m = product.rows(piece.expert),
                      .n = piece.rows,
                      .k = p.k,
                      .lda = p.k,
                      .ldb = p.k,
                      .ldc = p.n,
                      .accumulate = p.has_addend != 0,
                      .sizes_vary = p.has_offsets != 0};
    const std::int64_t t = product.first(piece.expert);
    return cpu::GemmCall{g, product.read_at(0, t * p.k), w,
                         cpu::element(y_dtype, call.write<std::byte>(0), t * p.n + piece.n)};
  });
}

// Up to so many rows of x the weight is decoded beside their products: its values never leave the registers.
constexpr std::int64_t kFewRows = 4;

bool has_few_rows(const Product& product) {
  for (std::int64_t e = 0; e < product.p.experts; ++e) {
    if (product.rows(e) > kFewRows) return false;
  }
  return true;
}

// One expert's rows of x, by rows [begin, end) of its matrix.
void multiply_part(const Product& product, const cpu::QuantizedRows& w, const float* x, std::int64_t expert,
                   std::int64_t begin, std::int64_t end) {
  const QuantizedMatmulParams& p = product.p;
  thread_local cpu::Scratch scratch;
  const std::int64_t first = product.first(expert), rows = product.rows(expert), n = end - begin;
  const std::int64_t row = expert * p.n + begin;
  float* y = scratch.get<float>(static_cast<std::size_t>(rows * n));
  cpu::multiply_few_rows(w, row, row + n, x + first * p.k, rows, y, n);
  const DType dtype = product.call.writes[0].dtype();
  cpu::store_block(y, n, rows, n, dtype,
                   cpu::element(dtype, product.call.write<std::byte>(0), first * p.n + begin), p.n,
                   p.has_addend != 0);
}

void forward_few(const HostCall& call, const Product& product) {
  const QuantizedMatmulParams& p = product.p;
  const cpu::QuantizedRows w({call.reads[1], call.reads[2], call.reads[3], p.format});
  thread_local cpu::Scratch scratch;
  float* x = scratch.get<float>(static_cast<std::size_t>(p.rows * p.k));
  cpu::load_block(call.reads[0].dtype(), call.read<std::byte>(0), p.k, p.rows, p.k, x, p.k);
  std::vector<std::int64_t> experts;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    if (product.rows(e) > 0) experts.push_back(e);
  }
  const auto count = static_cast<std::int64_t>(experts.size());
  cpu::parallel_for(count * p.n, cpu::row_grain(p.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t n = i % p.n, until = std::min(end - i, p.n - n);
      multiply_part(product, w, x, experts[static_cast<std::size_t>(i / p.n)], n, n + until);
      i += until;
    }
  });
}

void forward(const HostCall& call) {
  const Product product(call);
  if (product.is_bad()) return zero_outputs(call, 0);
  if (product.p.has_addend != 0)
    std::memcpy(call.write<std::byte>(0), call.read<std::byte>(4), call.writes[0].bytes());
  if (has_few_rows(product)) return forward_few(call, product);
  (decodes_to_bf16(call) ? forward_as<bf16> : forward_as<float>)(call, product);
}

// dx of one expert adds up over the pieces of its matrix. Where there are several, 16-bit sums wait in f32.
template <class T>
void backward_x_as(const HostCall& call, const Product& product) {
  const QuantizedMatmulParams& p = product.p;
  const DType dtype = call.writes[0].dtype();
  const bool in_scratch = dtype != DType::f32 && p.n > product.block_rows();
  thread_local cpu::Scratch scratch;
  void* sums = in_scratch ? scratch.get<float>(static_cast<std::size_t>(p.rows * p.k)) : call.write<void>(0);
  const DType sums_dtype = in_scratch ? DType::f32 : dtype;
  for_each_run<T>(product, [&](const Piece& piece, const T* w) {
    const cpu::Gemm g{.a = call.reads[0].dtype(),
                      .b = dtype_of<T>(),
                      .c = sums_dtype,
                      .m = product.rows(piece.expert),
                      .n = p.k,
                      .k = piece.rows,
                      .lda = p.n,
                      .ldb = p.k,
                      .ldc = p.k,
                      .accumulate = piece.n > 0 || (!in_scratch && p.accumulate != 0),
                      .sizes_vary = p.has_offsets != 0};
    const std::int64_t t = product.first(piece.expert);
    return cpu::GemmCall{g, product.read_at(0, t * p.n + piece.n), w,
                         cpu::element(sums_dtype, sums, t * p.k)};
  });
  if (!in_scratch) return;
  cpu::parallel_for(p.rows, cpu::row_grain(p.k), [&](std::int64_t begin, std::int64_t end) {
    cpu::store_block(static_cast<const float*>(sums) + begin * p.k, p.k, end - begin, p.k, dtype,
                     cpu::element(dtype, call.write<void>(0), begin * p.k), p.k, p.accumulate != 0);
  });
}

void backward_x(const HostCall& call) {
  const Product product(call);
  if (product.is_bad()) return zero_outputs(call, product.p.accumulate);
  (decodes_to_bf16(call) ? backward_x_as<bf16> : backward_x_as<float>)(call, product);
}

// x as it is multiplied: every block of rows of dw multiplies by all of it.
struct Widened {
  DType dtype;
  const void* values;
};

Widened widened(const HostCall& call, std::size_t i, std::int64_t rows, std::int64_t cols) {
  const DType found = call.reads[i].dtype();
  if (found == DType::f32 || decodes_to_bf16(call)) return {found, call.read<void>(i)};
  thread_local cpu::Scratch scratch;
  float* copy = scratch.get<float>(static_cast<std::size_t>(rows * cols));
  cpu::parallel_for(rows, cpu::row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
    cpu::load_block(found, cpu::element(found, call.read<std::byte>(i), begin * cols), cols, end - begin,
                    cols, copy + begin * cols, cols);
  });
  return {DType::f32, copy};
}

void backward_scales(const HostCall& call) {
  const Product product(call);
  const QuantizedMatmulParams& p = product.p;
  const cpu::ScaleGradients out = cpu::scale_gradients(call, p.out);
  if (product.is_bad()) return zero_outputs(call, out.dscales ? p.out.accumulate : p.out.accumulate >> 1);
  const cpu::QuantizedRows w({call.reads[2], {}, {}, p.format});
  const Widened x = widened(call, 1, p.rows, p.k);
  // An even number of blocks per matrix, so that two threads share one evenly.
  const std::int64_t pairs = (p.n + 2 * kGradientRows - 1) / (2 * kGradientRows);
  const std::int64_t rows = (p.n + 2 * pairs - 1) / (2 * pairs);
  const std::int64_t blocks = (p.n + rows - 1) / rows;
  const std::int64_t work = std::max<std::int64_t>(1, p.rows * rows * p.k / p.experts);
  cpu::parallel_for(p.experts * blocks, std::max<std::int64_t>(1, (1 << 20) / work),
                    [&](std::int64_t begin, std::int64_t end) {
                      thread_local cpu::Scratch scratch;
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t e = i / blocks, n = i % blocks * rows,
                                           count = std::min(rows, p.n - n), t = product.first(e);
                        float* dw = scratch.get<float>(static_cast<std::size_t>(count * p.k));
                        const cpu::Gemm g{.a = call.reads[0].dtype(),
                                          .b = x.dtype,
                                          .trans_a = true,
                                          .m = count,
                                          .n = p.k,
                                          .k = product.rows(e),
                                          .lda = p.n,
                                          .ldb = p.k,
                                          .ldc = p.k,
                                          .sizes_vary = p.has_offsets != 0};
                        cpu::gemm_on_this_thread(g, product.read_at(0, t * p.n + n),
                                                 cpu::element(x.dtype, x.values, t * p.k), dw);
                        cpu::reduce_rows(w, e * p.n + n, e * p.n + n + count, dw, out);
                      }
                    });
}

MIXTAPE_HOST_KERNEL("quantized_matmul_forward_f32", forward);
MIXTAPE_HOST_KERNEL("quantized_matmul_forward_bf16", forward);
MIXTAPE_HOST_KERNEL("quantized_matmul_forward_f16", forward);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_x_f32", backward_x);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_x_bf16", backward_x);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_x_f16", backward_x);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_scales_f32", backward_scales);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_scales_bf16", backward_scales);
MIXTAPE_HOST_KERNEL("quantized_matmul_backward_scales_f16", backward_scales);

}  // namespace
}  // namespace mixtape
