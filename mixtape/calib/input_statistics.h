// What a model's matrices are multiplied with, over calibration rows: how much an error in each input channel
// matters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/quant/quantization_plan.h"

namespace mixtape {

enum class Statistics {
  none,
  importance,      // mean squares alone
  second_moments,  // and the products of channels
  cross_moments,   // these as the student's layers below make them, and their products with the teacher's
};

// Of the inputs x [T, K] of one matrix [N, K]; of stacked experts [E, N, K] for each expert its own tokens.
struct InputStatistics {
  std::vector<std::int64_t> tokens;  // one number, or one for each expert
  Buffer mean_squares;               // f32 [K] or [E, K]: sum of x^2 / tokens, 0 for an expert without tokens
  // f32 [K, K] or [E, K, K]: sum of z z^T; null unless asked for. z is x, but of cross moments what comes instead where
  // the layers below are the student's.
  Buffer second_moments;
  Buffer cross_moments = {};  // f32 [K, K]: sum of x z^T; null unless asked for, and of experts
};

using LayerStatistics = std::map<std::string, InputStatistics>;  // by module path

// What the student has for a module of the layer that was visited.
using FittedWeight = std::function<QuantizedWeight(const std::string& path)>;

// Runs the teacher over `rows`, padding left out, layer by layer: activations of all rows are held, statistics of one
// layer at a time. Calls `visit` with those of each layer's modules that the plan quantizes, and at last with those
// of the output layer. Modules with the same input share buffers. Cross moments need `fitted`: a second pass goes
// through layers that hold what it gives, and within a layer through the teacher's own matrices. Reports layers as the
// stage "input statistics"; throws interrupted between batches.
void visit_input_statistics(const Teacher& teacher, const QuantizationPlan& plan,
                            std::span<const TokenRow> rows, std::int64_t batch_size, Statistics wanted,
                            const RunHooks& hooks, const std::function<void(const LayerStatistics&)>& visit,
                            const FittedWeight& fitted = {});

}  // namespace mixtape
