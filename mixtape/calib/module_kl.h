// KL to its teacher of a model that differs from it in one matrix: what lies before that matrix is not run again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/run_hooks.h"

namespace mixtape {

class ModuleKl {
 public:
  // Runs the teacher over `rows` and keeps, on its device, the hidden state before each layer and the logits, f32: for
  // each token layers * hidden_size values of the teacher's dtype and 4 bytes for each token of the vocabulary.
  // Throws invalid_argument for a batch size below 1 or rows without a position, interrupted between batches.
  ModuleKl(const Teacher& teacher, std::span<const TokenRow> rows, std::int64_t batch_size,
           const RunHooks& hooks = {});

  // Mean over the rows' positions of KL(teacher || teacher with `weight` as the matrix of this path), full vocabulary,
  // temperature 1. Throws interrupted between batches.
  double with(const std::string& path, const QuantizedWeight& weight) const;

 private:
  struct Part {
    Batch batch;
    std::vector<Buffer> states;  // [B, S, hidden] before each layer, at last before the final norm
    std::vector<Buffer> logits;  // f32 [positions of a block, vocab]
  };
  Buffer last_state(const CausalLm& model, const Part& part, std::int64_t first_layer) const;
  Buffer final_rows(const CausalLm& model, const Buffer& state) const;
  double sum_of_kl(const CausalLm& model, const Part& part, const Buffer& state) const;

  const Teacher& teacher_;
  RunHooks hooks_;
  std::vector<Part> parts_;
  double positions_ = 0.0;
};

}  // namespace mixtape
