#include "mixtape/calib/memory.h"

#include <gtest/gtest.h>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"

namespace mixtape {
namespace {

constexpr std::int64_t kRows = 4, kTokens = 128, kTrainingRows = 8;

class MemoryTest : public ::testing::Test {
 protected:
  double predicted(const MemoryUse& use) const {
    return predicted_peak_bytes(source_->config(), plan_, DType::f32, use, Device::cpu());
  }

  // Buffers alone: neither the program nor the mapped file.
  double taken(const MemoryUse& use) const {
    const CalibrationData data = {random_rows(kTrainingRows, kTokens + 1, 512, 1),
                                  random_rows(4, kTokens + 1, 512, 50), random_rows(1, kTokens + 1, 512, 90)};
    CalibrationOptions options;
    options.evaluation_batch = kRows;
    options.stream_teacher = use.stream_teacher;
    options.methods = fits(use.fits == 3 ? InitialFit::gptq : InitialFit::rounding);
    DwqOptions training;
    training.trains_codes = use.trains_codes;
    training.train.steps = 3;
    training.train.batch_size = kRows;
    training.train.checkpoint_blocks = use.checkpoint_blocks;
    if (use.trains) options.methods.push_back(dwq(training));
    Tape tape(Device::cpu());
    tape.device().reset_peak();
    const auto before = static_cast<double>(tape.device().memory_stats().live_bytes);
    calibrate(*source_, plan_, data, options, tape);
    return static_cast<double>(tape.device().memory_stats().peak_bytes) - before;
  }

  static MemoryUse doing(bool fits, bool trains, bool codes = false, bool checkpoint = false,
                         bool streamed = false) {
    return {.batch_tokens = kRows * kTokens,
            .fits = fits ? 3u : 1u,
            .statistics = fits ? Statistics::second_moments : Statistics::none,
            .statistics_tokens = kTrainingRows * kTokens,
            .trains = trains,
            .trains_codes = codes,
            .checkpoint_blocks = checkpoint,
            .stream_teacher = streamed};
  }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/stories260k");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
};

TEST_F(MemoryTest, GrowsWithWhatIsKept) {
  MemoryUse more = doing(false, true);
  more.batch_tokens *= 2;
  EXPECT_LT(predicted(doing(false, true)), predicted(more));
  EXPECT_LT(predicted(doing(false, true, false, true)), predicted(doing(false, true)));
  EXPECT_LT(predicted(doing(true, false)), predicted(doing(true, true)));
  EXPECT_LT(predicted(doing(true, true)), predicted(doing(true, true, true)));
  EXPECT_LT(predicted(doing(true, true, false, false, true)), predicted(doing(true, true)));
}

TEST_F(MemoryTest, IsNearWhatARunTakes) {
  for (const MemoryUse& run :
       {doing(false, true), doing(false, true, false, true), doing(true, false), doing(true, true),
        doing(true, true, true), doing(true, true, true, true), doing(true, true, false, true, true)}) {
    const double bytes = taken(run), expected = predicted(run);
    const std::string what = str("fits ", run.fits, " trains ", run.trains, " codes ", run.trains_codes,
                                 " checkpoint ", run.checkpoint_blocks, " streamed ", run.stream_teacher);
    EXPECT_GT(expected, 0.7 * bytes) << what << ": " << bytes;
    EXPECT_LT(expected, 1.5 * bytes) << what << ": " << bytes;
  }
}

}  // namespace
}  // namespace mixtape
