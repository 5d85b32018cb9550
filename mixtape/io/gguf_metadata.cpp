// What GgufFile's getters return.
#include <cstring>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf.h"

namespace mixtape {
namespace {

template <class T>
T element(const GgufValue& value, std::uint64_t i) {
  T found;
  std::memcpy(&found, value.bytes.data() + i * sizeof(T), sizeof(T));
  return found;
}

bool read_integer(const GgufValue& value, std::uint64_t i, std::int64_t& out) {
  using enum GgufValueType;
  switch (value.element_type) {
    case u8:
      out = element<std::uint8_t>(value, i);
      return true;
    case i8:
      out = element<std::int8_t>(value, i);
      return true;
    case u16:
      out = element<std::uint16_t>(value, i);
      return true;
    case i16:
      out = element<std::int16_t>(value, i);
      return true;
    case u32:
      out = element<std::uint32_t>(value, i);
      return true;
    case i32:
      out = element<std::int32_t>(value, i);
      return true;
    case i64:
      out = element<std::int64_t>(value, i);
      return true;
    case u64:
      out = static_cast<std::int64_t>(element<std::uint64_t>(value, i));
      return out >= 0;
    default:
      return false;
  }
}

bool read_number(const GgufValue& value, std::uint64_t i, double& out) {
  if (value.element_type == GgufValueType::f32) {
    out = static_cast<double>(element<float>(value, i));
    return true;
  }
  if (value.element_type == GgufValueType::f64) {
    out = element<double>(value, i);
    return true;
  }
  std::int64_t integer = 0;
  const bool found = read_integer(value, i, integer);
  out = static_cast<double>(integer);
  return found;
}

// The string at `bytes`, which is advanced past it.
std::string_view read_string(std::span<const std::byte>& bytes) {
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  bytes = bytes.subspan(sizeof length + length);
  return text;
}

}  // namespace

const char* name(GgufValueType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::uint32_t>(type)];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

const GgufValue& GgufFile::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) fail(ErrorCode::format, where(), ": metadata lacks '", key, "'");
  return *value;
}

void GgufFile::fail_kind(std::string_view key, const char* wanted) const {
  const GgufValue& value = get(key);
  const bool is_array = value.type == GgufValueType::array;
  fail(ErrorCode::format, where(), ": '", key, "' is ", is_array ? "an array of " : "",
       mixtape::name(value.element_type), ", expected ", wanted);
}

std::int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& value = get(key);
  std::int64_t found = 0;
  if (value.type == GgufValueType::array || !read_integer(value, 0, found))
    fail_kind(key, "an integer of 63 bits");
  return found;
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& value = get(key);
  double found = 0;
  if (value.type == GgufValueType::array || !read_number(value, 0, found)) fail_kind(key, "a number");
  return found;
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& value = get(key);
  if (value.type != GgufValueType::boolean) fail_kind(key, "bool");
  return element<std::uint8_t>(value, 0) != 0;
}

std::string_view GgufFile::string(std::string_view key) const {
  const GgufValue& value = get(key);
  if (value.type != GgufValueType::string) fail_kind(key, "string");
  auto bytes = value.bytes;
  return read_string(bytes);
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  const GgufValue& value = get(key);
  if (value.type != GgufValueType::array) fail_kind(key, "an array of integers");
  std::vector<std::int64_t> found(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    if (!read_integer(value, i, found[i])) fail_kind(key, "an array of integers of 63 bits");
  }
  return found;
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  const GgufValue& value = get(key);
  if (value.type != GgufValueType::array) fail_kind(key, "an array of numbers");
  std::vector<double> found(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    if (!read_number(value, i, found[i])) fail_kind(key, "an array of numbers");
  }
  return found;
}

std::vector<std::string_view> GgufFile::strings(std::string_view key) const {
  const GgufValue& value = get(key);
  const bool holds_strings = value.element_type == GgufValueType::string;
  if (value.type != GgufValueType::array || !holds_strings) fail_kind(key, "an array of strings");
  auto bytes = value.bytes;
  std::vector<std::string_view> found(value.count);
  for (std::string_view& text : found) text = read_string(bytes);
  return found;
}

}  // namespace mixtape
