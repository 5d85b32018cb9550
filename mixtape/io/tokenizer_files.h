// What lies beside tokenizer.json in a model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "mixtape/io/json_fwd.h"
#include "mixtape/io/model_source.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape {

// tokenizer_config.json as one object with what other files add, by the rules of transformers: the members of
// special_tokens_map.json unless there is an added_tokens_decoder; and as "chat_template", instead of its own, what
// chat_template.jinja holds, with additional_chat_templates/NAME.jinja as a list of {"name", "template"}. Empty where
// there is none of these files.
Json read_tokenizer_config(const std::filesystem::path& directory);

// The ids that end a text, sorted: those of config.json, of generation_config.json, and the tokenizer's EOS.
std::vector<std::uint32_t> stop_ids(const ModelSource& source, const Tokenizer& tokenizer);

}  // namespace mixtape
