#include "mixtape/calib/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/calib/initialize.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

std::vector<double> log_softmax(const float* logits, std::size_t n) {
  double sum = 0.0;
  const double max = static_cast<double>(*std::max_element(logits, logits + n));
  for (std::size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]) - max);
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<double>(logits[i]) - max - std::log(sum);
  return out;
}

struct Mean {
  explicit Mean(const std::vector<double>& values) {
    const auto n = static_cast<double>(values.size());
    for (const double v : values) mean += v / n;
    for (const double v : values) error += (v - mean) * (v - mean) / (n - 1.0) / n;
    error = std::sqrt(error);
  }
  double mean = 0.0, error = 0.0;
};

class EvaluateTest : public ::testing::Test {
 protected:
  // One row at a time, in f64 from the logits on.
  struct Reference {
    std::vector<double> nll, teacher_nll, kl, agreements;
    std::vector<double> changes() const {
      std::vector<double> all;
      for (std::size_t i = 0; i < nll.size(); ++i)
        all.push_back(std::exp(-nll[i]) - std::exp(-teacher_nll[i]));
      return all;
    }
  };
  Reference reference(const CausalLm& model, const CausalLm& teacher, const std::vector<TokenRow>& rows) {
    Reference r;
    const auto vocabulary = static_cast<std::size_t>(model.config().vocab_size);
    for (const TokenRow& row : rows) {
      const Batch batch = make_batch(tape_.device(), std::span(&row, 1));
      const Var a = model.logits(model.hidden(batch.ids)), b = teacher.logits(teacher.hidden(batch.ids));
      tape_.encoder().commit_and_wait();
      const std::vector<float> la = a.value().to_vector<float>(), lb = b.value().to_vector<float>();
      for (std::size_t i = 0; i + 1 < row.size(); ++i) {
        const std::vector<double> q = log_softmax(&la[i * vocabulary], vocabulary);
        const std::vector<double> p = log_softmax(&lb[i * vocabulary], vocabulary);
        r.nll.push_back(-q[row[i + 1]]);
        r.teacher_nll.push_back(-p[row[i + 1]]);
        r.kl.push_back(0.0);
        for (std::size_t c = 0; c < vocabulary; ++c) r.kl.back() += std::exp(p[c]) * (p[c] - q[c]);
        r.agreements.push_back(std::max_element(p.begin(), p.end()) - p.begin() ==
                               std::max_element(q.begin(), q.end()) - q.begin());
      }
    }
    return r;
  }

  Tape tape_{Device::cpu()};
  std::unique_ptr<ModelSource> llama_ = open_model("tests/data/parity/llama"),
                               qwen3_ = open_model("tests/data/parity/qwen3");
  Teacher model_{*llama_, DType::f32, false, tape_}, teacher_{*qwen3_, DType::f32, false, tape_};
};

TEST_F(EvaluateTest, FiguresAreThoseOfAStraightComputation) {
  std::vector<TokenRow> rows = random_rows(5, 40, 263, 3);
  rows[1].resize(7);  // padding must not count
  rows[4].resize(2);
  const Reference r = reference(model_.model(), teacher_.model(), rows);
  const Evaluation e = evaluate(model_.model(), &teacher_.model(), tape_, rows, 2);
  const auto n = static_cast<double>(r.nll.size());
  EXPECT_EQ(e.positions, 3 * 39 + 6 + 1);
  EXPECT_NEAR(e.mean_nll, Mean(r.nll).mean, 1e-5);
  EXPECT_NEAR(e.mean_nll_error, Mean(r.nll).error, 1e-5);
  EXPECT_NEAR(e.perplexity, std::exp(Mean(r.nll).mean), 1e-5 * e.perplexity);
  EXPECT_NEAR(e.perplexity_error, e.perplexity * Mean(r.nll).error, 1e-4 * e.perplexity);
  EXPECT_NEAR(e.teacher_perplexity, std::exp(Mean(r.teacher_nll).mean), 1e-5 * e.teacher_perplexity);
  EXPECT_NEAR(e.kl->mean, Mean(r.kl).mean, 1e-5);
  EXPECT_NEAR(e.kl->mean_error, Mean(r.kl).error, 1e-5);
  EXPECT_NEAR(e.top1_agreement, Mean(r.agreements).mean, 1e-12);
  EXPECT_NEAR(e.top1_error, Mean(r.agreements).error, 1e-12);
  std::vector<double> sorted = r.kl;
  std::sort(sorted.begin(), sorted.end());
  const auto percentile = [&](double p) { return sorted[static_cast<std::size_t>(p / 100.0 * (n - 1.0))]; };
  EXPECT_NEAR(e.kl->p1, percentile(1), 1e-5);
  EXPECT_NEAR(e.kl->p5, percentile(5), 1e-5);
  EXPECT_NEAR(e.kl->median, percentile(50), 1e-5);
  EXPECT_NEAR(e.kl->p95, percentile(95), 1e-5);
  EXPECT_NEAR(e.kl->p99, percentile(99), 1e-5);
  EXPECT_NEAR(e.kl->p999, percentile(99.9), 1e-5);
  EXPECT_NEAR(e.kl->max, sorted.back(), 1e-5);
  const PositionFigures& f = e.by_position;
  ASSERT_EQ(f.kl.size(), r.kl.size());
  for (std::size_t i = 0; i < r.kl.size(); ++i) {
    EXPECT_NEAR(f.nll[i], r.nll[i], 1e-5) << i;
    EXPECT_NEAR(f.teacher_nll[i], r.teacher_nll[i], 1e-5) << i;
    EXPECT_NEAR(f.kl[i], r.kl[i], 1e-5) << i;
    EXPECT_EQ(f.same_top1[i], r.agreements[i]) << i;
  }
  EXPECT_EQ(f.row_ends, (std::vector<std::size_t>{39, 45, 84, 123, 124}));
}

// A second model costs no second run of the teacher: its layers may be gone by then.
TEST_F(EvaluateTest, AKeptTeacherRunsOnce) {
  const std::vector<TokenRow> rows = random_rows(5, 40, 263, 3);
  const Evaluation plain = evaluate(model_.model(), &teacher_.model(), tape_, rows, 2);
  ModelReference kept(teacher_.model(), tape_, ModelReference::Keeps::activations);
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(evaluate(model_.model(), kept, tape_, rows, 2).by_position.kl, plain.by_position.kl) << run;
    const Buffer weight = teacher_.tensor("model.layers.0.mlp.down_proj.weight");
    weight.write_bytes(std::vector<std::byte>(weight.bytes()).data());
  }
  EXPECT_NE(evaluate(model_.model(), &teacher_.model(), tape_, rows, 2).by_position.kl, plain.by_position.kl);
}

TEST_F(EvaluateTest, ComparisonsArePaired) {
  const std::vector<TokenRow> rows = random_rows(3, 40, 263, 3);
  const Reference r = reference(model_.model(), teacher_.model(), rows);
  const Evaluation e = evaluate(model_.model(), &teacher_.model(), tape_, rows, 2);
  const auto n = static_cast<double>(r.nll.size());
  std::vector<double> differences, squares;
  for (std::size_t i = 0; i < r.nll.size(); ++i) differences.push_back(r.nll[i] - r.teacher_nll[i]);
  const double ratio = std::exp(Mean(differences).mean);
  EXPECT_NEAR(e.perplexity_ratio.value, e.perplexity / e.teacher_perplexity, 1e-6 * ratio);
  EXPECT_NEAR(e.perplexity_ratio.value, ratio, 1e-5 * ratio);
  EXPECT_NEAR(e.perplexity_ratio.error, ratio * Mean(differences).error, 1e-5 * ratio);
  EXPECT_NEAR(e.teacher_perplexity_error, e.teacher_perplexity * Mean(r.teacher_nll).error,
              1e-4 * e.teacher_perplexity);
  EXPECT_NEAR(e.mean_change.value, Mean(r.changes()).mean, 1e-6);
  EXPECT_NEAR(e.mean_change.error, Mean(r.changes()).error, 1e-6);
  for (const double change : r.changes()) squares.push_back(change * change);
  const double rms = std::sqrt(Mean(squares).mean);
  EXPECT_NEAR(e.rms_change.value, rms, 1e-5 * rms);
  EXPECT_NEAR(e.rms_change.error, 0.5 * Mean(squares).error / rms, 1e-4 * rms);
  double covariance = 0.0;
  for (std::size_t i = 0; i < r.nll.size(); ++i) {
    covariance += (r.nll[i] - Mean(r.nll).mean) * (r.teacher_nll[i] - Mean(r.teacher_nll).mean);
  }
  // Errors of means are deviations over sqrt(n).
  EXPECT_NEAR(e.nll_correlation, covariance / (n * (n - 1.0) * Mean(r.nll).error * Mean(r.teacher_nll).error),
              1e-5);
}

TEST_F(EvaluateTest, APartOfTheRowsIsWhatItIsAlone) {
  std::vector<TokenRow> rows = random_rows(5, 20, 263, 3);
  rows[2].resize(9);
  const Evaluation all = evaluate(model_.model(), &teacher_.model(), tape_, rows, 1);
  const Evaluation part = of_rows(all, 1, 4);
  const Evaluation alone =
      evaluate(model_.model(), &teacher_.model(), tape_, std::span(rows).subspan(1, 3), 1);
  EXPECT_EQ(part.positions, 19 + 8 + 19);
  EXPECT_EQ(part.by_position.kl, alone.by_position.kl);
  EXPECT_EQ(part.by_position.row_ends, alone.by_position.row_ends);
  EXPECT_EQ(part.kl->mean, alone.kl->mean);
  EXPECT_EQ(part.perplexity, alone.perplexity);
  EXPECT_EQ(part.top1_agreement, alone.top1_agreement);
  EXPECT_EQ(of_rows(all, 2, 2).positions, 0);
  EXPECT_FALSE(of_rows(evaluate(model_.model(), nullptr, tape_, rows, 1), 0, 2).kl);
  MIXTAPE_EXPECT_ERROR(of_rows(all, 4, 6), ErrorCode::invalid_argument, "rows are 4 to 6, expected 0 to 5");
}

TEST_F(EvaluateTest, AModelIsItsOwnTeacher) {
  const Evaluation e = evaluate(model_.model(), &model_.model(), tape_, random_rows(2, 20, 263, 3), 2);
  EXPECT_EQ(e.top1_agreement, 1.0);
  EXPECT_LT(e.kl->max, 1e-5);
  EXPECT_EQ(e.perplexity, e.teacher_perplexity);
}

TEST_F(EvaluateTest, ATeacherMayBeOfAnotherWidth) {
  nlohmann::json json = llama_->config_json();
  json["hidden_size"] = 96;
  ModelConfig config = ModelConfig::parse(json, "config");
  const Parameters parameters = initial_parameters(config, 1, tape_.device());
  TapeWeights weights(tape_, parameters, Trainable::nothing);
  const CausalLm wide(config, weights, DType::f32);
  const std::vector<TokenRow> rows = random_rows(3, 20, 263, 3);
  const Evaluation e = evaluate(model_.model(), &wide, tape_, rows, 2);
  EXPECT_NEAR(e.kl->mean, Mean(reference(model_.model(), wide, rows).kl).mean, 1e-5);
  config.vocab_size = 100;
  const Parameters few = initial_parameters(config, 1, tape_.device());
  TapeWeights few_weights(tape_, few, Trainable::nothing);
  const CausalLm other(config, few_weights, DType::f32);
  MIXTAPE_EXPECT_ERROR(evaluate(model_.model(), &other, tape_, rows, 2), ErrorCode::invalid_argument,
                       "the teacher's vocabulary has 100 tokens, expected 263");
}

TEST_F(EvaluateTest, StopsBetweenBatches) {
  std::int64_t seen = 0;
  const RunHooks hooks = {.progress = [&](const StageProgress& p) { seen = p.done; },
                          .should_stop = [&] { return seen >= 38; }};
  MIXTAPE_EXPECT_ERROR(
      evaluate(model_.model(), nullptr, tape_, random_rows(5, 20, 263, 3), 1, hooks, "looking"),
      ErrorCode::interrupted, "looking: interrupted");
  EXPECT_EQ(seen, 38);
}

Evaluation with_divergences(const std::vector<float>& kl) {
  PositionFigures figures;
  figures.nll = figures.teacher_nll = std::vector<float>(kl.size(), 1.0f);
  figures.same_top1.resize(kl.size());
  figures.kl = kl;
  return summarize(figures);
}

TEST(KlCut, ErrorIsThatOfThePairs) {
  const Evaluation before = with_divergences({1.0f, 2.0f, 3.0f, 6.0f});
  const Evaluation half =
      with_divergences({0.5f, 1.0f, 1.5f, 3.0f});  // each one halved: no doubt about the half
  EXPECT_DOUBLE_EQ(kl_cut(before, half).share, 0.5);
  EXPECT_DOUBLE_EQ(kl_cut(before, half).error, 0.0);
  const Evaluation mixed =
      with_divergences({1.0f, 0.5f, 1.5f, 3.0f});  // residuals of 0.5 a - b: -0.5, 0.5, 0, 0
  EXPECT_NEAR(kl_cut(before, mixed).error, std::sqrt(0.5 / 3.0 / 4.0) / 3.0, 1e-12);
  MIXTAPE_EXPECT_ERROR(kl_cut(before, with_divergences({1.0f, 0.5f, 1.5f})), ErrorCode::invalid_argument,
                       "kl_cut: found 4 and 3 positions");
}

TEST(KlDifference, ErrorIsThatOfThePairs) {
  const Evaluation a = with_divergences({1.0f, 2.0f, 3.0f, 6.0f});
  const Estimate constant = kl_difference(a, with_divergences({1.5f, 2.5f, 3.5f, 6.5f}));
  EXPECT_DOUBLE_EQ(constant.value, 0.5);
  EXPECT_DOUBLE_EQ(constant.error, 0.0);
  const Estimate mixed = kl_difference(a, with_divergences({0.0f, 2.0f, 3.0f, 5.0f}));  // -1, 0, 0, -1
  EXPECT_DOUBLE_EQ(mixed.value, -0.5);
  EXPECT_NEAR(mixed.error, std::sqrt(1.0 / 3.0 / 4.0), 1e-12);
  MIXTAPE_EXPECT_ERROR(kl_difference(a, with_divergences({1.0f})), ErrorCode::invalid_argument,
                       "kl_difference: found 4 and 1 positions");
}

TEST(Summarize, NothingAndOnePositionHaveNoError) {
  EXPECT_EQ(summarize({}).positions, 0);
  EXPECT_FALSE(summarize({}).kl);
  const Evaluation one = with_divergences({2.0f});
  EXPECT_EQ(one.kl->mean, 2.0);
  EXPECT_EQ(one.kl->mean_error, 0.0);
  EXPECT_EQ(one.kl->p999, 2.0);
  EXPECT_EQ(one.nll_correlation, 0.0);
  EXPECT_EQ(one.rms_change.error, 0.0);
}

}  // namespace
}  // namespace mixtape
