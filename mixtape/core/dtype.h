// Element types of a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <type_traits>

#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"

namespace mixtape {

enum class DType : std::uint8_t { f32, bf16, f16, i32, u32, u8, u16 };

const char* name(DType dtype);
std::size_t size_of(DType dtype);
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

// f32, bf16 and f16 hold values; the others ids, indices and packed codes.
inline bool is_value(DType dtype) { return dtype <= DType::f16; }

template <class T, class... Others>
inline constexpr bool is_one_of = (std::is_same_v<T, Others> || ...);
template <class T>
inline constexpr bool is_element =
    is_one_of<T, float, bf16, f16, std::int32_t, std::uint32_t, std::uint8_t, std::uint16_t>;

template <class T>
constexpr DType dtype_of() {
  static_assert(is_element<T>,
                "a buffer holds float, bf16, f16, int32_t, uint32_t, uint8_t or uint16_t: convert the values "
                "(double, long and others) to one of them");
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return DType::u32;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else
    return DType::u16;
}

// work(T()) with the C++ type of a value dtype.
template <class Work>
auto with_type(DType dtype, const Work& work) {
  if (dtype == DType::bf16) return work(bf16());
  if (dtype == DType::f16) return work(f16());
  return work(0.0f);
}

// Distance from 1 to the next larger value; one rounding errs by at most half of it. Value dtypes only.
double epsilon(DType dtype);

}  // namespace mixtape
