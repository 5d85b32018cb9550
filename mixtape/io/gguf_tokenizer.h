// tokenizer.json and tokenizer_config.json made from the `tokenizer.*` keys of a GGUF file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/io/gguf.h"

namespace mixtape {

// Models "gpt2" (byte-level BPE; pre-tokenizers gpt-2, smollm, qwen2 and llama-bpe) and "llama"
// (SentencePiece scores turned into ranked merges, with byte fallback; refused where two tokens have the same score, but for runs of one character). Control and unknown tokens become
// special added tokens, user-defined ones plain added tokens; BOS and EOS go around the text where the file
// says so. Throws not_supported, by name, for another model or pre-tokenizer; format for anything missing,
// contradictory or ill-formed.
nlohmann::json gguf_tokenizer_json(const GgufFile& file);

// Token texts, add_bos_token, add_eos_token, and the chat template, or a list of them where some have names.
nlohmann::json gguf_tokenizer_config_json(const GgufFile& file);

}  // namespace mixtape
