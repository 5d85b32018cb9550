// What a result takes of a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "mixtape/io/model_source.h"

namespace mixtape::cli {

// Of what stands beside the weights in a model's directory: files that are copied, and at most what card, index and
// headers take.
std::uint64_t bytes_beside(std::uint64_t copied, std::size_t tensors);
// Of a model that is written from the source.
std::uint64_t bytes_beside(const ModelSource& source);

// Throws io, naming `name`, if the disk of `where` has less room than `bytes` and those `beside` them, or files may not be
// as large as `largest`.
void require_disk_space(const std::string& name, const std::filesystem::path& where, std::uint64_t bytes,
                        std::uint64_t beside, std::uint64_t largest);

}  // namespace mixtape::cli
