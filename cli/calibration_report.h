// What a calibration tells: a table for people, figures for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mixtape/calib/calibrate.h"

namespace mixtape::cli {

// What each stage came to on the validation rows.
void print_stages(const CalibrationReport& report);

// Perplexity, KL and agreement of teacher, plain rounding and result; one line on steps, speed and memory.
void print_table(const CalibrationReport& report, double bits_per_weight, bool keeps_best,
                 const Device& device);

// Whether the result is better than plain rounding: on the report rows, at temperature 1; without them on the
// validation rows.
bool improved(const CalibrationReport& report);
// Whether nothing that came after plain rounding was kept.
bool is_initial_fit(const CalibrationReport& report);

// What a run that was stopped has written, to `out`.
void print_interrupted(const TrainReport& report, const std::string& out);
// A line where nothing was gained, and a warning of text that the model doesn't know.
void print_verdict(const CalibrationReport& report);

// Commands that use the result.
void print_next(const std::string& out, bool is_gguf);

// One line of what the experts saw, another of those that saw nothing; none for dense models.
void print_experts(const TrainReport& report);

// Perplexity, KL and agreement before and after, the steps, and how the run ended: the same on every run.
nlohmann::json figures(const CalibrationReport& report);
// Every stage, loss and validation, every expert's tokens, speed and memory.
nlohmann::json course(const CalibrationReport& report, const Device& device);

}  // namespace mixtape::cli
