#include "mixtape/io/gguf_pre_tokenizer.h"

#include <array>
#include <string>

namespace mixtape {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() {
  static const std::array<GgufPreTokenizer, 4> known = {
      GgufPreTokenizer{.name = "gpt-2", .patterns = {kGpt2Pattern}},
      GgufPreTokenizer{.name = "smollm", .patterns = {R"(\p{N})", kGpt2Pattern}},
      GgufPreTokenizer{.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true},
      GgufPreTokenizer{
          .name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
  };
  return known;
}

std::string gguf_pre_tokenizer_names() {
  std::string names;
  for (const GgufPreTokenizer& known : gguf_pre_tokenizers())
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

}  // namespace mixtape
