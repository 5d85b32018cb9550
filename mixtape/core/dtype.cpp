#include "mixtape/core/dtype.h"

#include "mixtape/core/error.h"

namespace mixtape {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::u8:
      return "u8";
    case DType::u16:
      return "u16";
  }
  return "unknown";
}

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-23;
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    default:
      fail(ErrorCode::invalid_argument, "epsilon: ", dtype, " holds no values, expected f32, bf16 or f16");
  }
}

}  // namespace mixtape
