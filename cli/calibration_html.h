// A calibration as a page to look at: --html of calibrate.
#pragma once

#include <string>

#include "mixtape/calib/calibrate.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape::cli {

struct CalibrationPage {
  std::string out, model, version;
  double bits_per_weight = 0.0;
  const CalibrationReport& report;
  const CalibrationData& data;
  const QuantizationPlan& plan;
  const Tokenizer& tokenizer;

  // The same for the same figures: it holds no times.
  std::string html() const;
};

}  // namespace mixtape::cli
