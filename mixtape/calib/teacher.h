// The float model that a student is compared with and takes its values from.
#pragma once

#include "mixtape/nn/causal_lm.h"

namespace mixtape {

class Teacher {
 public:
  // Kept: all weights are loaded, in `compute`. Streamed: blocks are read from the source in each pass, for
  // models larger than the device's memory. `source` and `tape` must outlive the teacher. Errors: those of
  // load_parameters; not_supported for a streamed source of quantized matrices.
  Teacher(const ModelSource& source, DType compute, bool streamed, Tape& tape);
  Teacher(const Teacher&) = delete;
  Teacher& operator=(const Teacher&) = delete;

  const CausalLm& model() const { return model_; }
  const ModelSource& source() const { return source_; }
  DType compute() const { return compute_; }
  Tape& tape() const { return tape_; }

  // The teacher's weights for another model on the same tape.
  TapeWeights weights() const;
  // A float tensor of the model in `compute`: shared with the teacher where it is kept. Not to be trained.
  Buffer tensor(const std::string& name) const;

 private:
  const ModelSource& source_;
  DType compute_;
  Tape& tape_;
  Parameters parameters_;  // empty where streamed
  bool is_streamed_;
  TapeWeights weights_;
  CausalLm model_;
};

}  // namespace mixtape
