// What a kept state's file holds (kept_states.h), and the parts that several stages keep.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "mixtape/calib/evaluation.h"
#include "mixtape/calib/student.h"
#include "mixtape/io/safetensors.h"

namespace mixtape {

struct StateFile {
  nlohmann::json figures = {};
  std::vector<std::pair<std::string, Buffer>> tensors = {};

  void save(const std::filesystem::path& file) const;
  // A weight's parts; an evaluation's figures by position. Names begin with `name`.
  void add(const std::string& name, const QuantizedWeight& weight);
  void add(const std::string& name, const PositionFigures& figures);
};

// Throw format, naming the file, where it doesn't hold what is asked for.
nlohmann::json figures_of(const SafetensorsFile& file);
QuantizedWeight weight_of(const SafetensorsFile& file, const std::string& name, const PlannedModule& module,
                          const Device& device);
bool has_weight(const SafetensorsFile& file, const std::string& name, const PlannedModule& module);
PositionFigures positions_of(const SafetensorsFile& file, const std::string& name);
// Calls `read` on the figures; what JSON throws of them becomes an error.
void read_figures(const SafetensorsFile& file, const std::function<void(const nlohmann::json&)>& read);
// JSON has no number that isn't finite: null.
double number_of(const nlohmann::json& json);

}  // namespace mixtape
