#include "mixtape/calib/work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/random_rows.h"

namespace mixtape {
namespace {

constexpr std::int64_t kRows = 4, kTokens = 32;

class WorkTest : public ::testing::Test {
 protected:
  static WorkUse doing(InitialFit fit, Learning learning) {
    return {.fit = fit,
            .learning = learning,
            .statistics_tokens = 8 * kTokens,
            .validation_tokens = kRows * kTokens,
            .report_tokens = 2 * kTokens,
            .steps = learning == Learning::nothing ? 0 : 3,
            .batch_tokens = kRows * kTokens,
            .validations = 4,
            .held_tokens = 12 * kTokens};
  }

  std::vector<StageTime> stages(const WorkUse& use) const {
    return expected_stages(source_->config(), plan_, use, kPace);
  }
  double seconds(const WorkUse& use) const { return seconds_at(use, kPace); }
  double seconds_at(const WorkUse& use, const Pace& pace) const {
    return Forecast(expected_stages(source_->config(), plan_, use, pace)).seconds();
  }

  // As calibrate() reports them, each once; statistics are gathered on the way of the fits.
  std::vector<std::string> reported(const WorkUse& use) const {
    const CalibrationData data = {random_rows(8, kTokens + 1, 512, 1),
                                  random_rows(kRows, kTokens + 1, 512, 50),
                                  random_rows(2, kTokens + 1, 512, 90)};
    CalibrationOptions options;
    options.methods = fits(use.fit, Rounding::gpu, use.learning);
    DwqOptions training;
    training.train.steps = use.steps;
    training.train.batch_size = kRows;
    for (const Method& m : training_methods(use.learning, training)) options.methods.push_back(m);
    std::vector<std::string> names;
    RunHooks hooks;
    hooks.progress = [&](const StageProgress& p) {
      const bool is_new = std::find(names.begin(), names.end(), p.stage) == names.end();
      if (is_new && p.stage != "input statistics") names.push_back(p.stage);
    };
    Tape tape(Device::cpu());
    calibrate(*source_, plan_, data, options, tape, hooks);
    return names;
  }

  static constexpr Pace kPace{
      .layers = 1e-5, .head = 1e-6, .product = 1e11, .load = 0.0, .fit = 0.0, .sampled = 1e-4};
  std::unique_ptr<ModelSource> source_ = open_model("tests/data/stories260k");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
};

TEST_F(WorkTest, NamesTheStagesAsTheyComeAndInTheirOrder) {
  for (const InitialFit fit : {InitialFit::rounding, InitialFit::least_squares, InitialFit::gptq}) {
    for (const Learning learning : {Learning::nothing, Learning::scales, Learning::blocks, Learning::codes}) {
      const WorkUse use = doing(fit, learning);
      std::vector<std::string> names;
      for (const StageTime& s : stages(use)) {
        names.push_back(s.stage);
        EXPECT_GT(s.seconds, 0.0) << s.stage;
      }
      EXPECT_EQ(names, reported(use)) << static_cast<int>(fit) << " " << static_cast<int>(learning);
    }
  }
}

TEST_F(WorkTest, GrowsWithTheWork) {
  const WorkUse use = doing(InitialFit::gptq, Learning::codes);
  for (std::int64_t WorkUse::*more : {&WorkUse::steps, &WorkUse::batch_tokens, &WorkUse::validations,
                                      &WorkUse::statistics_tokens, &WorkUse::report_tokens}) {
    WorkUse larger = use;
    larger.*more *= 2;
    EXPECT_LT(seconds(use), seconds(larger));
  }
  WorkUse other = use;
  other.checkpoint_blocks = true;
  EXPECT_LT(seconds(use), seconds(other));
  EXPECT_LT(
      seconds(use),
      seconds_at(use,
                 {.layers = 1e-5, .head = 1e-6, .product = 1e11, .load = 0.0, .fit = 1.0, .sampled = 1e-4}));
  // Read once for the statistics, in each step, and for the rows that are measured and judge.
  const Pace reading{.layers = 1e-5, .head = 1e-6, .product = 1e11, .load = 1.0, .fit = 0.0, .sampled = 1e-4};
  EXPECT_DOUBLE_EQ(seconds(use), seconds_at(use, reading));
  other = use;
  other.stream_teacher = true;
  EXPECT_NEAR(seconds_at(other, reading), seconds(use) + 7.0, 1e-6);
  other = use;
  other.sampled_tokens = 1000;
  EXPECT_NEAR(seconds(other), seconds(use) + 0.1, 1e-6);
  EXPECT_EQ(stages(other).front().stage, "sampling");
  EXPECT_LT(seconds(doing(InitialFit::rounding, Learning::codes)), seconds(use));
  EXPECT_LT(stages(use)[0].seconds,
            stages(doing(InitialFit::gptq, Learning::scales))[0].seconds);  // which follow
  EXPECT_LT(seconds(doing(InitialFit::gptq, Learning::nothing)), seconds(use));
}

// Each module in each of three formats; the walk and the fits besides.
TEST_F(WorkTest, ChoosingBitsMeasuresEveryModule) {
  WorkUse use = doing(InitialFit::gptq, Learning::nothing);
  const double without = seconds(use);
  use.measured_tokens = 8 * kTokens;
  use.formats = 3;
  const std::vector<StageTime> all = stages(use);
  EXPECT_EQ(all[0].stage, "measuring modules");
  EXPECT_EQ(all[1].stage, "measuring swaps");
  EXPECT_GT(all[0].seconds,
            3.0 * static_cast<double>(plan_.modules.size() * 8 * kTokens) * 0.5 * kPace.layers);
  EXPECT_GT(Forecast(all).seconds(), without);
}

// A twentieth of the rest, but 128 tokens or more, and no more than their logits have room.
TEST_F(WorkTest, PartsAreMeasuredOnWhatATwentiethOfTheWorkAllows) {
  WorkUse use = doing(InitialFit::gptq, Learning::codes);
  const auto tokens = [&] { return part_tokens_of(source_->config(), plan_, use, Device::cpu()); };
  EXPECT_EQ(tokens(), 128);
  use.steps = 20000;
  const std::int64_t some = tokens();
  EXPECT_GT(some, 128);
  use.steps = 40000;
  EXPECT_NEAR(static_cast<double>(tokens()), 2.0 * static_cast<double>(some),
              0.1 * static_cast<double>(some));
  const double without = seconds(use);
  use.part_tokens = tokens();
  EXPECT_EQ(tokens(), use.part_tokens);
  const std::vector<StageTime> all = stages(use);
  EXPECT_EQ(all.back().stage, "measuring parts");
  EXPECT_NEAR(Forecast(all).seconds(), without + all.back().seconds, 1e-9 * without);
  EXPECT_LT(all.back().seconds, 0.2 * without);
  use.steps = std::int64_t{1} << 40;
  EXPECT_EQ(tokens(), (std::int64_t{1} << 26) / source_->config().vocab_size);
}

TEST_F(WorkTest, MeasuresAModelThatIsLoadedOrRead) {
  Tape tape(Device::cpu());
  for (const bool streamed : {false, true}) {
    const Teacher teacher(*source_, DType::f32, streamed, tape);
    const std::vector<TokenRow> rows = random_rows(2, 17, 512, 1);
    EXPECT_GT(measure_pace(teacher.model(), tape, rows, 4).sampled,
              0.0);  // the model keeps positions of these rows
    const std::int64_t live = tape.device().memory_stats().live_bytes;
    const Pace pace = measure_pace(teacher.model(), tape, rows);
    EXPECT_GT(pace.layers, 0.0);
    EXPECT_GT(pace.head, 0.0);
    EXPECT_GT(pace.product, 0.0);
    EXPECT_EQ(pace.load > 0.0, streamed);
    EXPECT_EQ(pace.sampled, 0.0);
    EXPECT_EQ(live, tape.device().memory_stats().live_bytes);
  }
}

TEST_F(WorkTest, TrainingWithoutATeacherHasTwoStages) {
  const std::vector<StageTime> all = expected_training(doing(InitialFit::rounding, Learning::codes), kPace);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].stage, "training");
  EXPECT_EQ(all[1].stage, "evaluating result");
  EXPECT_GT(all[0].seconds, all[1].seconds);
}

}  // namespace
}  // namespace mixtape
