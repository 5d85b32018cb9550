#include "mixtape/io/gguf_scores.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_token_type.h"

namespace mixtape {
namespace {

using nlohmann::json;

// Of the tokens that merges make. Joins of one score go from left to right in SentencePiece, which is the order of
// ranks for runs of one character alone.
std::unordered_map<std::string, float> scores_of_merges(const std::vector<GgufMerge>& merges,
                                                        const std::string& where) {
  std::unordered_map<std::string, std::size_t> place;  // of a token in `order`
  std::vector<std::string> order;
  std::unordered_map<std::string, float> scores;
  for (const auto& [left, right] : merges) {
    const std::string token = left + right;
    const auto [found, is_new] = place.emplace(token, order.size());
    if (is_new) {
      order.push_back(token);
      scores[token] = -static_cast<float>(order.size());
      continue;
    }
    for (std::size_t i = found->second + 1; i < order.size(); ++i) {
      const bool alike = is_run(token) && is_run(order[i]) &&
                         first_code_point(token).value == first_code_point(order[i]).value;
      if (!alike) {
        fail(ErrorCode::not_supported, where, ": tokenizer.json: merges of ", json(token).dump(),
             " stand before and behind those of ", json(order[i]).dump(),
             ", which scores of a GGUF file can't express");
      }
      scores[order[i]] = scores[token];
    }
  }
  return scores;
}

// A token that no merge makes: made of two others, a GGUF file's reader would make it all the same.
void refuse_joined(const std::string& token, const std::unordered_set<std::string_view>& texts,
                   const std::string& where) {
  const std::string_view text = token;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const auto left = texts.find(text.substr(0, cut)), right = texts.find(text.substr(cut));
    if (left == texts.end() || right == texts.end()) continue;
    fail(ErrorCode::not_supported, where, ": tokenizer.json: no merge makes the token ", json(text).dump(),
         ", but with scores as in GGUF files ", json(*left).dump(), " and ", json(*right).dump(), " would");
  }
}

}  // namespace

std::vector<float> gguf_scores(const std::vector<std::string>& texts, const std::vector<std::int32_t>& types,
                               const std::vector<GgufMerge>& merges, const std::string& where) {
  const std::unordered_map<std::string, float> of_merges = scores_of_merges(merges, where);
  const std::unordered_set<std::string_view> known(texts.begin(), texts.end());
  const float behind_all = -static_cast<float>(of_merges.size() + 1);
  std::vector<float> scores(texts.size(), 0.0f);
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (types[id] != GgufTokenType::normal) continue;
    const auto found = of_merges.find(texts[id]);
    if (found == of_merges.end()) refuse_joined(texts[id], known, where);
    scores[id] = found == of_merges.end() ? behind_all : found->second;
  }
  return scores;
}

}  // namespace mixtape
