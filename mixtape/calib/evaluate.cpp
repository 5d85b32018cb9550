#include "mixtape/calib/evaluate.h"

#include <algorithm>
#include <cmath>

#include "mixtape/calib/logit_blocks.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/top_k/top_k.h"

namespace mixtape {
namespace {

// Standard error of the mean of n values value(i); 0 for fewer than two.
template <class Value>
double standard_error(std::size_t n, const Value& value) {
  if (n < 2) return 0.0;
  const auto count = static_cast<double>(n);
  double mean = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < n; ++i) mean += value(i) / count;
  for (std::size_t i = 0; i < n; ++i) squares += (value(i) - mean) * (value(i) - mean);
  return std::sqrt(squares / (count - 1.0) / count);
}

double standard_error(const std::vector<float>& values) {
  return standard_error(values.size(), [&](std::size_t i) { return static_cast<double>(values[i]); });
}

// Sums over positions, gathered chunk by chunk.
class Collector {
 public:
  Collector(const CausalLm& model, const CausalLm* teacher, Tape& tape)
      : model_(model), teacher_(teacher), tape_(tape) {}

  void add(const Batch& batch) {
    const Buffer hidden = hidden_rows(model_, batch.ids);
    const Buffer reference = teacher_ ? hidden_rows(*teacher_, batch.ids) : Buffer();
    for_each_logit_block(model_, batch.ids.numel(), tape_.device(),
                         [&](std::int64_t begin, std::int64_t end) {
                           add_chunk(batch, begin, hidden.slice(begin, end),
                                     reference ? reference.slice(begin, end) : Buffer());
                         });
  }

  Evaluation result() {
    Evaluation e;
    e.positions = positions_;
    const double n = std::max<double>(1.0, static_cast<double>(positions_));
    e.mean_nll = nll_ / n;
    e.perplexity = std::exp(e.mean_nll);
    e.mean_nll_error = standard_error(nlls_);
    e.perplexity_error = e.perplexity * e.mean_nll_error;
    if (teacher_ == nullptr) return e;
    e.teacher_perplexity = std::exp(teacher_nll_ / n);
    e.top1_agreement = static_cast<double>(agreements_) / n;
    e.kl = statistics();
    e.divergences = std::move(divergences_);
    return e;
  }

 private:
  void add_chunk(const Batch& batch, std::int64_t begin, const Buffer& hidden, const Buffer& reference) {
    const Var logits = model_.logits(tape_.constant(hidden));
    const Buffer targets = batch.targets.slice(begin, begin + hidden.shape()[0]);
    const Var nll = cross_entropy(logits, targets);
    Var kl, teacher_nll;
    Buffer top, teacher_top;
    if (teacher_) {
      const Var teacher_logits = teacher_->logits(tape_.constant(reference));
      kl = kl_div(logits, teacher_logits.value(), {.temperature = 1.0f});
      teacher_nll = cross_entropy(teacher_logits, targets);
      top = top_k(logits, 1).indices;
      teacher_top = top_k(teacher_logits, 1).indices;
    }
    tape_.encoder().commit_and_wait();
    const auto weight = [&](std::size_t i) {
      return batch.weights[static_cast<std::size_t>(begin) + i] > 0.0f;
    };
    nll_ += sum_where(nll, weight, &nlls_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(hidden.shape()[0]); ++i) positions_ += weight(i);
    if (!teacher_) return;
    teacher_nll_ += sum_where(teacher_nll, weight, nullptr);
    const std::vector<float> divergences = kl.value().to_vector<float>();
    const auto a = top.to_vector<std::uint32_t>(), b = teacher_top.to_vector<std::uint32_t>();
    for (std::size_t i = 0; i < divergences.size(); ++i) {
      if (!weight(i)) continue;
      divergences_.push_back(divergences[i]);
      agreements_ += a[i] == b[i];
    }
  }

  template <class Weight>
  static double sum_where(const Var& values, const Weight& weight, std::vector<float>* kept) {
    const std::vector<float> v = values.value().to_vector<float>();
    double sum = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      if (!weight(i)) continue;
      sum += static_cast<double>(v[i]);
      if (kept) kept->push_back(v[i]);
    }
    return sum;
  }

  KlStatistics statistics() const {
    KlStatistics s;
    if (divergences_.empty()) return s;
    double sum = 0.0;
    for (const float d : divergences_) sum += static_cast<double>(d);
    s.mean = sum / static_cast<double>(divergences_.size());
    s.mean_error = standard_error(divergences_);
    std::vector<float> sorted = divergences_;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double share) {
      return static_cast<double>(
          sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))]);
    };
    s.median = at(0.5);
    s.p95 = at(0.95);
    s.p99 = at(0.99);
    s.max = at(1.0);
    return s;
  }

  const CausalLm& model_;
  const CausalLm* teacher_;
  Tape& tape_;
  std::int64_t positions_ = 0, agreements_ = 0;
  double nll_ = 0.0, teacher_nll_ = 0.0;
  std::vector<float> nlls_, divergences_;  // by position
};

}  // namespace

// With r the share and d = (1-r) a - b the residual of each pair, whose mean is 0: error of mean d / mean a.
KlCut kl_cut(const Evaluation& before, const Evaluation& after) {
  const std::vector<float>&a = before.divergences, &b = after.divergences;
  require(before.kl && after.kl && a.size() == b.size(), "kl_cut: found ", a.size(), " and ", b.size(),
          " positions with a KL, expected the same rows");
  if (before.kl->mean <= 0.0) return {};
  const double left = after.kl->mean / before.kl->mean;
  const double error = standard_error(
      a.size(), [&](std::size_t i) { return left * static_cast<double>(a[i]) - static_cast<double>(b[i]); });
  return {1.0 - left, error / before.kl->mean};
}

Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks,
                    const std::string& stage) {
  require(batch_size > 0, "evaluate: batch size is ", batch_size, ", expected 1 or more");
  require(teacher == nullptr || teacher->config().vocab_size == model.config().vocab_size,
          "evaluate: the teacher's vocabulary has ", teacher ? teacher->config().vocab_size : 0,
          " tokens, expected ", model.config().vocab_size);
  const NoGrad guard(tape);
  Collector collector(model, teacher, tape);
  const std::int64_t total = count_positions(rows);
  std::int64_t done = 0;
  const auto report = [&] { hooks.report({.stage = stage, .done = done, .total = total, .unit = "tokens"}); };
  report();
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(batch_size)) {
    const auto chunk =
        rows.subspan(begin, std::min(static_cast<std::size_t>(batch_size), rows.size() - begin));
    hooks.throw_if_stopped(stage);
    collector.add(make_batch(tape.device(), chunk));
    done += count_positions(chunk);
    report();
  }
  return collector.result();
}

}  // namespace mixtape
