// Writes a model that was trained from nothing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "mixtape/core/run_hooks.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_fwd.h"
#include "mixtape/nn/parameters.h"

namespace mixtape {

// Weights rounded to the config's dtype (experts stacked, as MLX names them), config.json, and the tokenizer
// files of `tokenizer` unchanged; commits `output`. Throws invalid_argument for a value that overflows the dtype,
// interrupted between tensors.
void write_float_model(AtomicDirectory& output, const Json& config_json,
                       const std::filesystem::path& tokenizer, const ModelConfig& config,
                       const Parameters& parameters, const RunHooks& hooks = {});
// Of config.json and the tokenizer files that it writes.
std::uint64_t copied_bytes(const Json& config_json, const std::filesystem::path& tokenizer);

}  // namespace mixtape
