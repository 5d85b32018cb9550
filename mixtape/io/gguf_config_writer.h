// The architecture's keys of a GGUF file made from config.json: what gguf_config.h reads, the other way round.
#pragma once

#include <string>

#include "mixtape/io/gguf_values.h"
#include "mixtape/io/json_fwd.h"

namespace mixtape {

// "general.architecture" and the keys below it. Throws not_supported, beginning with `where`, for what llama.cpp does
// not compute; format for a config that doesn't say how many positions the model is made for.
void add_gguf_config(const Json& config_json, const std::string& where, GgufMetadata& metadata);

}  // namespace mixtape
