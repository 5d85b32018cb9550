// How good a model is on given text, alone and against a teacher.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

// Errors are standard errors of means, positions taken as independent.
struct KlStatistics {
  double mean = 0.0, median = 0.0, p95 = 0.0, p99 = 0.0, max = 0.0;
  double mean_error = 0.0;
};

struct Evaluation {
  std::int64_t positions = 0;
  double mean_nll = 0.0;  // negative log-likelihood per token, in nats
  double perplexity = 0.0;
  double mean_nll_error = 0.0;
  double perplexity_error = 0.0;
  // Against the teacher, over the full vocabulary at temperature 1; unset without one.
  std::optional<KlStatistics> kl;
  std::vector<float> divergences;  // KL by position, in the order of the rows: for paired comparisons
  double top1_agreement = 0.0;     // share of positions where both put the same token first
  double teacher_perplexity = 0.0;
};

// The share by which mean KL fell from `before` to `after`, both on the same rows, with its standard error: of
// the pairs, so that what makes a position hard for both doesn't count. Throws invalid_argument for other rows.
struct KlCut {
  double share = 0.0, error = 0.0;
};
KlCut kl_cut(const Evaluation& before, const Evaluation& after);

// `teacher` may be null, and of other sizes than the model but for the vocabulary. Reports positions to
// `hooks` under the name `stage`. Throws invalid_argument for a batch size below 1 or vocabularies of two
// sizes, interrupted between batches.
Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks = {},
                    const std::string& stage = "evaluating");

}  // namespace mixtape
