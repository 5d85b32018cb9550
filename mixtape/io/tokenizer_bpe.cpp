#include "mixtape/io/tokenizer_bpe.h"

#include <bit>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_parts.h"

namespace mixtape {

using nlohmann::json;

namespace {

constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMaxCachedWord = 256;  // bytes
constexpr std::size_t kMaxCachedWords = 1u << 16;

std::uint64_t pack(std::uint32_t high, std::uint32_t low) { return std::uint64_t{high} << 32 | low; }

// A component whose value isn't neutral would change the ids.
void require_absent(const json& model, const char* key) {
  const auto found = model.find(key);
  if (found == model.end() || found->is_null() || *found == "" || *found == 0.0) return;
  fail(ErrorCode::not_supported, "tokenizer BPE: \"", key, "\" = ", found->dump(), " is not supported");
}

std::string optional_text(const json& model, const char* key) {
  const auto found = model.find(key);
  return found == model.end() || found->is_null() ? std::string() : part::text(model, key);
}

}  // namespace

void Bpe::MergeTable::reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(2 * merges + 2);
  slots_.assign(slots, {0, kNoMerge});
  shift_ = 64 - std::countr_zero(slots);
}

// The slot that holds `pair`, or the empty one where it belongs; at most half of the slots are taken.
std::size_t Bpe::MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t at = (pair * 0x9E3779B97F4A7C15ull) >> shift_;
  while (slots_[at].rank != kNoMerge && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void Bpe::MergeTable::set(std::uint32_t left, std::uint32_t right, std::uint32_t rank) {
  const std::uint64_t pair = pack(left, right);
  slots_[slot_of(pair)] = {pair, rank};
}

std::uint32_t Bpe::MergeTable::find(std::uint32_t left, std::uint32_t right) const {
  return slots_[slot_of(pack(left, right))].rank;
}

// The symbols of a word as a linked list, and a queue of the pairs that can be merged.
class Bpe::Word {
 public:
  Word(const Bpe& bpe, const std::vector<std::uint32_t>& ids) : bpe_(bpe) {
    symbols_.reserve(ids.size());
    for (const std::uint32_t id : ids) {
      const auto at = static_cast<std::uint32_t>(symbols_.size());
      symbols_.push_back({id, at - 1, at + 1});  // before the first: kNone
    }
    if (!symbols_.empty()) symbols_.back().next = kNone;
    std::vector<std::uint64_t> pairs;
    for (std::uint32_t at = 0; at + 1 < symbols_.size(); ++at) {
      const std::uint32_t rank = rank_at(at);
      if (rank != kNoMerge) pairs.push_back(pack(rank, at));
    }
    queue_ = Queue(std::greater<>(), std::move(pairs));
  }

  std::vector<std::uint32_t> merge_all() {
    while (!queue_.empty()) {
      const std::uint64_t top = queue_.top();
      queue_.pop();
      merge(static_cast<std::uint32_t>(top), static_cast<std::uint32_t>(top >> 32));
    }
    std::vector<std::uint32_t> ids;
    for (std::uint32_t at = 0; at < symbols_.size(); at = symbols_[at].next) ids.push_back(symbols_[at].id);
    return ids;
  }

 private:
  struct Symbol {
    std::uint32_t id;  // kNone once it was merged into its left neighbour
    std::uint32_t previous, next;
  };
  using Queue = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;

  // Rank of the merge of the symbol at `at` and the one after it.
  std::uint32_t rank_at(std::uint32_t at) const {
    const Symbol& symbol = symbols_[at];
    if (symbol.id == kNone || symbol.next == kNone) return kNoMerge;
    return bpe_.merges_.find(symbol.id, symbols_[symbol.next].id);
  }

  void enqueue(std::uint32_t at) {
    const std::uint32_t rank = rank_at(at);
    if (rank != kNoMerge) queue_.push(pack(rank, at));
  }

  // An entry is stale unless the pair now at `at` still makes the same token.
  void merge(std::uint32_t at, std::uint32_t rank) {
    const std::uint32_t current = rank_at(at);
    if (current == kNoMerge || bpe_.merged_[current] != bpe_.merged_[rank]) return;
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.id = bpe_.merged_[rank];
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) symbols_[left.next].previous = at;
    if (left.previous != kNone) enqueue(left.previous);
    enqueue(at);
  }

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  Queue queue_;
};

Bpe::Bpe(const json& model) {
  if (!model.is_object()) fail(ErrorCode::format, "tokenizer model: expected an object");
  if (model.contains("type")) {  // very old files leave it out
    const std::string type = part::type(model, "model");
    if (type != "BPE") part::unknown(type, "model");
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    require_absent(model, key);
  }
  fuse_unk_ = part::flag(model, "fuse_unk", false);
  byte_fallback_ = part::flag(model, "byte_fallback", false);
  ignore_merges_ = part::flag(model, "ignore_merges", false);
  read_vocabulary(model);
  read_merges(part::member(model, "merges"));
}

void Bpe::read_vocabulary(const json& model) {
  const json& vocab = part::member(model, "vocab");
  if (!vocab.is_object()) fail(ErrorCode::format, "tokenizer BPE: \"vocab\" must be an object");
  vocabulary_.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    if (!part::is_id(id)) {
      fail(ErrorCode::format, "tokenizer BPE: the id of ", json(token).dump(), " is ", id.dump(),
           ", expected 0 to ", part::kMaxId);
    }
    vocabulary_.emplace(token, id.get<std::uint32_t>());
  }
  const auto find = [this](const std::string& token) -> std::optional<std::uint32_t> {
    const auto found = vocabulary_.find(token);
    return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
  };
  unk_token_ = optional_text(model, "unk_token");
  unk_id_ = find(unk_token_);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02X>", byte);
    byte_ids_.push_back(find(token));
  }
}

void Bpe::read_merges(const json& merges) {
  if (!merges.is_array()) fail(ErrorCode::format, "tokenizer BPE: \"merges\" must be an array");
  merges_.reserve(merges.size());
  merged_.reserve(merges.size());
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      fail(ErrorCode::format, "tokenizer BPE: merge ", merged_.size(), " is ", merge.dump(),
           ", expected two tokens");
    }
    add_merge(text.substr(0, space), text.substr(space + 1));
  }
}

void Bpe::add_merge(const std::string& left, const std::string& right) {
  const auto id_of = [&](const std::string& token) {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) {
      fail(ErrorCode::format, "tokenizer BPE: merge ", merged_.size(), " needs ", json(token).dump(),
           ", which is not in the vocabulary");
    }
    return found->second;
  };
  merges_.set(id_of(left), id_of(right), static_cast<std::uint32_t>(merged_.size()));
  merged_.push_back(id_of(left + right));
}

bool Bpe::add_bytes(std::string_view character, std::vector<std::uint32_t>& ids) const {
  for (const char c : character) {
    if (!byte_ids_[static_cast<unsigned char>(c)]) return false;
  }
  for (const char c : character) ids.push_back(*byte_ids_[static_cast<unsigned char>(c)]);
  return true;
}

// The ids of the characters before any merge. Without an unknown token, unknown characters are left out.
std::vector<std::uint32_t> Bpe::split(std::string_view word) const {
  std::vector<std::uint32_t> ids;
  ids.reserve(word.size());
  bool pending = false;  // an unknown token is written when the next known character comes
  const auto flush = [&] {
    if (pending) ids.push_back(*unk_id_);
    pending = false;
  };
  while (!word.empty()) {
    const std::string_view character = word.substr(0, first_code_point(word).size);
    word.remove_prefix(character.size());
    const auto found = vocabulary_.find(character);
    if (found != vocabulary_.end()) {
      flush();
      ids.push_back(found->second);
    } else if ((!byte_fallback_ || !add_bytes(character, ids)) && !unk_token_.empty()) {
      if (!unk_id_)
        fail(ErrorCode::format, "tokenizer BPE: unk_token ", unk_token_, " is not in the vocabulary");
      if (!fuse_unk_) flush();
      pending = true;
    }
  }
  flush();
  return ids;
}

std::vector<std::uint32_t> Bpe::merge(std::string_view word) const {
  if (ignore_merges_) {
    const auto found = vocabulary_.find(word);
    if (found != vocabulary_.end()) return {found->second};
  }
  return Word(*this, split(word)).merge_all();
}

void Bpe::encode(std::string_view word, std::vector<std::uint32_t>& ids) const {
  require(word.size() < kNone, "tokenizer BPE: a word of ", word.size(), " bytes, expected fewer than ",
          kNone);
  const bool cacheable = word.size() <= kMaxCachedWord;
  if (cacheable) {
    const std::lock_guard lock(cache_mutex_);
    if (const auto found = cache_.find(word); found != cache_.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  std::vector<std::uint32_t> merged = merge(word);
  ids.insert(ids.end(), merged.begin(), merged.end());
  if (cacheable) {
    const std::lock_guard lock(cache_mutex_);
    if (cache_.size() < kMaxCachedWords) cache_.emplace(word, std::move(merged));
  }
}

}  // namespace mixtape
