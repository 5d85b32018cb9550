// What calibrate() carries from one method to the next, and a file of it.
#pragma once

#include <filesystem>
#include <optional>

#include "mixtape/calib/calibrate.h"

namespace mixtape {

struct CalibrationState {
  CalibrationReport report;            // a stage for each method that is done
  Student best;                        // so far
  std::optional<Evaluation> measured;  // the best one on the validation rows

  void save(const std::filesystem::path& file) const;
  // Throws format, naming the file, where it holds no such state of this plan.
  static CalibrationState load(const SafetensorsFile& file, const Teacher& teacher,
                               const QuantizationPlan& plan);
};

}  // namespace mixtape
