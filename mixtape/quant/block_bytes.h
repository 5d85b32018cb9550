// Weights in blocks to and from the bytes of a GGUF tensor.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "mixtape/io/gguf_blocks.h"
#include "mixtape/quant/weight_format.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// GGUF's id of a type. Throws invalid_argument for BlockType::none.
GgufType gguf_type(BlockType type);

// The blocks of a weight [..., N, K], row after row, u8 [bytes] on the host: outer scales and biases are rounded to f16, those of groups to whole
// numbers. Throws invalid_argument, beginning with `name`, for a weight without blocks and for an outer scale or bias
// that f16 can't hold.
Buffer to_block_bytes(const std::string& name, const QuantizedWeight& weight);

// The inverse: `bytes` hold a weight of `shape`. Throws invalid_argument, beginning with `name`, for rows that are no
// whole blocks, or another number of bytes.
QuantizedWeight from_block_bytes(const std::string& name, BlockType type, const Shape& shape,
                                 std::span<const std::byte> bytes, const Device& device);

}  // namespace mixtape
