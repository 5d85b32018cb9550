// The keys of a GGUF file that belong to its architecture: "<architecture>.<key>".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf.h"
#include "mixtape/io/gguf_architecture.h"

namespace mixtape {

// Those of every architecture: whole numbers, and real ones.
namespace gguf_key {
inline constexpr GgufKey kHidden = {"embedding_length", "hidden_size"};
inline constexpr GgufKey kWidth = {"feed_forward_length", "intermediate_size"};
inline constexpr GgufKey kLayers = {"block_count", "num_hidden_layers"};
inline constexpr GgufKey kHeads = {"attention.head_count", "num_attention_heads"};
inline constexpr GgufKey kKvHeads = {"attention.head_count_kv", "num_key_value_heads"};
inline constexpr GgufKey kKeyLength = {"attention.key_length", "head_dim"};
inline constexpr GgufKey kValueLength = {"attention.value_length", "head_dim"};
inline constexpr GgufKey kContext = {"context_length", "max_position_embeddings"};
inline constexpr GgufKey kVocabulary = {"vocab_size", "vocab_size"};
inline constexpr GgufKey kWholes[] = {kHidden,    kWidth,       kLayers,  kHeads,     kKvHeads,
                                      kKeyLength, kValueLength, kContext, kVocabulary};
inline constexpr GgufKey kEps = {"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
inline constexpr GgufKey kTheta = {"rope.freq_base", "rope_theta"};
inline constexpr GgufKey kReals[] = {kEps};
}  // namespace gguf_key

// Of all decimals that are the same f32 the shortest: 1e-05 rather than 9.999999747378752e-06.
double shortest_decimal(float value);

// Each by what follows the prefix. Throws format naming file and key for a missing or senseless value.
class GgufKeys {
 public:
  static constexpr std::int64_t kMaxSize = 1 << 21;  // so that a product of three sizes fits 63 bits

  explicit GgufKeys(const GgufFile& source)
      : file(source), prefix_(str(source.string("general.architecture"), ".")) {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file.has(full(key)); }
  std::string_view prefix() const { return prefix_; }
  bool has_tensor(std::string_view name) const { return file.find_tensor(name) != nullptr; }

  // 1 to `most`; the fallback, where one is given, is for an absent key.
  std::int64_t positive(std::string_view key, std::int64_t fallback = 0, std::int64_t most = kMaxSize) const {
    if (fallback > 0 && !has(key)) return fallback;
    const std::int64_t found = file.integer(full(key));
    if (found < 1 || found > most) fail_value(key, found, str("1 to ", most));
    return found;
  }

  // Above 0; of an f32 the shortest decimal.
  double number(std::string_view key) const;

  template <class T>
  [[noreturn]] void fail_value(std::string_view key, const T& found, const std::string& wanted) const {
    fail(ErrorCode::format, file.where(), ": '", full(key), "' is ", found, ", expected ", wanted);
  }

  const GgufFile& file;

 private:
  std::string prefix_;
};

}  // namespace mixtape
