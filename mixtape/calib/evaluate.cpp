#include "mixtape/calib/evaluate.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/top_k/top_k.h"

namespace mixtape {
namespace {

// Sums over positions, gathered chunk by chunk.
class Collector {
 public:
  Collector(const CausalLm& model, const CausalLm* teacher, Tape& tape)
      : model_(model), teacher_(teacher), tape_(tape) {}

  void add(const Batch& batch) {
    const Shape rows{batch.ids.numel(), model_.config().hidden_size};
    const Buffer hidden = model_.hidden(batch.ids).value().reshape(rows);
    const Buffer reference = teacher_ ? teacher_->hidden(batch.ids).value().reshape(rows) : Buffer();
    const std::int64_t step = logit_rows(model_.config().vocab_size, tape_.device());
    for (std::int64_t begin = 0; begin < rows[0]; begin += step) {
      const std::int64_t end = std::min(rows[0], begin + step);
      add_chunk(batch, begin, hidden.slice(begin, end), reference ? reference.slice(begin, end) : Buffer());
    }
  }

  Evaluation result() {
    Evaluation e;
    e.positions = positions_;
    const double n = std::max<double>(1.0, static_cast<double>(positions_));
    e.mean_nll = nll_ / n;
    e.perplexity = std::exp(e.mean_nll);
    if (teacher_ == nullptr) return e;
    e.teacher_perplexity = std::exp(teacher_nll_ / n);
    e.top1_agreement = static_cast<double>(agreements_) / n;
    e.kl = statistics();
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
    nll_ += sum_where(nll, weight);
    for (std::size_t i = 0; i < static_cast<std::size_t>(hidden.shape()[0]); ++i) positions_ += weight(i);
    if (!teacher_) return;
    teacher_nll_ += sum_where(teacher_nll, weight);
    const std::vector<float> divergences = kl.value().to_vector<float>();
    const auto a = top.to_vector<std::uint32_t>(), b = teacher_top.to_vector<std::uint32_t>();
    for (std::size_t i = 0; i < divergences.size(); ++i) {
      if (!weight(i)) continue;
      divergences_.push_back(divergences[i]);
      agreements_ += a[i] == b[i];
    }
  }

  template <class Weight>
  static double sum_where(const Var& values, const Weight& weight) {
    const std::vector<float> v = values.value().to_vector<float>();
    double sum = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) sum += weight(i) ? static_cast<double>(v[i]) : 0.0;
    return sum;
  }

  KlStatistics statistics() {
    KlStatistics s;
    if (divergences_.empty()) return s;
    double sum = 0.0;
    for (const float d : divergences_) sum += static_cast<double>(d);
    s.mean = sum / static_cast<double>(divergences_.size());
    std::sort(divergences_.begin(), divergences_.end());
    const auto at = [&](double share) {
      return static_cast<double>(
          divergences_[static_cast<std::size_t>(share * static_cast<double>(divergences_.size() - 1))]);
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
  std::vector<float> divergences_;
};

}  // namespace

std::int64_t logit_rows(std::int64_t vocab_size, const Device& device) {
  const std::int64_t elements = device.caps().logit_elements;
  return std::clamp<std::int64_t>(elements / std::max<std::int64_t>(vocab_size, 1), 64, 4096);
}

Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size,
                    const EvaluationProgress& progress) {
  require(batch_size > 0, "evaluate: batch size is ", batch_size, ", expected 1 or more");
  const NoGrad guard(tape);
  Collector collector(model, teacher, tape);
  const std::int64_t total = count_positions(rows);
  std::int64_t done = 0;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(batch_size)) {
    const auto chunk =
        rows.subspan(begin, std::min(static_cast<std::size_t>(batch_size), rows.size() - begin));
    collector.add(make_batch(tape.device(), chunk));
    done += count_positions(chunk);
    if (progress) progress(done, total);
  }
  return collector.result();
}

}  // namespace mixtape
