// What each module of a model loses in each format: the KL that quantizing it alone causes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/method.h"

namespace mixtape {

// Formats of one kind: affine ones, or with `in_blocks` GGUF's. Bits 2, 3, 4, 5, 6 and 8 in groups of 32, 64 and 128, or
// Q2_K to Q8_0, Q4_0 to Q5_1, of which whole groups or blocks make up rows of `cols` weights.
std::vector<WeightFormat> candidate_formats(std::int64_t cols, bool in_blocks = false);
// Of 2, 3 and 4 bits: enough to know the others by.
std::vector<WeightFormat> reference_formats(bool in_blocks = false);

struct SensitivityOptions {
  std::vector<Method> fits;  // one or more, those that the student will be fitted by
  // KL is measured in these formats, or what fitting_format takes in their place, and follows from the error of the
  // module's outputs in all others. Empty: it is measured in every format.
  std::vector<WeightFormat> references = reference_formats();
  std::int64_t statistics_rows = 128;  // training rows that input statistics are gathered from, at most
  std::int64_t kl_rows = 8;  // validation rows that KL is measured on, at most; training rows without those
  std::int64_t batch_size = 8;
};

// The rows that these options name.
std::span<const TokenRow> kl_rows(const CalibrationData& data, const SensitivityOptions& options);
std::span<const TokenRow> statistics_rows(const CalibrationData& data, const SensitivityOptions& options);

// A module in one format.
struct FormatLoss {
  WeightFormat format;
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

// Of the modules that the plan quantizes by default, in its order, in the formats of the kind of its default; which format
// it gives them does not matter.
// Reports modules as the stage "measuring modules". Throws invalid_argument for options or rows that cannot hold, or a
// KL that is not finite, naming the module; interrupted between modules and batches.
std::vector<ModuleLosses> measure_sensitivity(const Teacher& teacher, const QuantizationPlan& plan,
                                              const CalibrationData& data, const SensitivityOptions& options,
                                              const RunHooks& hooks = {});

// Measures the KL of those formats too that `wants` says and that were not measured before, and estimates the others
// anew. Errors as those of measure_sensitivity. Both keep the losses of whole modules as "losses" (kept_states.h).
void measure_more(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                  const SensitivityOptions& options,
                  const std::function<bool(const ModuleLosses& module, const FormatLoss& format)>& wants,
                  std::vector<ModuleLosses>& losses, const RunHooks& hooks = {});

// The KL of formats that were not measured, from those that were: KL as a power of the error between two of them, in
// proportion to it (KL grows with the square of the weights' errors) beyond. One or more are measured.
void estimate_kl(std::vector<FormatLoss>& formats);

}  // namespace mixtape
