// Learned codes (learned_codes.h) of one decoder layer after the other, with scales and biases, for models whose
// optimizer state of every weight would not fit. Layer l of the student learns on the hidden states x that the layers
// before it, which have learned, make of the rows, to give the teacher's own:
//   minimise the mean over positions of |student_l(x) - t|^2 / |t|^2,   t the teacher's hidden state after layer l
// Positions are weighted so because the next layer normalizes its input. A layer whose error on the validation rows
// didn't fall stays as it was.
//
// Memory: 22 bytes for each weight of one layer, and two hidden states for each position of the rows. Of a teacher that
// is streamed one layer at a time is read, once.
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

struct BlockCodesOptions {
  TrainOptions train;            // steps: of each layer; validate_every 0: at their end alone
  bool rate_from_start = false;  // as in DwqOptions
  std::int64_t rows = 128;       // of the training rows, at most
  std::uint64_t seed = 0;        // of the batches
};

// Stopped by the caller, it keeps the layers that have learned. Steps are reported as the stage "learning layers". The
// layers that have learned are kept as "layers" (kept_states.h), a layer's optimizer as "layer <i> training"; a run that
// finds them passes the rows through those layers again.
Method block_codes(const BlockCodesOptions& options);

}  // namespace mixtape
