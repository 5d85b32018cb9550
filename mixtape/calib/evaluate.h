// How good a model is on given text, alone and against a teacher.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "mixtape/calib/data.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

struct KlStatistics {
  double mean = 0.0, median = 0.0, p95 = 0.0, p99 = 0.0, max = 0.0;
};

struct Evaluation {
  std::int64_t positions = 0;
  double mean_nll = 0.0;  // negative log-likelihood per token, in nats
  double perplexity = 0.0;
  // Against the teacher, over the full vocabulary at temperature 1; unset without one.
  std::optional<KlStatistics> kl;
  double top1_agreement = 0.0;  // share of positions where both put the same token first
  double teacher_perplexity = 0.0;
};

// Called after each batch with the positions done so far.
using EvaluationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size,
                    const EvaluationProgress& progress = {});

// Rows of logits computed at a time: [rows, vocab] scratch stays near 50 MB on the CPU; on a GPU, whose
// products want long operands, near 160 million elements.
std::int64_t logit_rows(std::int64_t vocab_size, const Device& device);

}  // namespace mixtape
