// Byte-pair encoding of one word: merges the adjacent pair of lowest rank, leftmost on ties, until none is
// left.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mixtape {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>>;

class Bpe {
 public:
  // From the "model" object of a tokenizer.json. Throws format or not_supported.
  explicit Bpe(const nlohmann::json& model);

  // Appends the ids of `word`, valid UTF-8. O(n log n). Safe to call from several threads. Throws format if
  // an unknown token is needed and the vocabulary lacks it.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  // Open addressing from a pair of ids to the rank of their merge.
  class MergeTable {
   public:
    void reserve(std::size_t merges);
    void set(std::uint32_t left, std::uint32_t right, std::uint32_t rank);
    std::uint32_t find(std::uint32_t left, std::uint32_t right) const;  // kNoMerge if there is none

   private:
    struct Slot {
      std::uint64_t pair;
      std::uint32_t rank;
    };
    std::size_t slot_of(std::uint64_t pair) const;
    std::vector<Slot> slots_;
    int shift_ = 64;
  };
  class Word;

  void read_vocabulary(const nlohmann::json& model);
  void read_merges(const nlohmann::json& merges);
  void add_merge(const std::string& left, const std::string& right);
  std::vector<std::uint32_t> split(std::string_view word) const;
  bool add_bytes(std::string_view character, std::vector<std::uint32_t>& ids) const;
  std::vector<std::uint32_t> merge(std::string_view word) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<std::uint32_t> merged_;                   // rank -> id of the merged token
  std::vector<std::optional<std::uint32_t>> byte_ids_;  // of <0x00> ... <0xFF>
  std::string unk_token_;
  std::optional<std::uint32_t> unk_id_;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;

  mutable std::mutex cache_mutex_;
  mutable std::unordered_map<std::string, std::vector<std::uint32_t>, StringHash, std::equal_to<>> cache_;
};

}  // namespace mixtape
