// Where a named model lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace mixtape::cli {

// `name` itself if there is such a path; for "owner/name" the newest snapshot in the Hugging Face cache
// (HF_HUB_CACHE, HF_HOME/hub, else ~/.cache/huggingface/hub). Throws invalid_argument; for "owner/name" with the command
// that downloads it.
std::filesystem::path find_model(const std::string& name);

// Bytes of files that stay in memory once they are read: a directory's safetensors files; pages of a GGUF file are given
// back.
std::uint64_t mapped_bytes(const std::filesystem::path& model);

}  // namespace mixtape::cli
