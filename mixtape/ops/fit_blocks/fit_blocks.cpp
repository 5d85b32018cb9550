#include "mixtape/ops/fit_blocks/fit_blocks.h"

#include <algorithm>

#include "mixtape/ops/fit_affine/fit_affine_params.h"
#include "mixtape/ops/fit_blocks/fit_blocks_params.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

BlockShape shape_of(const BlockFormat& f) {
  const auto bit = [](bool is) { return is ? 1u : 0u; };
  return {f.groups,
          f.affine.group_size,
          f.affine.bits,
          static_cast<float>(f.affine.max_code()),
          static_cast<float>(f.zero_code),
          bit(f.has_biases),
          bit(f.scales.is_stored()),
          bit(f.biases.is_stored()),
          static_cast<float>(f.scales.lowest),
          static_cast<float>(f.scales.highest),
          static_cast<float>(f.biases.highest)};
}

Shape blocks_shape(const Shape& w, const BlockFormat& f) {
  return w.with(w.rank() - 1, w.cols() / f.block_elements());
}

// Buffers of q that the type has, in the order in which kernels write them.
std::vector<Buffer> check_outputs(const char* op, const Buffer& w, const QuantizedWeight& q,
                                  const BlockFormat& f) {
  struct Output {
    const char* name;
    const Buffer& buffer;
    bool is_there;
    DType dtype;
    Shape shape;
  };
  const Shape &shape = w.shape(), blocks = blocks_shape(shape, f), groups = scales_shape(shape, f.affine);
  const Output outputs[] = {{"codes", q.codes, true, DType::u32, packed_shape(shape, f.affine)},
                            {"scales", q.blocks.scales, true, DType::f32, blocks},
                            {"biases", q.blocks.biases, f.has_biases, DType::f32, blocks},
                            {"sub_scales", q.blocks.sub_scales, f.scales.is_stored(), DType::f32, groups},
                            {"sub_biases", q.blocks.sub_biases, f.biases.is_stored(), DType::f32, groups}};
  std::vector<Buffer> found;
  for (const Output& o : outputs) {
    require(o.is_there || !o.buffer, op, ": ", o.name, " is ", o.buffer, ", ", f.name, " has none");
    if (!o.is_there) continue;
    check_is(op, o.name, o.buffer, o.dtype, o.shape);
    check_no_overlap(op, o.name, o.buffer, "w", w);
    for (const Buffer& other : found) check_no_overlap(op, o.name, o.buffer, "another output", other);
    found.push_back(o.buffer);
  }
  return found;
}

}  // namespace

void refuse_block_importance(std::int64_t position, float value) {
  fail(ErrorCode::invalid_argument, "fit_blocks: importance at position ", position, " is ", value,
       ", expected finite values of at least 0");
}

void refuse_block_overflow(std::int64_t row, std::int64_t col) {
  fail(ErrorCode::invalid_argument, "fit_blocks: scale or bias of the block at row ", row, ", column ", col,
       " overflows f16");
}

QuantizedWeight alloc_blocks(const Device& device, const Shape& shape, BlockType type) {
  const BlockFormat& f = block_format(type);
  const Shape blocks = blocks_shape(shape, f), groups = scales_shape(shape, f.affine);
  const auto f32 = [&](bool is_there, const Shape& s) {
    return is_there ? device.alloc_uninitialized(DType::f32, s) : Buffer();
  };
  return {device.alloc_uninitialized(DType::u32, packed_shape(shape, f.affine)),
          {},
          {},
          f.affine,
          {type, f32(true, blocks), f32(f.has_biases, blocks), f32(f.scales.is_stored(), groups),
           f32(f.biases.is_stored(), groups)}};
}

void fit_blocks_forward(CommandEncoder& encoder, const Buffer& w, const Buffer& importance,
                        const QuantizedWeight& q, BlockFit how) {
  const char* op = "fit_blocks";
  require(q.blocks.type != BlockType::none, op, ": the weight has no blocks, expected a type of GGUF");
  const BlockFormat& f = block_format(q.blocks.type);
  require(w && w.dtype() == DType::f32 && w.shape().rank() > 0, op, ": w is ", w,
          ", expected f32 of rank 1 or more");
  const std::int64_t cols = w.shape().cols();
  require(cols > 0 && cols % f.block_elements() == 0, op, ": rows have ", cols,
          " weights, expected a multiple of ", f.block_elements(), " for ", f.name);
  const std::int64_t experts = importance_rows(op, w, importance);
  const bool searches = how == BlockFit::search;
  Dispatch dispatch{.kernel = "fit_blocks_forward",
                    .params = params_bytes(
                        FitBlocksParams{experts, w.shape().rows() / std::max<std::int64_t>(experts, 1), cols,
                                        shape_of(f), importance && searches ? 1u : 0u, searches ? 1u : 0u}),
                    .reads = {w},
                    .writes = check_outputs(op, w, q, f)};
  if (importance) {
    for (const Buffer& out : dispatch.writes)
      check_no_overlap(op, "an output", out, "importance", importance);
    if (searches) dispatch.reads.push_back(importance);
  }
  encoder.encode(dispatch);
}

}  // namespace mixtape
