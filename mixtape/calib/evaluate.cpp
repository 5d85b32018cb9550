#include "mixtape/calib/evaluate.h"

#include <algorithm>
#include <cmath>

#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/logit_blocks.h"
#include "mixtape/calib/state_file.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/top_k/top_k.h"

namespace mixtape {

void ModelReference::enter(const Batch& batch, std::size_t first_row) {
  hidden_ = keeps_ == Keeps::nothing ? hidden_rows(teacher_, batch.ids)
                                     : kept_.of(teacher_, batch.ids, first_row, tape_);
}

Reference::Block ModelReference::block(std::int64_t begin, std::int64_t end, const Buffer& targets) {
  const Var logits = teacher_.logits(tape_.constant(hidden_.slice(begin, end)));
  return {logits.value(), cross_entropy(logits, targets).value()};
}

namespace {

// Figures by position, gathered block by block.
class Collector {
 public:
  Collector(const CausalLm& model, Reference* reference, Tape& tape)
      : model_(model), reference_(reference), tape_(tape) {}

  void add(const Batch& batch) {
    const std::int64_t first = reference_ ? reference_->first_position() : 0;
    const Batch compared = from_position(batch, first);
    const Buffer hidden = hidden_rows(model_, batch.ids, first, tape_);
    if (reference_) reference_->enter(batch, figures_.row_ends.size());
    for_each_logit_block(model_, compared.targets.numel(), tape_.device(),
                         [&](std::int64_t begin, std::int64_t end) {
                           add_block(compared, begin, end, hidden.slice(begin, end));
                         });
    add_row_ends(compared, batch.ids.shape()[0]);
  }

  Evaluation result() { return summarize(std::move(figures_)); }

  // The rows so far.
  void save(const std::filesystem::path& file) const {
    StateFile state;
    state.add("rows", figures_);
    state.save(file);
  }
  void load(const SafetensorsFile& file) { figures_ = positions_of(file, "rows"); }
  std::size_t rows() const { return figures_.row_ends.size(); }

 private:
  void add_block(const Batch& compared, std::int64_t begin, std::int64_t end, const Buffer& hidden) {
    const Buffer targets = compared.targets.slice(begin, end);
    const Var logits = model_.logits(tape_.constant(hidden));
    const Var nll = cross_entropy(logits, targets);
    const auto keep = [&](const auto& values, auto& kept) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (compared.weights[static_cast<std::size_t>(begin) + i] > 0.0f) kept.push_back(values[i]);
      }
    };
    Reference::Block teacher;
    Var kl;
    Buffer top, teacher_top;
    if (reference_) {
      teacher = reference_->block(begin, end, targets);
      kl = kl_div(logits, teacher.logits, {.temperature = 1.0f});
      top = top_k(logits, 1).indices;
      teacher_top = top_k(tape_.constant(teacher.logits), 1).indices;
    }
    tape_.encoder().commit_and_wait();
    keep(nll.value().to_vector<float>(), figures_.nll);
    if (!reference_) return;
    keep(teacher.nll.to_vector<float>(), figures_.teacher_nll);
    keep(known_part(kl.value().to_vector<float>(), teacher.known), figures_.kl);
    keep(equal(top, teacher_top), figures_.same_top1);
  }

  // sum p (log p - log q) over tokens whose p add up to `known`, from the KL of p / known.
  static std::vector<float> known_part(std::vector<float> kl, const std::vector<double>& known) {
    for (std::size_t i = 0; i < known.size(); ++i) {
      kl[i] = static_cast<float>(known[i] * (static_cast<double>(kl[i]) + std::log(known[i])));
    }
    return kl;
  }

  static std::vector<std::uint8_t> equal(const Buffer& a, const Buffer& b) {
    const auto x = a.to_vector<std::uint32_t>(), y = b.to_vector<std::uint32_t>();
    std::vector<std::uint8_t> same(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) same[i] = x[i] == y[i];
    return same;
  }

  void add_row_ends(const Batch& compared, std::int64_t rows) {
    const std::size_t columns = compared.weights.size() / static_cast<std::size_t>(rows);
    std::size_t end = figures_.row_ends.empty() ? 0 : figures_.row_ends.back();
    for (std::size_t i = 0; i < compared.weights.size(); ++i) {
      end += compared.weights[i] > 0.0f;
      if ((i + 1) % columns == 0) figures_.row_ends.push_back(end);
    }
  }

  const CausalLm& model_;
  Reference* reference_;
  Tape& tape_;
  PositionFigures figures_;
};

Evaluation evaluate_against(const CausalLm& model, Reference* reference, Tape& tape,
                            std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks,
                            const std::string& stage) {
  require(batch_size > 0, "evaluate: batch size is ", batch_size, ", expected 1 or more");
  require(reference == nullptr || reference->vocab_size() == model.config().vocab_size,
          "evaluate: the teacher's vocabulary has ", reference ? reference->vocab_size() : 0,
          " tokens, expected ", model.config().vocab_size);
  const NoGrad guard(tape);
  Collector collector(model, reference, tape);
  const std::int64_t total = count_positions(rows);
  std::int64_t done = 0;
  const auto report = [&] { hooks.report({.stage = stage, .done = done, .total = total, .unit = "tokens"}); };
  const KeptStage kept(hooks, stage, [&](const std::filesystem::path& file) { collector.save(file); });
  if (const auto file = kept.find()) collector.load(*file);
  done = count_positions(rows.first(std::min(rows.size(), collector.rows())));
  report();
  kept.run([&] {
    while (collector.rows() < rows.size()) {
      const std::size_t begin = collector.rows();
      const auto chunk =
          rows.subspan(begin, std::min(static_cast<std::size_t>(batch_size), rows.size() - begin));
      hooks.throw_if_stopped(stage);
      collector.add(make_batch(tape.device(), chunk));
      done += count_positions(chunk);
      report();
      kept.keep_if_due();
    }
  });
  return collector.result();
}

}  // namespace

Evaluation evaluate(const CausalLm& model, const CausalLm* teacher, Tape& tape,
                    std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks,
                    const std::string& stage) {
  if (teacher == nullptr) return evaluate_against(model, nullptr, tape, rows, batch_size, hooks, stage);
  ModelReference reference(*teacher, tape);
  return evaluate_against(model, &reference, tape, rows, batch_size, hooks, stage);
}

Evaluation evaluate(const CausalLm& model, Reference& reference, Tape& tape, std::span<const TokenRow> rows,
                    std::int64_t batch_size, const RunHooks& hooks, const std::string& stage) {
  return evaluate_against(model, &reference, tape, rows, batch_size, hooks, stage);
}

}  // namespace mixtape
