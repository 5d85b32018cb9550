// A tensor as it lies in a file, and its conversion to a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "mixtape/core/dtype.h"
#include "mixtape/core/shape.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// Everything a safetensors file may hold, spelled as there.
enum class FileDType : std::uint8_t {
  F64,
  F32,
  F16,
  BF16,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  BOOL,
  F8_E4M3,
  F8_E5M2
};

const char* name(FileDType dtype);
std::size_t size_of(FileDType dtype);
std::optional<FileDType> file_dtype_named(std::string_view spelling);
FileDType file_dtype_of(DType dtype);
inline std::ostream& operator<<(std::ostream& out, FileDType dtype) { return out << name(dtype); }

// Valid while the file is open. `bytes` is little-endian, possibly unaligned, and exactly as long as dtype
// and shape ask for.
struct TensorView {
  FileDType dtype = FileDType::F32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// The entries [begin, end) of the first axis; throws invalid_argument if there are none such.
TensorView slice(const TensorView& view, std::int64_t begin, std::int64_t end);

// A buffer of the view's shape. F64, F32, F16, BF16 become f32, bf16 or f16 with a single rounding; U32, U16,
// U8 and I32 keep their type; I64 becomes i32 if every value fits. Throws not_supported naming the tensor for
// any other pairing, format for an integer that doesn't fit.
Buffer load(const std::string& name, const TensorView& view, DType wanted, const Device& device);

// The same into existing memory of as many elements.
void load_into(const std::string& name, const TensorView& view, const Buffer& target);

// Throws format, naming tensor, row and column of the 2-D view, at the first NaN or infinity. Integers pass.
void check_finite(const std::string& name, const TensorView& view);
void check_finite(const std::string& name, const Buffer& buffer);

}  // namespace mixtape
