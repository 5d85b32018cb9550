// What each module of a model loses in each format: the KL that quantizing it alone causes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/method.h"

namespace mixtape {

struct SensitivityOptions {
  std::vector<Method> fits;  // one or more, those that the student will be fitted by
  // KL is measured in these formats, in the largest group up to theirs that the module's input size allows, and follows
  // from the error of the module's outputs in all others. Empty: it is measured in every format.
  std::vector<AffineParams> references = {{2, 64}, {3, 64}, {4, 64}};
  std::int64_t statistics_rows = 128;  // training rows that input statistics are gathered from, at most
  std::int64_t kl_rows = 8;  // validation rows that KL is measured on, at most; training rows without those
  std::int64_t batch_size = 8;
};

// The rows that these options name.
std::span<const TokenRow> kl_rows(const CalibrationData& data, const SensitivityOptions& options);
std::span<const TokenRow> statistics_rows(const CalibrationData& data, const SensitivityOptions& options);

// A module in one format.
struct FormatLoss {
  AffineParams format;
  // Of its outputs: tr((W - Q) H (W - Q)^T), H as in gptq.h, or its diagonal where no fit wants more. Of some rows of
  // W, fitted without error feedback, which is dear and lowers the errors of all formats much alike.
  double error = -1.0;  // below 0: not known yet
  double kl = 0.0;      // mean over positions
  bool is_measured = false;
};

struct ModuleLosses {
  std::string path;
  std::vector<FormatLoss> formats;
};

// Bits 2, 3, 4, 5, 6 and 8 in groups of 32, 64 and 128 that divide `cols`.
std::vector<AffineParams> candidate_formats(std::int64_t cols);

// Of the modules that the plan quantizes by default, in its order; the format that it gives them does not matter.
// Reports modules as the stage "measuring modules". Throws invalid_argument for options or rows that cannot hold, or a
// KL that is not finite, naming the module; interrupted between modules and batches.
std::vector<ModuleLosses> measure_sensitivity(const Teacher& teacher, const QuantizationPlan& plan,
                                              const CalibrationData& data, const SensitivityOptions& options,
                                              const RunHooks& hooks = {});

// Measures the KL of those formats too that `wants` says and that were not measured before, and estimates the others
// anew. Errors as those of measure_sensitivity.
void measure_more(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                  const SensitivityOptions& options,
                  const std::function<bool(const ModuleLosses& module, const FormatLoss& format)>& wants,
                  std::vector<ModuleLosses>& losses, const RunHooks& hooks = {});

// The KL of formats that were not measured, from those that were: KL as a power of the error between two of them, in
// proportion to it (KL grows with the square of the weights' errors) beyond. One or more are measured.
void estimate_kl(std::vector<FormatLoss>& formats);

}  // namespace mixtape
