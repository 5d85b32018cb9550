#include "mixtape/io/gguf_values.h"

#include <algorithm>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_bytes.h"

namespace mixtape {

using gguf::put, gguf::put_string;

namespace {

constexpr std::size_t kMaxKey = 65535;

}  // namespace

GgufOwnedValue gguf_value(std::string_view text) {
  GgufOwnedValue value{GgufValueType::string, GgufValueType::string, 1, {}};
  put_string(value.bytes, text);
  return value;
}

GgufOwnedValue gguf_value(const GgufValue& value) {
  const auto* bytes = reinterpret_cast<const char*>(value.bytes.data());
  return {value.type, value.element_type, value.count, std::string(bytes, value.bytes.size())};
}

GgufOwnedValue gguf_array(const std::vector<std::string>& texts) {
  GgufOwnedValue value{GgufValueType::array, GgufValueType::string, texts.size(), {}};
  for (const std::string& text : texts) put_string(value.bytes, text);
  return value;
}

GgufOwnedValue gguf_array(const std::vector<GgufOwnedValue>& arrays) {
  GgufOwnedValue value{GgufValueType::array, GgufValueType::array, arrays.size(), {}};
  for (const GgufOwnedValue& element : arrays) {
    require(element.type == GgufValueType::array, "gguf: element of an array of arrays is a ",
            name(element.type), ", expected an array");
    put(value.bytes, element.element_type);
    put(value.bytes, element.count);
    value.bytes += element.bytes;
  }
  return value;
}

void GgufMetadata::add(std::string key, GgufOwnedValue value) {
  require(!key.empty() && key.size() <= kMaxKey, "gguf: a key has ", key.size(), " bytes, expected 1 to ",
          kMaxKey);
  require(find(key) == nullptr, "gguf: key '", key, "' is added twice");
  values_.emplace_back(std::move(key), std::move(value));
}

const GgufOwnedValue* GgufMetadata::find(std::string_view key) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const auto& entry) { return entry.first == key; });
  return found == values_.end() ? nullptr : &found->second;
}

GgufMetadata gguf_metadata_of(const GgufFile& file) {
  GgufMetadata metadata;
  for (const std::string& key : file.keys()) metadata.add(key, gguf_value(*file.find(key)));
  return metadata;
}

}  // namespace mixtape
