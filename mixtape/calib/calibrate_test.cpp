#include "mixtape/calib/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/dwq.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/reference_recipe.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

// A model of the parity tests, at 3 bits. Its rows are random tokens, the same in every part: what is learnt of
// them shows.
class CalibrateTest : public ::testing::Test {
 protected:
  static DwqOptions six_steps() {
    DwqOptions o;
    o.train.steps = 6;
    o.train.batch_size = 2;
    o.train.validate_every = 2;
    return o;
  }

  // After plain rounding.
  Calibration run(const Method& method, const RunHooks& hooks = {}) {
    return run_all({plain_rounding(), method}, hooks);
  }
  Calibration run_all(const std::vector<Method>& methods, const RunHooks& hooks = {}) {
    return calibrate(*source_, plan_, data_,
                     {.methods = methods, .evaluation_batch = 3, .compute = DType::f32}, tape_, hooks);
  }

  // The directory that is written for the student, as a model, against the teacher.
  Evaluation written(const Student& student, DType compute = DType::f32) {
    const testing::TempDirectory temp;
    AtomicDirectory output(temp / "out");
    write_student(output, *source_, student, plan_, DType::f32);
    const auto source = open_model(temp / "out");
    const Teacher model(*source, compute, false, tape_), teacher(*source_, compute, false, tape_);
    return evaluate(model.model(), &teacher.model(), tape_, data_.report, 3);
  }

  static void expect_equal(const Evaluation& a, const Evaluation& b) {
    EXPECT_EQ(a.mean_nll, b.mean_nll);
    EXPECT_EQ(a.kl->mean, b.kl->mean);
    EXPECT_EQ(a.kl->max, b.kl->max);
    EXPECT_EQ(a.top1_agreement, b.top1_agreement);
    EXPECT_EQ(a.teacher_perplexity, b.teacher_perplexity);
  }

  static std::vector<float> scales(const Student& student) {
    std::vector<float> all;
    for (const auto& [path, q] : student.parameters.quantized) {
      const std::vector<float> part = q.scales.to_vector<float>();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // Stops in the first report of `stage` at or after `done`, and never sooner.
  static RunHooks stop_in(const std::string& stage, std::int64_t done = 0) {
    auto stopped = std::make_shared<bool>(false);
    return {.progress = [=](const StageProgress& p) { *stopped |= p.stage == stage && p.done >= done; },
            .should_stop = [=] { return *stopped; }};
  }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/qwen3");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
  Tape tape_{Device::cpu()};
  std::vector<TokenRow> rows_ = random_rows(4, 17, 263, 1);
  CalibrationData data_{rows_, rows_, rows_};
};

TEST_F(CalibrateTest, TheTableIsTheFile) {
  const Calibration plain = run_all({plain_rounding()});
  expect_equal(plain.report.initial, written(plain.student));
  expect_equal(plain.report.initial, *plain.report.result);
  const Calibration trained = run(dwq(six_steps()));
  expect_equal(trained.report.initial, plain.report.initial);
  expect_equal(*trained.report.result, written(trained.student));
  EXPECT_LT(trained.report.result->kl->mean, trained.report.initial.kl->mean);
  EXPECT_FALSE(trained.report.stopped_early);
}

TEST_F(CalibrateTest, AStreamedTeacherAndOneInHandGiveTheSame) {
  const Method method = dwq(six_steps());
  const Calibration a = run(method);
  const Teacher streamed(*source_, DType::f32, true, tape_);
  const Calibration b =
      calibrate(streamed, plan_, data_, {.methods = {plain_rounding(), method}, .evaluation_batch = 3});
  EXPECT_EQ(scales(a.student), scales(b.student));
  expect_equal(*a.report.result, *b.report.result);
}

// Each step that isn't the last hands out the state; a trainer that loads it has the report of that moment.
TEST_F(CalibrateTest, CheckpointsOfDwqCanBeSaved) {
  const testing::TempDirectory temp;
  std::vector<std::int64_t> steps;
  DwqOptions o = six_steps();
  o.checkpoint = [&](const TrainState& state) {
    steps.push_back(state.report.steps_done);
    state.save(temp / "state.safetensors");
  };
  const Calibration c = run(dwq(o));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  Student fresh = run_all({plain_rounding()}).student;
  const Teacher teacher(*source_, DType::f32, false, tape_);
  LiveTeacher signal(teacher.model(), tape_, o.loss);
  Trainer trainer(fresh.config, fresh.parameters, DType::f32, signal, tape_,
                  {data_.train, data_.validation, shuffled_batches(data_.train.size(), 2, o.seed)}, o.train);
  trainer.state().load(temp / "state.safetensors");
  EXPECT_EQ(trainer.state().report.steps_done, 5);
  EXPECT_EQ(trainer.run().losses, c.report.training.losses);
  EXPECT_EQ(scales(fresh), scales(c.student));
}

// Norms and float matrices train too, are written, and leave the teacher as it was; also where activations are
// bf16 and every float tensor is stored so.
TEST_F(CalibrateTest, TheReferenceRecipeWritesWhatItTrained) {
  DwqOptions o = six_steps();
  apply_reference_settings(o.train);
  o.train.learning_rate = 1e-3;
  o.train.batch_size = 2;
  o.reference_order = true;
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Teacher teacher(*source_, compute, false, tape_);
    const std::string norm = "model.norm.weight";
    const auto bytes = [](const Buffer& b) {
      std::vector<std::byte> all(b.bytes());
      b.read_bytes(all.data());
      return all;
    };
    const std::vector<std::byte> before = bytes(teacher.tensor(norm));
    const Calibration c =
        calibrate(teacher, plan_, data_, {.methods = {plain_rounding(), dwq(o)}, .evaluation_batch = 3});
    EXPECT_EQ(bytes(teacher.tensor(norm)), before);
    EXPECT_NE(c.student.parameters.dense.at(norm).to_vector<float>(),
              source_->load(norm, DType::f32, Device::cpu()).to_vector<float>());
    if (compute != DType::f32) continue;
    expect_equal(c.report.initial, run_all({plain_rounding()}).report.initial);
    expect_equal(*c.report.result, written(c.student));
  }
}

// Two methods of a test: one that spoils what it is given, and one that leaves it.
Method spoiling() {
  return {.name = "spoiling", .improve = [](const MethodInput&, Student& student) {
            CommandEncoder encoder(Device::cpu());
            for (auto& [path, q] : student.parameters.quantized) encoder.fill(q.scales, 0.5f);
            encoder.commit_and_wait();
            return TrainReport{};
          }};
}
Method coarse_fit() {
  return {.name = "coarse", .fit = [](const FitInput& in) {
            QuantizedWeight q =
                quantize_matrix(in.module.source, in.w, *in.module.stored, Rounding::gpu, DType::f32);
            CommandEncoder encoder(Device::cpu());
            encoder.fill(q.scales, 0.0f);
            encoder.commit_and_wait();
            in.notes.push_back("coarse " + in.module.path);
            return q;
          }};
}

TEST_F(CalibrateTest, TheGateKeepsTheBestStage) {
  const Calibration c = run_all({coarse_fit(), plain_rounding(), spoiling(), dwq(six_steps())});
  ASSERT_EQ(c.report.stages.size(), 4u);
  const std::vector<bool> kept = {true, true, false, true};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(c.report.stages[i].kept, kept[i]) << c.report.stages[i].method;
    EXPECT_TRUE(c.report.stages[i].kl.has_value());
    EXPECT_GE(c.report.stages[i].seconds, 0.0);
  }
  // The best before it is stage 0, and then stage 1.
  EXPECT_FALSE(c.report.stages[0].change.has_value());
  for (std::size_t i = 1; i < 4; ++i) {
    const StageReport &stage = c.report.stages[i], &best = c.report.stages[i == 1 ? 0 : 1];
    ASSERT_TRUE(stage.change.has_value()) << stage.method;
    EXPECT_NEAR(stage.change->value, stage.kl->mean - best.kl->mean, 1e-6) << stage.method;
    EXPECT_GT(stage.change->error, 0.0) << stage.method;
  }
  EXPECT_EQ(c.report.stages[0].notes.size(), c.student.parameters.quantized.size());
  expect_equal(*c.report.result, written(c.student));
  const Calibration direct = run_all({plain_rounding(), dwq(six_steps())});
  EXPECT_EQ(scales(c.student), scales(direct.student));
  // Without validation rows or the gate each method takes up the one before it.
  const Calibration open = calibrate(*source_, plan_, data_,
                                     {.methods = {plain_rounding(), spoiling()},
                                      .gate = false,
                                      .evaluation_batch = 3,
                                      .compute = DType::f32},
                                     tape_);
  EXPECT_EQ(open.student.parameters.quantized.begin()->second.scales.to_vector<float>()[0], 0.5f);
  EXPECT_FALSE(open.report.stages[1].kl.has_value());
  EXPECT_FALSE(open.report.stages[1].change.has_value());
}

TEST_F(CalibrateTest, MethodsInTheWrongOrder) {
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(run_all({dwq(six_steps())}), code, "no method fits");
  MIXTAPE_EXPECT_ERROR(run_all({plain_rounding(), dwq(six_steps()), plain_rounding()}), code,
                       "'plain rounding' fits, expected before");
}

TEST_F(CalibrateTest, StoppedBeforeTrainingItLeavesNothing) {
  const testing::TempDirectory temp;
  DwqOptions o = six_steps();
  o.loss.top_k = 8;
  o.target_dir = temp / "targets";
  const ErrorCode code = ErrorCode::interrupted;
  MIXTAPE_EXPECT_ERROR(run(dwq(o), stop_in("evaluating initial fit")), code,
                       "evaluating initial fit: interrupted");
  MIXTAPE_EXPECT_ERROR(run(dwq(o), stop_in("teacher targets", 2)), code, "teacher targets: interrupted");
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

TEST_F(CalibrateTest, StoppedInTrainingItKeepsTheBestState) {
  const Calibration c = run(dwq(six_steps()), stop_in("training", 4));
  EXPECT_TRUE(c.report.stopped_early);
  EXPECT_FALSE(c.report.result.has_value());
  EXPECT_EQ(c.report.training.steps_done, 4);
  EXPECT_EQ(c.report.training.best_step, 2);
  EXPECT_NE(scales(c.student), scales(run_all({plain_rounding()}).student));
}

TEST_F(CalibrateTest, StoppedInTheLastEvaluationItKeepsTheResult) {
  const Calibration whole = run(dwq(six_steps()));
  const Calibration c = run(dwq(six_steps()), stop_in("evaluating result"));
  EXPECT_TRUE(c.report.stopped_early);
  EXPECT_FALSE(c.report.result.has_value());
  EXPECT_EQ(scales(c.student), scales(whole.student));
}

TEST_F(CalibrateTest, WritingStopsBetweenTensors) {
  const Calibration c = run_all({plain_rounding()});
  const testing::TempDirectory temp;
  {
    AtomicDirectory output(temp / "out");
    MIXTAPE_EXPECT_ERROR(write_student(output, *source_, c.student, plan_, DType::f32, stop_in("writing", 3)),
                         ErrorCode::interrupted, "writing: interrupted");
  }
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

// Before the teacher is loaded: a hook that stops at once is never asked.
TEST_F(CalibrateTest, WrongOptionsAreFoundFirst) {
  const RunHooks never = {.progress = {}, .should_stop = [] {
                            ADD_FAILURE() << "work had begun";
                            return true;
                          }};
  const ErrorCode code = ErrorCode::invalid_argument;
  const auto expect = [&](const DwqOptions& o, const std::string& text) {
    MIXTAPE_EXPECT_ERROR(run(dwq(o), never), code, text);
  };
  DwqOptions o = six_steps();
  o.train.learning_rate = NAN;
  expect(o, "learning rate is nan");
  o.train.learning_rate = 1e30;
  expect(o, "learning rate is 1e+30");
  o = six_steps();
  o.train.clip_norm = INFINITY;
  expect(o, "clip norm is inf");
  o = six_steps();
  o.loss.temperature = NAN;
  expect(o, "temperature is nan");
  o = six_steps();
  o.loss.top_k = 264;
  expect(o, "top_k is 264, expected 0 to the vocabulary's 263");
  o = six_steps();
  o.target_dir = "targets";
  expect(o, "top_k is 0, expected 1 or more");
  data_.train[1][2] = 263;
  MIXTAPE_EXPECT_ERROR(run(dwq(six_steps()), never), ErrorCode::index_out_of_range, "row 1, position 2");
  data_.report.clear();
  MIXTAPE_EXPECT_ERROR(run_all({plain_rounding()}, never), code, "found no report row");
}

}  // namespace
}  // namespace mixtape
