// Text to token ids and back, as described by a tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

// A cheap handle; safe to use from several threads.
//
// encode: added tokens are cut out; what lies between them is normalized, cut into words and merged (BPE);
// the post-processor's ids go around the result if asked. The file's truncation and padding are not applied.
class Tokenizer {
 public:
  // Of the configuration the special tokens and added_tokens_decoder are read; it may be null. Tokens that
  // `tokenizer` lacks are added behind its last id, as transformers does.
  // Throws not_supported, naming a component type that isn't known, and format for anything malformed.
  static Tokenizer from_json(const Json& tokenizer, const Json& config);

  // Reads tokenizer.json and read_tokenizer_config; messages name the file.
  static Tokenizer load(const std::filesystem::path& directory);

  // Throws format, naming the byte offset, if `text` isn't valid UTF-8.
  std::vector<std::uint32_t> encode(std::string_view text, bool add_special) const;

  // Always valid UTF-8. Throws index_out_of_range for an id without a token, naming its position.
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  std::size_t vocab_size() const;  // the largest id plus 1: the rows that an embedding needs
  std::optional<std::uint32_t> id_of(std::string_view token) const;
  const std::string& token(
      std::uint32_t id) const;  // as written in the vocabulary; throws index_out_of_range
  bool is_special(std::uint32_t id) const;

  // What encode puts before every text if asked, such as BOS; may be empty.
  const std::vector<std::uint32_t>& prefix() const;
  // The tokens that the configuration names; what ends or begins a text may be others (stop_ids, prefix).
  std::optional<std::uint32_t> bos_id() const;
  std::optional<std::uint32_t> eos_id() const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace mixtape
