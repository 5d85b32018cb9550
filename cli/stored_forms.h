// How a model's weights are stored, and how much room they take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "mixtape/io/model_source.h"
#include "mixtape/quant/weight_format.h"

namespace mixtape::cli {

// What is stored alike: as "3 bits, group 64", "bf16", "Q4_K".
struct StoredForm {
  std::int64_t tensors = 0, weights = 0;
  double bytes = 0.0;  // with scales and biases
  double bits_per_weight() const { return 8.0 * bytes / static_cast<double>(weights); }
};
using StoredForms = std::map<std::string, StoredForm>;

// Of the model in `path`, a directory or a GGUF file.
StoredForms stored_forms(const ModelSource& source, const std::filesystem::path& path);
StoredForm total(const StoredForms& forms);

// As stored_forms names it.
std::string form_of(const AffineParams& params);

}  // namespace mixtape::cli
