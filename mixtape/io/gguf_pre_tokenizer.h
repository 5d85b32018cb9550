// The pre-tokenizers of byte-level BPE that GGUF files know by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape {

// How a name cuts text: each pattern in turn, matches and what lies between them being words.
struct GgufPreTokenizer {
  std::string_view name;
  std::vector<std::string_view> patterns;
  bool nfc = false;
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool adds_bos = false;       // unless the file says otherwise
};

extern const std::string_view kGpt2Pattern;

std::span<const GgufPreTokenizer> gguf_pre_tokenizers();
std::string gguf_pre_tokenizer_names();  // "gpt-2, smollm", for messages

}  // namespace mixtape
