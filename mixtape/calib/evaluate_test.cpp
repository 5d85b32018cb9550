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
    std::vector<double> nll, teacher_nll, kl;
    double agreements = 0.0;
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
        r.agreements += std::max_element(p.begin(), p.end()) - p.begin() ==
                        std::max_element(q.begin(), q.end()) - q.begin();
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
  EXPECT_NEAR(e.top1_agreement, r.agreements / n, 1e-12);
  std::vector<double> sorted = r.kl;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NEAR(e.kl->median, sorted[static_cast<std::size_t>(0.5 * (n - 1.0))], 1e-5);
  EXPECT_NEAR(e.kl->p95, sorted[static_cast<std::size_t>(0.95 * (n - 1.0))], 1e-5);
  EXPECT_NEAR(e.kl->p99, sorted[static_cast<std::size_t>(0.99 * (n - 1.0))], 1e-5);
  EXPECT_NEAR(e.kl->max, sorted.back(), 1e-5);
  ASSERT_EQ(e.divergences.size(), r.kl.size());
  for (std::size_t i = 0; i < r.kl.size(); ++i) EXPECT_NEAR(e.divergences[i], r.kl[i], 1e-5) << i;
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

TEST(KlCut, ErrorIsThatOfThePairs) {
  Evaluation before, after;
  before.divergences = {1.0f, 2.0f, 3.0f, 6.0f};
  before.kl = KlStatistics{.mean = 3.0};
  after.divergences = {0.5f, 1.0f, 1.5f, 3.0f};  // each one halved: no doubt about the half
  after.kl = KlStatistics{.mean = 1.5};
  EXPECT_DOUBLE_EQ(kl_cut(before, after).share, 0.5);
  EXPECT_DOUBLE_EQ(kl_cut(before, after).error, 0.0);
  after.divergences = {1.0f, 0.5f, 1.5f, 3.0f};  // residuals of 0.5 a - b: -0.5, 0.5, 0, 0
  EXPECT_NEAR(kl_cut(before, after).error, std::sqrt(0.5 / 3.0 / 4.0) / 3.0, 1e-12);
  after.divergences.pop_back();
  MIXTAPE_EXPECT_ERROR(kl_cut(before, after), ErrorCode::invalid_argument, "found 4 and 3 positions");
}

}  // namespace
}  // namespace mixtape
