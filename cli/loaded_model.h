// A model whose weights are on the device, ready to continue text.
#pragma once

#include <functional>

#include "cli/model_options.h"
#include "mixtape/calib/data.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/nn/parameters.h"

namespace mixtape::cli {

class LoadedModel {
 public:
  LoadedModel(const ModelOptions& options, const Device& device);

  const OpenedModel& opened() const { return opened_; }
  const Tokenizer& tokenizer() const { return opened_.tokenizer; }
  const CausalLm& model() const { return model_; }
  Tape& tape() { return tape_; }
  const std::vector<std::uint32_t>& stop() const { return stop_; }  // tokens that end a text

 private:
  OpenedModel opened_;
  std::vector<std::uint32_t> stop_;
  Tape tape_;
  DType dtype_;
  Parameters parameters_;
  TapeWeights weights_;
  CausalLm model_;
};

// What the clock on the wall says, as if it were UTC; or the day of `date` unless that is empty.
std::chrono::sys_seconds today(const std::string& date);

}  // namespace mixtape::cli
