#include "mixtape/io/tokenizer_added.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_parts.h"

namespace mixtape {
namespace {

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(last_code_point(text.substr(0, begin)).value)) return true;
  return end < text.size() && is_word(first_code_point(text.substr(end)).value);
}

}  // namespace

AddedToken read_added_token(const nlohmann::json& spec, std::uint32_t id) {
  AddedToken token;
  token.id = id;
  token.content = part::text(spec, "content");
  token.special = part::flag(spec, "special", false);
  token.lstrip = part::flag(spec, "lstrip", false);
  token.rstrip = part::flag(spec, "rstrip", false);
  token.single_word = part::flag(spec, "single_word", false);
  token.normalized = part::flag(spec, "normalized", !token.special);
  return token;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view written) {
  if (written.empty()) return;
  std::size_t at = 0;
  for (const char c : written) {
    const auto [edge, is_new] = nodes_[at].next.try_emplace(static_cast<unsigned char>(c), nodes_.size());
    at = edge->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[at].token = tokens_.size();
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(written.front())] = true;
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::longest_at(std::string_view text,
                                                                    std::size_t begin) const {
  std::optional<Found> found;
  std::size_t at = 0;
  for (std::size_t end = begin; end < text.size(); ++end) {
    const auto edge = nodes_[at].next.find(static_cast<unsigned char>(text[end]));
    if (edge == nodes_[at].next.end()) break;
    at = edge->second;
    if (nodes_[at].token) found = {begin, end + 1, *nodes_[at].token};
  }
  return found;
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  for (; from < text.size(); ++from) {
    if (!starts_[static_cast<unsigned char>(text[from])]) continue;
    if (const auto found = longest_at(text, from)) return found;
  }
  return std::nullopt;
}

std::vector<AddedTokenFinder::Section> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<Section> sections;
  std::size_t done = 0;
  std::size_t from = 0;
  while (const auto found = find(text, from)) {
    from = found->end;  // white space that rstrip takes may still hold a token
    const AddedToken& token = tokens_[found->token];
    if (token.single_word && touches_word(text, found->begin, found->end)) continue;
    std::size_t begin = found->begin;
    std::size_t end = found->end;
    if (token.lstrip) begin = std::max(done, strip_white_space(text.substr(0, begin), false, true).size());
    if (token.rstrip) end = text.size() - strip_white_space(text.substr(end), true, false).size();
    if (done < begin) sections.push_back({text.substr(done, begin - done), std::nullopt});
    if (begin < end) sections.push_back({{}, token.id});
    done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), std::nullopt});
  return sections;
}

}  // namespace mixtape
