// Training steps that are recorded and replayed, or whose teacher is streamed, give the bits of plain ones.
#include "mixtape/calib/trainer.h"

#include <cmath>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/student.h"
#include "mixtape/ops/take_along_axis/take_along_axis.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

// The signal inside, never recorded. Losses of batch `breaks_at`, counted from 1, and later are NaN; 0: never.
class Plain final : public LossSignal {
 public:
  explicit Plain(LossSignal& inner, std::int64_t breaks_at) : inner_(inner), breaks_at_(breaks_at) {}
  void load(const Batch& batch, std::span<const std::size_t> rows) override {
    inner_.load(batch, rows);
    ++batches_;
  }
  void start() override { inner_.start(); }
  bool is_recordable() const override { return false; }
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override {
    const Buffer losses = inner_.losses(encoder, logits, begin, end, gradient);
    if (breaks_at_ > 0 && batches_ >= breaks_at_) encoder.fill(losses, NAN);
    return losses;
  }

 private:
  LossSignal& inner_;
  std::int64_t breaks_at_, batches_ = 0;
};

struct Outcome {
  TrainReport report;
  std::vector<std::vector<float>> scales;
};

class TrainerTest : public ::testing::TestWithParam<std::string> {
 protected:
  static TrainOptions four_steps() {
    TrainOptions options;
    options.steps = 4;
    options.batch_size = 1;
    options.validate_every = 4;
    options.keep_best = false;
    return options;
  }

  // Rows of one batch each; the last one is shorter.
  std::vector<TokenRow> train_rows() const {
    std::vector<TokenRow> rows = random_rows(4, 4, config_.vocab_size, 5);
    rows[3].resize(3);
    return rows;
  }

  static BatchOrder in_order() {
    return [](std::int64_t) { return std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {3}}; };
  }

  // Four steps of one row each: the first is plain, the second recorded, the third replayed, and the last
  // one's row is shorter. Before it, `prepare` sees the trainer.
  Outcome run(bool streamed, bool recorded, const TrainOptions& options = four_steps(),
              const TrainHooks& hooks = {}, const std::function<void(Trainer&)>& prepare = {},
              std::int64_t breaks_at = 0) {
    Tape tape(device_);
    const QuantizationPlan plan = plan_quantization(*source_, {.params = {3, 32}});
    const Teacher teacher(*source_, DType::f32, streamed, tape);
    Student student = fit_student(teacher, plan, plain_rounding());
    LiveTeacher live(teacher.model(), tape, {.temperature = 2.0f});
    Plain plain(live, breaks_at);
    const std::vector<TokenRow> rows = train_rows(), validation = random_rows(1, 3, config_.vocab_size, 5);
    Trainer trainer(config_, student.parameters, DType::f32,
                    recorded ? static_cast<LossSignal&>(live) : plain, tape, {rows, validation, in_order()},
                    options, hooks);
    if (prepare) prepare(trainer);
    const TrainReport report = trainer.run();
    Outcome outcome{report, {}};
    for (const auto& [path, q] : student.parameters.quantized)
      outcome.scales.push_back(q.scales.to_vector<float>());
    return outcome;
  }

  Device device_ = Device::open(GetParam());
  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/qwen3_moe");
  ModelConfig config_ = source_->config();
};

TEST_P(TrainerTest, RecordedStepsGiveTheBitsOfPlainOnes) {
  const Outcome plain = run(false, false), recorded = run(false, true);
  EXPECT_EQ(plain.report.losses, recorded.report.losses);
  EXPECT_EQ(plain.scales, recorded.scales);
  EXPECT_EQ(plain.report.expert_tokens, recorded.report.expert_tokens);
  EXPECT_NE(plain.report.losses[0], plain.report.losses[1]);
}

TEST_P(TrainerTest, StreamedTeacherGivesTheBitsOfALoadedOne) {
  const Outcome loaded = run(false, true), streamed = run(true, true);
  EXPECT_EQ(loaded.report.losses, streamed.report.losses);
  EXPECT_EQ(loaded.scales, streamed.scales);
}

// Saved after the second step by one trainer, loaded by another one.
TEST_P(TrainerTest, ALoadedStateGoesOnWithTheSameBits) {
  const testing::TempDirectory temp;
  TrainOptions options = four_steps();
  options.validate_every = 1;
  options.keep_best = true;
  const TrainHooks save = {.run = {}, .checkpoint = [&](const TrainState& state) {
                             if (state.report.steps_done == 2) state.save(temp / "state.safetensors");
                           }};
  const Outcome whole = run(false, true, options, save);
  const Outcome resumed = run(false, true, options, {}, [&](Trainer& trainer) {
    trainer.state().load(temp / "state.safetensors");
    EXPECT_EQ(trainer.state().report.steps_done, 2);
    EXPECT_EQ(trainer.state().report.validation.size(), 3u);
  });
  EXPECT_EQ(whole.report.losses, resumed.report.losses);
  EXPECT_EQ(whole.scales, resumed.scales);
  EXPECT_EQ(whole.report.best_step, resumed.report.best_step);
  EXPECT_EQ(whole.report.best_loss, resumed.report.best_loss);
  EXPECT_EQ(whole.report.expert_tokens, resumed.report.expert_tokens);
  EXPECT_EQ(whole.report.tokens_seen, resumed.report.tokens_seen);
}

TEST_P(TrainerTest, AStopLeavesAStateThatMayBeMeasured) {
  if (GetParam() != "cpu") GTEST_SKIP() << "of the loop, whatever the device";
  TrainOptions options = four_steps();
  options.validate_every = 4;
  options.keep_best = true;
  bool stops = false;
  const TrainHooks hooks = {.run = {.progress = [&](const StageProgress& p) { stops |= p.done == 2; },
                                    .should_stop = [&] { return stops; }}};
  for (const bool at_stop : {false, true}) {
    stops = false;
    options.validate_at_stop = at_stop;
    const TrainReport report = run(false, true, options, hooks).report;
    EXPECT_TRUE(report.stopped_early);
    EXPECT_EQ(report.steps_done, 2);
    EXPECT_EQ(report.validation.back().step, at_stop ? 2 : 0);
  }
}

TEST_P(TrainerTest, AStateOfOtherLeavesIsRefused) {
  if (GetParam() != "cpu") GTEST_SKIP() << "of the loop, whatever the device";
  const testing::TempDirectory temp;
  const auto file = temp / "state.safetensors";
  run(false, true, four_steps(), {}, [&](Trainer& trainer) { trainer.state().save(file); });
  TrainOptions everything = four_steps();
  everything.trainable = Trainable::everything;
  run(false, true, everything, {}, [&](Trainer& trainer) {
    MIXTAPE_EXPECT_ERROR(trainer.state().load(file), ErrorCode::format,
                         "state.safetensors: tensor 'units' is");
    const auto model = std::filesystem::path("tests/data/parity/qwen3_moe/model.safetensors");
    MIXTAPE_EXPECT_ERROR(trainer.state().load(model), ErrorCode::format, "is no training state");
  });
}

TEST_P(TrainerTest, RecomputedActivationsGiveTheSameBits) {
  TrainOptions options = four_steps();
  options.checkpoint_blocks = true;
  const Outcome kept = run(false, true), recomputed = run(false, true, options);
  EXPECT_EQ(kept.report.losses, recomputed.report.losses);
  EXPECT_EQ(kept.scales, recomputed.scales);
}

// A gradient is scaled to the norm as a whole, so the first step, whose moments are the gradient's, barely
// changes; the second differs. A norm that is never reached changes nothing.
TEST_P(TrainerTest, ClipsByTheNormOfAllGradients) {
  if (GetParam() != "cpu") GTEST_SKIP() << "of the loop, whatever the device";
  TrainOptions clipped = four_steps(), loose = four_steps();
  clipped.clip_norm = 1e-6;
  loose.clip_norm = 1e6;
  const Outcome plain = run(false, true), small = run(false, true, clipped), same = run(false, true, loose);
  EXPECT_EQ(plain.scales, same.scales);
  EXPECT_NE(plain.scales, small.scales);
}

// Batches: validation, step 1, validation, step 2, ...
TEST_P(TrainerTest, StopsAtALossThatIsNotFinite) {
  if (GetParam() != "cpu") GTEST_SKIP() << "of the loop, whatever the device";
  TrainOptions options = four_steps();
  options.validate_every = 1;
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(run(false, false, options, {}, {}, 6), code, "train: the loss of step 3 is nan");
  options.keep_best = true;
  MIXTAPE_EXPECT_ERROR(run(false, false, options, {}, {}, 1), code, "the validation loss of step 0 is nan");
  MIXTAPE_EXPECT_ERROR(run(false, false, options, {}, {}, 2), code, "train: the loss of step 1 is nan");
  const Outcome stopped = run(false, false, options, {}, {}, 6);
  EXPECT_TRUE(stopped.report.diverged);
  EXPECT_EQ(stopped.report.steps_done, 3);
  EXPECT_GT(stopped.report.best_step, 0);
  EXPECT_EQ(stopped.report.validation.size(), 3u);
}

TEST_P(TrainerTest, IndexErrorOfAReplaySurfacesAtWait) {
  if (!device_.backend().can_record()) GTEST_SKIP();
  CommandEncoder encoder(device_);
  const Buffer x = Buffer::from(device_, {1, 3}, std::vector<float>{1, 2, 3});
  const Buffer at = Buffer::from(device_, {1, 2}, std::vector<std::uint32_t>{0, 2});
  const Buffer y = device_.alloc(DType::f32, {1, 2});
  const auto replay = encoder.record([&] { take_along_axis_forward(encoder, x, at, y); });
  replay->run();
  encoder.commit_and_wait();
  at.copy_from(std::span<const std::uint32_t>(std::vector<std::uint32_t>{0, 9}));
  for (int i = 0; i < 2; ++i) {
    replay->run();
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "9");
  }
  at.copy_from(std::span<const std::uint32_t>(std::vector<std::uint32_t>{2, 1}));
  replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 2}));
}

INSTANTIATE_TEST_SUITE_P(Devices, TrainerTest, ::testing::ValuesIn(testing::model_device_names()));

}  // namespace
}  // namespace mixtape
