// The `tokenizer.*` keys of a GGUF file made from tokenizer.json and tokenizer_config.json.
#pragma once

#include <string>

#include "mixtape/io/gguf_values.h"
#include "mixtape/io/json_fwd.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

// Byte-level BPE whose pre-tokenizer has a name (gguf_pre_tokenizers), as model "gpt2"; SentencePiece's BPE with byte
// fallback as model "llama", with scores that fall with the merges' ranks. Rows of the embedding without a token get
// unused ones. Adds vocabulary, types, merges or scores, ids of special tokens, whether BOS and EOS go around a text,
// and chat templates. Throws not_supported, beginning with `where` and naming it, for a component that no GGUF
// tokenizer has; format for what is contradictory.
void add_gguf_tokenizer(const Json& tokenizer, const Json& tokenizer_config, const ModelConfig& model,
                        const std::string& where, GgufMetadata& metadata);

}  // namespace mixtape
