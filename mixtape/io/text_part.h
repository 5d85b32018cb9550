// The language model within a multimodal directory: its config.json and the names of its tensors.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

// The config.json of the language model; nothing where `config` isn't that of a multimodal type that is known, or has
// the language model's keys at its top, as mlx-lm reads it too. Throws
// format where such a config has no text_config.
std::optional<Json> text_config(const Json& config, const std::string& where);

// "model.norm.weight" for "language_model.model.norm.weight" or "model.language_model.norm.weight"; nothing for a
// tensor of another part.
std::optional<std::string> text_tensor(const std::string& name);
// "vision_tower" for "model.vision_tower.norm.weight", of a tensor of another part.
std::string part_of(const std::string& name);
// What was read of such a directory, for people.
std::string text_notice(const std::set<std::string>& left_out);

}  // namespace mixtape
