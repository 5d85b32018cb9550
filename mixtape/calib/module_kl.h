// KL to its teacher of a model that differs in few matrices from another one, the base: what lies before those is not
// run again.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/run_hooks.h"

namespace mixtape {

class ModuleKl {
 public:
  using Matrices = std::map<std::string, QuantizedWeight>;  // by path

  // Base: the teacher with `quantized` in place of its own matrices. Runs it and the teacher over `rows` and keeps, on
  // its device, the base's hidden state before each layer and the teacher's logits, f32: for each token layers *
  // hidden_size values of the teacher's dtype and 4 bytes for each token of the vocabulary. Throws invalid_argument
  // for a batch size below 1 or rows without a position, interrupted between batches.
  ModuleKl(const Teacher& teacher, std::span<const TokenRow> rows, std::int64_t batch_size,
           const RunHooks& hooks = {}, Matrices quantized = {});

  // KL(teacher || model), full vocabulary, temperature 1, by position of the rows that has a target, always in one order.
  // Throw interrupted between batches. The model is the base;
  std::vector<float> of_base() const;
  // with these in place of the matrices of their paths.
  std::vector<float> with(const Matrices& matrices) const;

 private:
  struct Part {
    Batch batch;
    std::vector<Buffer> states;  // [B, S, hidden] before each layer, at last before the final norm
    std::vector<Buffer> logits;  // f32 [positions of a block, vocab]
  };
  Part part_of(const CausalLm& base, Batch batch) const;
  TapeWeights weights_with(const Matrices& matrices) const;
  std::int64_t first_layer_of(const std::string& path) const;
  std::vector<float> kl(const Matrices& matrices, std::int64_t first_layer) const;
  Buffer last_state(const CausalLm& model, const Part& part, std::int64_t first_layer) const;
  Buffer final_rows(const CausalLm& model, const Buffer& state) const;
  void add_kl(const CausalLm& model, const Part& part, const Buffer& state, std::vector<float>& kl) const;

  const Teacher& teacher_;
  RunHooks hooks_;
  Matrices base_;
  std::vector<Part> parts_;
};

}  // namespace mixtape
