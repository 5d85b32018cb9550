// A calibration as a page to look at: --html of calibrate.
#pragma once

#include <string>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/kl_by_part.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape::cli {

struct CalibrationPage {
  std::string out, model, version;
  double bits_per_weight = 0.0;
  const CalibrationReport& report;
  const CalibrationData& data;
  const QuantizationPlan& plan;
  DType storage;  // of scales, where the format leaves that open
  const Tokenizer& tokenizer;
  const KlByPart* parts = nullptr;  // null: not measured

  // The same for the same figures: it holds no times.
  std::string html() const;
};

}  // namespace mixtape::cli
