#include "mixtape/io/tensor_view.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

struct DTypeRow {
  FileDType dtype;
  const char* name;
  std::size_t size;
};
constexpr std::array<DTypeRow, 15> kDTypes = {{{FileDType::F64, "F64", 8},
                                               {FileDType::F32, "F32", 4},
                                               {FileDType::F16, "F16", 2},
                                               {FileDType::BF16, "BF16", 2},
                                               {FileDType::I64, "I64", 8},
                                               {FileDType::I32, "I32", 4},
                                               {FileDType::I16, "I16", 2},
                                               {FileDType::I8, "I8", 1},
                                               {FileDType::U64, "U64", 8},
                                               {FileDType::U32, "U32", 4},
                                               {FileDType::U16, "U16", 2},
                                               {FileDType::U8, "U8", 1},
                                               {FileDType::BOOL, "BOOL", 1},
                                               {FileDType::F8_E4M3, "F8_E4M3", 1},
                                               {FileDType::F8_E5M2, "F8_E5M2", 1}}};

const DTypeRow& row_of(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

constexpr std::int64_t kChunk = 1 << 18;  // elements converted at a time: the staging copy stays small

template <class T>
T read_element(const std::byte* bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Truncates and sets the last bit if anything was lost, so that a second, coarser rounding is the only one.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<From, double>) {
    return To(round_to_odd(value));
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

// Fills `target` chunk by chunk with f(i), i the element's position.
template <class To, class F>
void fill_by(const Buffer& target, F f) {
  const Buffer flat = target.reshape(Shape{target.numel()});
  std::vector<To> chunk(static_cast<std::size_t>(std::min(kChunk, target.numel())));
  for (std::int64_t begin = 0; begin < target.numel(); begin += kChunk) {
    const std::int64_t count = std::min(kChunk, target.numel() - begin);
    for (std::int64_t i = 0; i < count; ++i) chunk[static_cast<std::size_t>(i)] = f(begin + i);
    flat.slice(begin, begin + count)
        .copy_from(std::span<const To>(chunk).first(static_cast<std::size_t>(count)));
  }
}

template <class From, class To>
void convert_all(const TensorView& view, const Buffer& target) {
  fill_by<To>(target, [&](std::int64_t i) { return convert<To>(read_element<From>(view.bytes.data(), i)); });
}

template <class From>
bool convert_from(const TensorView& view, const Buffer& target) {
  switch (target.dtype()) {
    case DType::f32:
      convert_all<From, float>(view, target);
      return true;
    case DType::bf16:
      convert_all<From, bf16>(view, target);
      return true;
    case DType::f16:
      convert_all<From, f16>(view, target);
      return true;
    default:
      return false;
  }
}

void narrow_ids(const std::string& name, const TensorView& view, const Buffer& target) {
  using Limits = std::numeric_limits<std::int32_t>;
  fill_by<std::int32_t>(target, [&](std::int64_t i) {
    const auto value = read_element<std::int64_t>(view.bytes.data(), i);
    if (value < Limits::min() || value > Limits::max()) {
      fail(ErrorCode::format, "tensor '", name, "': value ", value, " at position ", i,
           " doesn't fit in i32");
    }
    return static_cast<std::int32_t>(value);
  });
}

bool load_values(const std::string& name, const TensorView& view, const Buffer& target) {
  switch (view.dtype) {
    case FileDType::F64:
      return convert_from<double>(view, target);
    case FileDType::F32:
      return convert_from<float>(view, target);
    case FileDType::F16:
      return convert_from<f16>(view, target);
    case FileDType::BF16:
      return convert_from<bf16>(view, target);
    case FileDType::I64:
      if (target.dtype() != DType::i32) return false;
      narrow_ids(name, view, target);
      return true;
    default:
      return false;
  }
}

template <class T>
void check_finite_as(const std::string& name, const TensorView& view) {
  for (std::int64_t i = 0; i < view.shape.numel(); ++i) {
    const T element = read_element<T>(view.bytes.data(), i);
    double value = 0.0;
    if constexpr (std::is_same_v<T, double>) {
      value = element;
    } else {
      value = static_cast<float>(element);
    }
    if (std::isfinite(value)) continue;
    const std::int64_t cols = view.shape.cols();
    fail(ErrorCode::format, "tensor '", name, "': value at row ", i / cols, ", column ", i % cols, " is ",
         value, ", expected a finite number");
  }
}

}  // namespace

const char* name(FileDType dtype) { return row_of(dtype).name; }
std::size_t size_of(FileDType dtype) { return row_of(dtype).size; }

std::optional<FileDType> file_dtype_named(std::string_view spelling) {
  for (const DTypeRow& row : kDTypes) {
    if (spelling == row.name) return row.dtype;
  }
  return std::nullopt;
}

FileDType file_dtype_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return FileDType::F32;
    case DType::bf16:
      return FileDType::BF16;
    case DType::f16:
      return FileDType::F16;
    case DType::i32:
      return FileDType::I32;
    case DType::u32:
      return FileDType::U32;
    case DType::u8:
      return FileDType::U8;
    case DType::u16:
      return FileDType::U16;
  }
  fail(ErrorCode::not_supported, "dtype ", dtype, " has no spelling in a file");
}

TensorView slice(const TensorView& view, std::int64_t begin, std::int64_t end) {
  require(view.shape.rank() > 0 && 0 <= begin && begin <= end && end <= view.shape[0], "slice: [", begin, ",",
          end, ") is outside the first axis of ", view.shape);
  const std::size_t entry =
      view.shape[0] == 0 ? 0 : view.bytes.size() / static_cast<std::size_t>(view.shape[0]);
  return {view.dtype, view.shape.with(0, end - begin),
          view.bytes.subspan(static_cast<std::size_t>(begin) * entry,
                             static_cast<std::size_t>(end - begin) * entry)};
}

Buffer load(const std::string& name, const TensorView& view, DType wanted, const Device& device) {
  Buffer buffer = device.alloc_uninitialized(wanted, view.shape);
  load_into(name, view, buffer);
  return buffer;
}

void load_into(const std::string& name, const TensorView& view, const Buffer& target) {
  require(view.shape.numel() == target.numel(), "tensor '", name, "': has shape ", view.shape,
          ", the target is ", target);
  if (view.dtype == file_dtype_of(target.dtype())) {
    target.write_bytes(view.bytes.data());
  } else if (!load_values(name, view, target)) {
    fail(ErrorCode::not_supported, "tensor '", name, "': ", view.dtype, " cannot be loaded as ",
         target.dtype());
  }
}

void check_finite(const std::string& name, const TensorView& view) {
  switch (view.dtype) {
    case FileDType::F64:
      return check_finite_as<double>(name, view);
    case FileDType::F32:
      return check_finite_as<float>(name, view);
    case FileDType::F16:
      return check_finite_as<f16>(name, view);
    case FileDType::BF16:
      return check_finite_as<bf16>(name, view);
    default:
      return;
  }
}

void check_finite(const std::string& name, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  buffer.read_bytes(bytes.data());
  check_finite(name, TensorView{file_dtype_of(buffer.dtype()), buffer.shape(), bytes});
}

}  // namespace mixtape
