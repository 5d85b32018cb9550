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

// The version, the command, its model, and what becomes of it, as members of an object (cli/json_report.h).
nlohmann::json model_record(const std::string& command, const std::string& model, const ModelConfig& config,
                            const StorageSize& size, const QuantizationPlan& plan);
// How it is quantized, for "settings".
nlohmann::json quantize_settings(const QuantizeOptions& quantize);

// Both files. `record` is what --json has of the run but for what differs from run to run; figures() of a calibration
// make a table in README.md. `name` is the directory's in the end.
void write_card(const std::filesystem::path& directory, const std::string& name,
                const nlohmann::json& record);

}  // namespace mixtape::cli
