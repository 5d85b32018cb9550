// A Hugging Face or MLX model directory.
#pragma once

#include <filesystem>
#include <memory>

#include "mixtape/io/model_source.h"

namespace mixtape {

// Reads config.json and checks every header; values are read when loaded. Experts are offered stacked whether
// the files hold one tensor for each (`experts.e.gate_proj.weight`), stacked ones (`experts.gate_up_proj`) or
// MLX's `switch_mlp`, or as io/interleaved_experts.h says. Throws as SafetensorsDirectory does, and format for a missing or mismatched expert.
std::unique_ptr<ModelSource> open_directory_model(const std::filesystem::path& path);

}  // namespace mixtape
