// The weight is decoded into scratch memory and multiplied there, a block of rows at a time: in the dtype of
// both operands, or in f32 where those differ. Forward, up to 8 rows of x (a token of a few texts), or of 8 for each
// expert, go through few_rows_cuda.cu or few_rows_gpu.cu instead, with scales in f32 or x's dtype.
#include <algorithm>

#include "mixtape/backend/gpu/convert.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_gpu.h"
#include "mixtape/ops/quantize/quantize_gpu.h"
#include "mixtape/ops/quantized_matmul/few_rows_gpu_params.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul_params.h"

namespace mixtape::gpu {
namespace {

// Elements of the weight that are in scratch memory at a time: 32 MB of 16-bit values, which the
// second level of a large card's caches holds. Fewer rows than 4096 make products slow.
constexpr std::int64_t kDecoded = std::int64_t{1} << 24, kLeastRows = 4096;
// For dx, whose sums over the rows of one block go to memory before those of the next.
constexpr std::int64_t kDecodedForX = std::int64_t{1} << 26;
// Of the weight's gradient in f32, which is added up from there: 32 MB, or 2048 rows.
constexpr std::int64_t kGradient = std::int64_t{1} << 23, kLeastGradientRows = 2048;

// A grid has so many blocks in y, at most.
constexpr std::int64_t kMostTiles = 65535;

struct Block {
  std::int64_t first, rows;
};

// The rows of the weight, a multiple of 128 per block.
std::vector<Block> blocks(const QuantizedMatmulParams& p, std::int64_t elements = kDecoded,
                          std::int64_t least_rows = kLeastRows) {
  const std::int64_t rows = std::max<std::int64_t>(elements / p.k / 128 * 128, least_rows);
  std::vector<Block> all;
  for (std::int64_t n = 0; n < p.n; n += rows) all.push_back({n, std::min(rows, p.n - n)});
  return all;
}

std::size_t bytes_of(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

// From column `first` of a matrix on.
Argument columns_from(const Buffer& matrix, std::int64_t first) {
  const std::size_t at = bytes_of(first, matrix.dtype());
  return Argument(matrix).part(at, matrix.bytes() - at);
}

std::shared_ptr<Memory> block_scratch(const Call& call, const QuantizedMatmulParams& p,
                                      const std::vector<Block>& blocks, DType dtype) {
  return call.queue.scratch(bytes_of(blocks.front().rows * p.k, dtype));
}

// The weight in buffers 1 to 3.
QuantizedSpan weight(const Call& call, const QuantizedMatmulParams& p) {
  return QuantizedSpan({call.read(1), call.read(2), call.read(3), p.format});
}

// All experts' matrices in `dtype`.
std::shared_ptr<Memory> decode_all(const Call& call, const QuantizedMatmulParams& p, DType dtype) {
  const std::int64_t count = p.experts * p.n * p.k;
  auto decoded = call.queue.scratch(bytes_of(count, dtype));
  dequantize(call, weight(call, p), *decoded, dtype, count);
  return decoded;
}

Argument addend(const Call& call, const QuantizedMatmulParams& p) {
  return p.has_addend != 0 ? Argument(call.read(4)) : Argument();
}

struct FewRows {
  FewRowsParams params;
  std::string types;  // of the kernels' names
  bool are_for_tensors;
};
FewRows few_rows(const Call& call, const QuantizedMatmulParams& p) {
  const bool are_aligned = call.read(0).byte_offset() % 16 == 0 && call.read(1).byte_offset() % 16 == 0;
  return {{p.rows, p.n, p.k, p.has_offsets != 0 ? p.experts : 0, group_shift(p.format), p.has_addend},
          str(call.dtype(0), "_", call.dtype(2), "_", call.write(0).dtype(), "_", p.format.bits),
          p.format.group_size % 32 == 0 && are_aligned};
}

constexpr Grid kTensorBlock = {kTensorWarps * 32, 1, 1};
Grid tensor_grid(const QuantizedMatmulParams& p, std::int64_t tiles) {
  return {grid_of(ceil_div(p.n, kTensorColumns))[0], static_cast<std::uint32_t>(tiles), 1};
}

bool few_rows_forward(const Call& call, const QuantizedMatmulParams& p) {
  if (p.rows > kMostFewRows) return false;
  const FewRows f = few_rows(call, p);
  const std::vector<Argument> arguments = {call.read(0), call.read(1),  call.read(2),
                                           call.read(3), call.write(0), addend(call, p)};
  const std::string tensor = "quantized_few_rows_tensor_" + f.types, plain = "quantized_few_rows_" + f.types;
  if (f.are_for_tensors && call.queue.has(tensor)) {
    call.launch(tensor, tensor_grid(p, 1), kTensorBlock, f.params, arguments);
    return true;
  }
  if (!call.queue.has(plain)) return false;
  const Grid grid = {grid_of(ceil_div(p.n, kColumnsAtOnce))[0],
                     static_cast<std::uint32_t>(ceil_div(p.rows, kRowsAtOnce)), 1};
  call.launch(plain, grid, {kFewThreads, 1, 1}, f.params, arguments);
  return true;
}

// Of experts that have a few rows each in the mean: an expert's codes are read for each 8 of its rows, where otherwise
// all experts' are read and what they stand for is written and read.
bool few_rows_grouped_forward(const Call& call, const QuantizedMatmulParams& p) {
  const std::int64_t tiles = std::min(p.rows, ceil_div(p.rows, kMostFewRows) + p.experts);
  if (p.rows > kMostFewRows * p.experts || tiles > kMostTiles) return false;
  const FewRows f = few_rows(call, p);
  const std::string kernel = "quantized_few_rows_grouped_" + f.types;
  if (!f.are_for_tensors || !call.queue.has(kernel)) return false;
  call.launch(kernel, tensor_grid(p, tiles), kTensorBlock, f.params,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0),
               call.dispatch.reads.back(), call.index_errors(p.rows + 1, false)});
  return true;
}

void dense_forward(const Call& call, const QuantizedMatmulParams& p) {
  if (few_rows_forward(call, p)) return;
  const DType dtype = call.dtype(0);
  const std::vector<Block> all = blocks(p);
  const auto decoded = block_scratch(call, p, all, dtype);
  for (const auto& [first, rows] : all) {
    dequantize(call, weight(call, p).part(first * p.k, rows * p.k), *decoded, dtype, rows * p.k);
    call.queue.gemm({.in = dtype,
                     .out = call.write(0).dtype(),
                     .m = p.rows,
                     .n = rows,
                     .k = p.k,
                     .trans_b = true,
                     .a = call.read(0),
                     .b = *decoded,
                     .c = columns_from(call.write(0), first),
                     .addend = p.has_addend != 0 ? columns_from(call.read(4), first) : Argument(),
                     .row_c = p.n});
  }
}

GroupedGemm grouped(const Call& call, const QuantizedMatmulParams& p) {
  GroupedGemm g;
  g.rows = p.rows, g.experts = p.experts, g.n = p.n, g.k = p.k;
  g.offsets = call.dispatch.reads.back();
  g.a = call.read(0), g.a_type = call.dtype(0);
  return g;
}

void grouped_forward(const Call& call, const QuantizedMatmulParams& p) {
  if (few_rows_grouped_forward(call, p)) return;
  const auto decoded = decode_all(call, p, call.dtype(0));
  GroupedGemm g = grouped(call, p);
  g.trans_b = true;
  g.b = *decoded, g.b_type = call.dtype(0);
  g.c = call.write(0), g.c_type = call.write(0).dtype();
  grouped_gemm(call, g);
}

void forward(const Call& call) {
  const auto& p = call.params<QuantizedMatmulParams>();
  p.has_offsets != 0 ? grouped_forward(call, p) : dense_forward(call, p);
}

// dx (+)= dy w. Where there are several blocks or f32 products, sums of a 16-bit dx wait in f32.
void dense_backward_x(const Call& call, const QuantizedMatmulParams& p) {
  const DType out = call.write(0).dtype(), in = call.dtype(0) == out ? out : DType::f32;
  const std::vector<Block> all = blocks(p, kDecodedForX);
  const bool in_scratch = out != DType::f32 && (in != out || all.size() > 1);
  const Converted dy = in_dtype(call, call.read(0), call.dtype(0), in, p.rows * p.n);
  const auto sums = in_scratch ? call.queue.scratch(bytes_of(p.rows * p.k, DType::f32)) : nullptr;
  const auto decoded = block_scratch(call, p, all, in);
  for (const auto& [first, rows] : all) {
    dequantize(call, weight(call, p).part(first * p.k, rows * p.k), *decoded, in, rows * p.k);
    const std::size_t at = bytes_of(first, in);
    call.queue.gemm({.in = in,
                     .out = in_scratch ? DType::f32 : out,
                     .m = p.rows,
                     .n = p.k,
                     .k = rows,
                     .accumulate = first > 0 || (!in_scratch && p.accumulate != 0),
                     .a = dy.argument.part(at, dy.argument.bytes - at),
                     .b = *decoded,
                     .c = in_scratch ? Argument(*sums) : call.write(0),
                     .row_a = p.n});
  }
  if (in_scratch) convert(call, *sums, DType::f32, call.write(0), out, p.rows * p.k, p.accumulate != 0);
}

void grouped_backward_x(const Call& call, const QuantizedMatmulParams& p) {
  const DType dtype = call.write(0).dtype();
  const auto decoded = decode_all(call, p, dtype);
  GroupedGemm g = grouped(call, p);
  std::swap(g.n, g.k);
  g.b = *decoded, g.b_type = dtype;
  g.c = call.write(0), g.c_type = dtype;
  g.accumulate = p.accumulate != 0;
  grouped_gemm(call, g);
}

void backward_x(const Call& call) {
  const auto& p = call.params<QuantizedMatmulParams>();
  p.has_offsets != 0 ? grouped_backward_x(call, p) : dense_backward_x(call, p);
}

// Where the gradients of `count` elements of the weight from `first` on go.
ScaleGradients gradients(const Call& call, const QuantizedMatmulParams& p, std::int64_t first,
                         std::int64_t count) {
  const auto bytes = [&](std::int64_t weights) {
    return bytes_of(weights / p.format.group_size, call.write(0).dtype());
  };
  ScaleGradients out = scale_gradients(call, p.out);
  for (Argument* whole : {&out.dscales, &out.dbiases}) {
    if (whole->memory != nullptr) *whole = whole->part(bytes(first), bytes(count));
  }
  return out;
}

// The codes in buffer 2.
QuantizedSpan codes(const Call& call, const QuantizedMatmulParams& p) {
  return QuantizedSpan({call.read(2), {}, {}, p.format});
}

void dense_backward_scales(const Call& call, const QuantizedMatmulParams& p) {
  const DType in = call.dtype(0) == call.dtype(1) ? call.dtype(0) : DType::f32;
  const Converted dy = in_dtype(call, call.read(0), call.dtype(0), in, p.rows * p.n);
  const Converted x = in_dtype(call, call.read(1), call.dtype(1), in, p.rows * p.k);
  const std::vector<Block> all = blocks(p, kGradient, kLeastGradientRows);
  const auto dw = block_scratch(call, p, all, DType::f32);
  for (const auto& [first, rows] : all) {
    const std::size_t at = bytes_of(first, in);
    call.queue.gemm({.in = in,
                     .out = DType::f32,
                     .m = rows,
                     .n = p.k,
                     .k = p.rows,
                     .trans_a = true,
                     .a = dy.argument.part(at, dy.argument.bytes - at),
                     .b = x.argument,
                     .c = *dw,
                     .row_a = p.n});
    reduce_codes(call, codes(call, p).part(first * p.k, rows * p.k), *dw, DType::f32, rows * p.k,
                 gradients(call, p, first * p.k, rows * p.k));
  }
}

void grouped_backward_scales(const Call& call, const QuantizedMatmulParams& p) {
  const std::int64_t count = p.experts * p.n * p.k;
  const auto dw = call.queue.scratch(bytes_of(count, DType::f32));
  GroupedGemm g = grouped(call, p);
  g.kind = GroupedGemm::Kind::weights;
  g.b = call.read(1), g.b_type = call.dtype(1);
  g.c = *dw, g.c_type = DType::f32;
  grouped_gemm(call, g);
  reduce_codes(call, codes(call, p), *dw, DType::f32, count, gradients(call, p, 0, count));
}

void backward_scales(const Call& call) {
  const auto& p = call.params<QuantizedMatmulParams>();
  p.has_offsets != 0 ? grouped_backward_scales(call, p) : dense_backward_scales(call, p);
}

MIXTAPE_GPU_LAUNCHERS("quantized_matmul_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("quantized_matmul_backward_x_", backward_x);
MIXTAPE_GPU_LAUNCHERS("quantized_matmul_backward_scales_", backward_scales);

}  // namespace
}  // namespace mixtape::gpu
