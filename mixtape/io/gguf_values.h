// Metadata of a GGUF file that is to be written: keys in the file's order, each with the bytes of its value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "mixtape/io/gguf.h"

namespace mixtape {

// A value as a file holds it. For an array `type` is array and `bytes` the elements: strings with their lengths,
// arrays with their element type and length.
struct GgufOwnedValue {
  GgufValueType type;
  GgufValueType element_type;  // `type` itself unless an array
  std::uint64_t count;         // 1 unless an array
  std::string bytes;
};

template <class T>
concept GgufNumber =
    std::same_as<T, bool> || std::integral<T> || std::same_as<T, float> || std::same_as<T, double>;

template <GgufNumber T>
constexpr GgufValueType gguf_type_of() {
  using enum GgufValueType;
  if constexpr (std::same_as<T, bool>) return boolean;
  if constexpr (std::same_as<T, float>) return f32;
  if constexpr (std::same_as<T, double>) return f64;
  constexpr GgufValueType kSigned[] = {i8, i16, i32, i64}, kUnsigned[] = {u8, u16, u32, u64};
  constexpr int at = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return std::is_signed_v<T> ? kSigned[at] : kUnsigned[at];
}

template <GgufNumber T>
GgufOwnedValue gguf_value(T value) {
  const auto* bytes = reinterpret_cast<const char*>(&value);
  return {gguf_type_of<T>(), gguf_type_of<T>(), 1, std::string(bytes, sizeof value)};
}
GgufOwnedValue gguf_value(std::string_view text);
inline GgufOwnedValue gguf_value(const char* text) { return gguf_value(std::string_view(text)); }
GgufOwnedValue gguf_value(const GgufValue& value);  // as it was read

template <GgufNumber T>
GgufOwnedValue gguf_array(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {GgufValueType::array, gguf_type_of<T>(), values.size(),
          std::string(bytes, values.size() * sizeof(T))};
}
GgufOwnedValue gguf_array(const std::vector<std::string>& texts);
// Nested. Throws invalid_argument for an element that is no array.
GgufOwnedValue gguf_array(const std::vector<GgufOwnedValue>& arrays);

class GgufMetadata {
 public:
  // Behind what is there. Throws invalid_argument for a key that is there already, is empty, or has more than the
  // 65,535 bytes that the format allows.
  void add(std::string key, GgufOwnedValue value);
  template <GgufNumber T>
  void add(std::string key, T value) {
    add(std::move(key), gguf_value(value));
  }
  void add(std::string key, std::string_view text) { add(std::move(key), gguf_value(text)); }
  void add(std::string key, const char* text) { add(std::move(key), gguf_value(text)); }

  const GgufOwnedValue* find(std::string_view key) const;
  const std::vector<std::pair<std::string, GgufOwnedValue>>& values() const { return values_; }

 private:
  std::vector<std::pair<std::string, GgufOwnedValue>> values_;
};

// All of a file's, in its order.
GgufMetadata gguf_metadata_of(const GgufFile& file);

}  // namespace mixtape
