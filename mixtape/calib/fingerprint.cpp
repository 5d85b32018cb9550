#include "mixtape/calib/fingerprint.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mixtape {
namespace {

// FNV-1a.
class Hash {
 public:
  void add(const void* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      state_ = (state_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
    }
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::string text() const { return str(std::hex, state_); }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

// As they are stored.
void add_weights(Hash& hash, const ModelSource& source) {
  constexpr std::size_t kSamples = 4096;
  for (const std::string& name : source.names()) {
    const Buffer values = source.load(name, source.stored_dtype(name), Device::cpu());
    hash.add(str(name, " ", values));
    const std::size_t size = size_of(values.dtype());
    const auto count = static_cast<std::size_t>(values.numel());
    const std::size_t step = std::max<std::size_t>(1, count / kSamples);
    for (std::size_t i = 0; i < count; i += step) hash.add(values.host_bytes() + i * size, size);
  }
}

}  // namespace

std::string model_fingerprint(const ModelSource& model) {
  Hash hash;
  hash.add(model.config_json().dump());
  add_weights(hash, model);
  return hash.text();
}

std::string rows_fingerprint(std::span<const TokenRow> rows) {
  Hash hash;
  for (const TokenRow& row : rows) hash.add(row.data(), row.size() * sizeof(row[0]));
  return hash.text();
}

std::string text_fingerprint(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.text();
}

}  // namespace mixtape
