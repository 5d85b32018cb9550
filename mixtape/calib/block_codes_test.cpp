#include "mixtape/calib/block_codes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/hidden_rows.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

class BlockCodesTest : public ::testing::Test {
 protected:
  static BlockCodesOptions twenty_steps() {
    BlockCodesOptions o;
    o.train.steps = 20;
    o.train.batch_size = 8;
    o.train.learning_rate = 0.002;
    o.train.code_rate = 0.03;
    return o;
  }

  // Of the model named, at 2 bits, its rows random tokens, the same in every part.
  struct Case {
    std::unique_ptr<ModelSource> source;
    QuantizationPlan plan;
    CalibrationData data;

    explicit Case(const std::string& model, std::vector<TokenRow> rows = random_rows(24, 33, 263, 7))
        : source(open_model("tests/data/parity/" + model)),
          plan(plan_quantization(*source, {.params = {2, 32}})),
          data{rows, rows, rows} {}
  };

  Calibration run(const Case& c, const std::vector<Method>& improve, bool streamed = false,
                  const RunHooks& hooks = {}) {
    std::vector<Method> methods = fits(InitialFit::gptq);
    methods.insert(methods.end(), improve.begin(), improve.end());
    return calibrate(*c.source, c.plan, c.data,
                     {.methods = methods, .compute = DType::f32, .stream_teacher = streamed}, tape_, hooks);
  }

  static std::vector<std::uint32_t> codes(const Student& student, const std::string& path) {
    return student.parameters.quantized.at(path).codes.to_vector<std::uint32_t>();
  }
  static std::vector<float> scales(const Student& student, const std::string& path) {
    return student.parameters.quantized.at(path).scales.to_vector<float>();
  }
  static void expect_equal(const Student& a, const Student& b) {
    for (const auto& entry : a.parameters.quantized) {
      EXPECT_EQ(codes(a, entry.first), codes(b, entry.first)) << entry.first;
      EXPECT_EQ(scales(a, entry.first), scales(b, entry.first)) << entry.first;
    }
  }

  // Of the student's hidden states behind its last layer, against the teacher's: the mean of |y - t|^2 / |t|^2, in
  // double precision.
  double hidden_error(const Case& c, const Student& student) {
    const NoGrad guard(tape_);
    const Teacher teacher(*c.source, DType::f32, false, tape_);
    TapeWeights weights(tape_, student.parameters, Trainable::nothing);
    const CausalLm model(student.config, weights, DType::f32);
    double sum = 0.0, positions = 0.0;
    for (const TokenRow& row : c.data.validation) {
      const Buffer ids = make_batch(tape_.device(), {&row, 1}).ids;
      const std::vector<float> y = last_layer(model, ids), t = last_layer(teacher.model(), ids);
      const auto width = static_cast<std::size_t>(student.config.hidden_size);
      for (std::size_t at = 0; at < y.size(); at += width, ++positions) {
        double error = 0.0, size = 0.0;
        for (std::size_t i = at; i < at + width; ++i) {
          error += std::pow(static_cast<double>(y[i]) - static_cast<double>(t[i]), 2);
          size += std::pow(static_cast<double>(t[i]), 2);
        }
        sum += error / size;
      }
    }
    return sum / positions;
  }
  std::vector<float> last_layer(const CausalLm& model, const Buffer& ids) {
    Var x = model.embed(ids);
    for (std::int64_t i = 0; i < std::ssize(model.config().layers); ++i) x = model.layer(i)(x);
    tape_.encoder().commit_and_wait();
    return x.value().to_vector<float>();
  }

  Tape tape_{Device::cpu()};
};

TEST_F(BlockCodesTest, LowersKlAndTheErrorOfHiddenStates) {
  for (const char* model : {"llama_tied_bias_rope3", "qwen3_moe"}) {
    const Case c(model);
    const Calibration before = run(c, {}), after = run(c, {block_codes(twenty_steps())});
    const StageReport& stage = after.report.stages.back();
    EXPECT_EQ(stage.method, "codes by layer");
    EXPECT_TRUE(stage.kept) << model;
    EXPECT_LT(stage.kl->mean, 0.9 * after.report.stages[2].kl->mean) << model;
    EXPECT_LT(hidden_error(c, after.student), 0.9 * hidden_error(c, before.student)) << model;
    const auto layers = std::ssize(after.student.config.layers);
    EXPECT_EQ(after.report.training.steps_done, 20 * layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string path = str("model.layers.", i, ".self_attn.q_proj");
      EXPECT_NE(codes(after.student, path), codes(before.student, path)) << model << " " << i;
    }
    EXPECT_EQ(codes(after.student, "model.embed_tokens"), codes(before.student, "model.embed_tokens"));
    EXPECT_EQ(scales(after.student, "model.embed_tokens"), scales(before.student, "model.embed_tokens"));
    EXPECT_TRUE(after.student.parameters.latent.empty());
  }
}

TEST_F(BlockCodesTest, LowersKlOnEveryDevice) {
  std::vector<TokenRow> rows = random_rows(2, 7, 263, 7);
  rows[1].resize(4);
  const Case c("qwen3", rows);
  BlockCodesOptions o = twenty_steps();
  o.train.steps = 4;
  o.train.batch_size = 2;
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const CalibrationReport report =
        calibrate(*c.source, c.plan, c.data,
                  {.methods = {plain_rounding(), block_codes(o)}, .compute = DType::f32}, tape)
            .report;
    EXPECT_LT(report.stages[1].kl->mean, 0.95 * report.stages[0].kl->mean) << device.name();
  }
}

TEST_F(BlockCodesTest, AStreamedTeacherAndOneInHandGiveTheSame) {
  const Case c("qwen3");
  BlockCodesOptions o = twenty_steps();
  o.train.steps = 3;
  expect_equal(run(c, {block_codes(o)}).student, run(c, {block_codes(o)}, true).student);
}

// Steps so long that they spoil every layer: the student is the one that came in.
TEST_F(BlockCodesTest, ALayerThatGotWorseStaysAsItWas) {
  const Case c("qwen3");
  BlockCodesOptions o = twenty_steps();
  o.train.steps = 2;
  o.train.learning_rate = 10.0;
  o.train.code_rate = 1.0;
  const Teacher teacher(*c.source, DType::f32, false, tape_);
  const Student before = run(c, {}).student;
  Student after = copy_of(before);
  const RunHooks hooks;
  const TrainReport report = block_codes(o).improve({teacher, c.plan, c.data, hooks, {}}, after);
  EXPECT_EQ(report.best_step, 0);
  EXPECT_EQ(report.steps_done, 2 * std::ssize(after.config.layers));
  expect_equal(after, before);
}

// Rows of other lengths in a batch don't change what a row gives.
TEST_F(BlockCodesTest, PaddingIsLeftOut) {
  std::vector<TokenRow> rows = random_rows(3, 9, 263, 3);
  rows[1].resize(4);
  const Case c("qwen3", rows);
  const Teacher teacher(*c.source, DType::f32, false, tape_);
  HiddenRows together(teacher.model(), tape_, rows);
  ASSERT_TRUE(together.pass(teacher.model().layer(0), 3, {}));
  const std::vector<std::size_t> all = {0, 1, 2};
  const std::vector<float> weights = together.weights(all);
  EXPECT_EQ(weights.size(), 24u);
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_EQ(weights[i], i >= 11 && i < 16 ? 0.0f : 1.0f) << i;
  HiddenRows alone(teacher.model(), tape_, {&rows[1], 1});
  ASSERT_TRUE(alone.pass(teacher.model().layer(0), 1, {}));
  const std::size_t one = 1, first = 0;
  const Buffer in_batch = together.batch({&one, 1}), by_itself = alone.batch({&first, 1});
  tape_.encoder().commit_and_wait();
  ASSERT_EQ(in_batch.shape(), by_itself.shape());
  const std::vector<float> a = in_batch.to_vector<float>(), b = by_itself.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

// Nor do rows that predict nothing.
TEST_F(BlockCodesTest, RowsOfOneTokenAreLeftOut) {
  std::vector<TokenRow> rows = random_rows(3, 9, 263, 3);
  BlockCodesOptions o = twenty_steps();
  o.train.steps = 2;
  o.train.batch_size = 3;
  const Case c("qwen3", rows);
  Case with_empty("qwen3", rows);
  with_empty.data.train.push_back({5});
  const Student student = run(c, {block_codes(o)}).student;
  expect_equal(run(with_empty, {block_codes(o)}).student, student);
  EXPECT_NE(codes(student, "model.layers.0.mlp.down_proj"),
            codes(run(c, {}).student, "model.layers.0.mlp.down_proj"));
}

TEST_F(BlockCodesTest, StoppedItKeepsTheLayersThatHaveLearned) {
  const Case c("qwen3");
  auto stopped = std::make_shared<bool>(false);
  const RunHooks hooks = {
      .progress = [=](const StageProgress& p) { *stopped |= p.stage == "learning layers" && p.done > 20; },
      .should_stop = [=] { return *stopped; }};
  const Calibration whole = run(c, {block_codes(twenty_steps())});
  const Calibration part = run(c, {block_codes(twenty_steps()), dwq({})}, false, hooks);
  EXPECT_TRUE(part.report.stopped_early);
  EXPECT_EQ(part.report.training.steps_done, 21);
  EXPECT_EQ(part.report.stages.size(), 4u);
  const std::string first = "model.layers.0.mlp.down_proj", second = "model.layers.1.mlp.down_proj";
  EXPECT_EQ(codes(part.student, first), codes(whole.student, first));
  EXPECT_EQ(codes(part.student, second), codes(run(c, {}).student, second));
}

TEST_F(BlockCodesTest, WrongOptionsAreFoundFirst) {
  const Case c("qwen3");
  const RunHooks never = {.progress = {}, .should_stop = [] {
                            ADD_FAILURE() << "work had begun";
                            return true;
                          }};
  BlockCodesOptions o = twenty_steps();
  o.rows = 0;
  MIXTAPE_EXPECT_ERROR(run(c, {block_codes(o)}, false, never), ErrorCode::invalid_argument,
                       "rows is 0, expected 1 or more");
  o = twenty_steps();
  o.train.code_rate = NAN;
  MIXTAPE_EXPECT_ERROR(run(c, {block_codes(o)}, false, never), ErrorCode::invalid_argument,
                       "code rate is nan");
}

}  // namespace
}  // namespace mixtape
