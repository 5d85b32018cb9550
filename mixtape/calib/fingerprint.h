// Short texts that tell one input of a run from another, by what it holds and not by its name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mixtape/calib/data.h"
#include "mixtape/io/model_source.h"

namespace mixtape {

// Changes with the model's config, its tensors' names and shapes, and up to 4096 evenly spaced elements of each of them.
// Reads every tensor once.
std::string model_fingerprint(const ModelSource& model);
// Changes with every token.
std::string rows_fingerprint(std::span<const TokenRow> rows);
std::string text_fingerprint(std::string_view text);

}  // namespace mixtape
