// Tokens that are cut out of the text before anything else happens to it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool special = false;      // left out when decoding with skip_special
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool single_word = false;  // not beside a word character
  bool normalized = true;    // sought in the normalized text
};

// From an entry of "added_tokens" or of "added_tokens_decoder".
AddedToken read_added_token(const nlohmann::json& spec, std::uint32_t id);

// Finds tokens in a text, the leftmost first and there the longest.
class AddedTokenFinder {
 public:
  // `written` is how the token appears in the text to search. An empty one is never found.
  void add(const AddedToken& token, std::string_view written);

  struct Section {
    std::string_view text;            // what lies between tokens if there is no id
    std::optional<std::uint32_t> id;  // of an added token
  };
  // Cuts `text` into sections in order; strings that are views of `text`.
  std::vector<Section> cut(std::string_view text) const;

 private:
  struct Node {
    std::map<unsigned char, std::size_t> next;
    std::optional<std::size_t> token;
  };
  struct Found {
    std::size_t begin, end, token;
  };
  std::optional<Found> longest_at(std::string_view text, std::size_t begin) const;
  std::optional<Found> find(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> starts_{};  // bytes that a token begins with
};

}  // namespace mixtape
