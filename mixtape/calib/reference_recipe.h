// The reference program's data order, step for step, so that runs can be compared.
#pragma once

#include "mixtape/calib/trainer.h"

namespace mixtape {

// Shuffled by NumPy's legacy generator: the first `train` rows train (0: all that are left), the next
// `validation` validate, the last `report` rows of the shuffled list are kept for the report, but for copies
// of the others. Throws invalid_argument where there are too few.
CalibrationData reference_split(std::vector<TokenRow> rows, std::int64_t train, std::int64_t validation,
                                std::int64_t report, std::uint64_t seed);

// Rows sorted by length (stable), cut into batches, a last incomplete one dropped, the batches shuffled anew
// with the same seed in each pass.
BatchOrder reference_batches(std::span<const TokenRow> rows, std::int64_t batch_size, std::uint64_t seed);

// The reference's settings of the training: Adam at a constant 1e-6, batches of 4, every float tensor trained
// too, validation every 200 steps, the last state kept.
void apply_reference_settings(TrainOptions& train);

}  // namespace mixtape
