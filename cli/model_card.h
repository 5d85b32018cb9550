// What a written model says of itself: mixtape.json for programs, README.md for people. Programs that load the model
// read neither.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/model_options.h"
#include "cli/quantize_options.h"

namespace mixtape::cli {

// "0.1.0 (10937d8)", as records have it.
std::string version_record();

// The version, the command, its model and how it is quantized, as members of an object.
nlohmann::json model_record(const std::string& command, const ModelOptions& model,
                            const QuantizeOptions& quantize, double bits_per_weight);

// Both files. `record` is model_record()'s object and whatever else belongs there; figures() of a calibration make a table
// in README.md. That of `train` has a model_type, weights and train_rows instead. `name` is the directory's in the end.
void write_card(const std::filesystem::path& directory, const std::string& name,
                const nlohmann::json& record);

}  // namespace mixtape::cli
