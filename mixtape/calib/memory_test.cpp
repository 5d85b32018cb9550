#include "mixtape/calib/memory.h"

#include <gtest/gtest.h>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"

namespace mixtape {
namespace {

class MemoryTest : public ::testing::Test {
 protected:
  double predicted(std::int64_t tokens, bool checkpoint = false) const {
    return predicted_peak_bytes(source_->config(), plan_, DType::f32, tokens, checkpoint, Device::cpu());
  }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/stories260k");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
};

TEST_F(MemoryTest, GrowsWithWhatIsKept) {
  EXPECT_LT(predicted(512), predicted(1024));
  EXPECT_LT(predicted(1024, true), predicted(1024));
}

// Buffers alone: neither the program nor the mapped file.
TEST_F(MemoryTest, IsNearWhatARunTakes) {
  constexpr std::int64_t kRows = 4, kTokens = 128;
  const CalibrationData data = {random_rows(8, kTokens + 1, 512, 1), random_rows(4, kTokens + 1, 512, 50),
                                random_rows(1, kTokens + 1, 512, 90)};
  DwqOptions options;
  options.train.steps = 3;
  options.train.batch_size = kRows;
  for (const bool checkpoint : {false, true}) {
    options.train.checkpoint_blocks = checkpoint;
    Tape tape(Device::cpu());
    tape.device().reset_peak();
    const std::int64_t before = static_cast<std::int64_t>(tape.device().memory_stats().live_bytes);
    calibrate(*source_, plan_, data, {.methods = {plain_rounding(), dwq(options)}, .evaluation_batch = kRows},
              tape);
    const auto taken =
        static_cast<double>(static_cast<std::int64_t>(tape.device().memory_stats().peak_bytes) - before);
    EXPECT_GT(predicted(kRows * kTokens, checkpoint), 0.7 * taken) << checkpoint;
    EXPECT_LT(predicted(kRows * kTokens, checkpoint), 1.5 * taken) << checkpoint;
  }
}

}  // namespace
}  // namespace mixtape
