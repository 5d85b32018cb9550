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
    training.train.steps = 3;
    training.train.batch_size = kRows;
    training.train.checkpoint_blocks = use.checkpoint_blocks;
    for (const Method& m : training_methods(use.learning, training)) options.methods.push_back(m);
    Tape tape(Device::cpu());
    tape.device().reset_peak();
    const auto before = static_cast<double>(tape.device().memory_stats().live_bytes);
    calibrate(*source_, plan_, data, options, tape);
    return static_cast<double>(tape.device().memory_stats().peak_bytes) - before;
  }

  static MemoryUse doing(bool fits, Learning learning, bool checkpoint = false, bool streamed = false) {
    return {.batch_tokens = kRows * kTokens,
            .fits = fits ? 3u : 1u,
            .statistics = fits ? Statistics::second_moments : Statistics::none,
            .statistics_tokens = kTrainingRows * kTokens,
            .learning = learning,
            .held_tokens = (kTrainingRows + 4) * kTokens,
            .checkpoint_blocks = checkpoint,
            .stream_teacher = streamed};
  }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/stories260k");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
};

TEST_F(MemoryTest, GrowsWithWhatIsKept) {
  using enum Learning;
  MemoryUse more = doing(false, scales);
  more.batch_tokens *= 2;
  EXPECT_LT(predicted(doing(false, scales)), predicted(more));
  EXPECT_LT(predicted(doing(false, scales, true)), predicted(doing(false, scales)));
  EXPECT_LT(predicted(doing(true, nothing)), predicted(doing(true, scales)));
  EXPECT_LT(predicted(doing(true, scales)), predicted(doing(true, codes)));
  EXPECT_LT(predicted(doing(true, scales, false, true)), predicted(doing(true, scales)));
  more = doing(false, blocks);
  more.held_tokens = 100000;
  EXPECT_LT(predicted(doing(false, blocks)), predicted(more));
  more = doing(false, nothing);
  more.sampled_rows = 100, more.sampled_length = 1000;
  EXPECT_LT(predicted(doing(false, nothing)), predicted(more));
}

// 22 bytes in bf16, and one matrix in f32; layer by layer for the weights of one.
TEST_F(MemoryTest, CodesThatLearnTakeTheirShareForEachWeight) {
  using enum Learning;
  double weights = 0.0;
  for (const PlannedModule& m : plan_.modules) {
    if (m.stored && m.kind != TensorKind::embedding) weights += static_cast<double>(m.shape.numel());
  }
  const auto bytes = [&](Learning learning) {
    MemoryUse use = doing(false, learning);
    use.batch_tokens = use.held_tokens = 1;
    return predicted_peak_bytes(source_->config(), plan_, DType::bf16, use, Device::cpu());
  };
  EXPECT_GE(bytes(codes) - bytes(scales), 22.0 * weights);
  EXPECT_LE(bytes(codes) - bytes(scales), 24.0 * weights);
  EXPECT_LT(bytes(blocks) - bytes(scales), 24.0 * weights / 4.0);
}

TEST_F(MemoryTest, ExpertsHaveProductsOfTheirOwnBesideTheBuffers) {
  using enum Learning;
  const auto bytes = [](const char* model, Learning learning, std::int64_t tokens, int threads = 2) {
    const auto source = open_model(model);
    return predicted_host_bytes(source->config(), 1000, {.batch_tokens = tokens, .learning = learning},
                                threads);
  };
  EXPECT_EQ(bytes("tests/data/stories260k", nothing, 512), bytes("tests/data/stories260k", scales, 4096));
  EXPECT_LT(bytes("tests/data/stories260k", nothing, 512), bytes("models/tiny-moe", nothing, 512));
  EXPECT_LT(bytes("models/tiny-moe", nothing, 512), bytes("models/tiny-moe", scales, 512));
  EXPECT_LT(bytes("models/tiny-moe", scales, 512), bytes("models/tiny-moe", scales, 4096));
  EXPECT_LT(bytes("models/tiny-moe", scales, 512), bytes("models/tiny-moe", scales, 512, 16));
}

TEST_F(MemoryTest, IsNearWhatARunTakes) {
  using enum Learning;
  for (const MemoryUse& run :
       {doing(false, scales), doing(false, scales, true), doing(true, nothing), doing(true, scales),
        doing(true, codes), doing(true, codes, true), doing(true, blocks), doing(false, blocks, true),
        doing(true, blocks, false, true), doing(true, scales, true, true)}) {
    const double bytes = taken(run), expected = predicted(run);
    const std::string what = str("fits ", run.fits, " learning ", static_cast<int>(run.learning),
                                 " checkpoint ", run.checkpoint_blocks, " streamed ", run.stream_teacher);
    EXPECT_GT(expected, 0.7 * bytes) << what << ": " << bytes;
    EXPECT_LT(expected, 1.5 * bytes) << what << ": " << bytes;
  }
}

}  // namespace
}  // namespace mixtape
