// Training steps that are recorded and replayed, or whose teacher is streamed, give the bits of plain ones.
#include "mixtape/calib/trainer.h"

#include "mixtape/calib/student.h"
#include "mixtape/core/random.h"
#include "mixtape/ops/take_along_axis/take_along_axis.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// The signal inside, never recorded.
class Plain final : public LossSignal {
 public:
  explicit Plain(LossSignal& inner) : inner_(inner) {}
  void load(const Batch& batch, std::span<const std::size_t> rows) override { inner_.load(batch, rows); }
  void start() override { inner_.start(); }
  bool is_recordable() const override { return false; }
  Var loss(const Var& logits, std::int64_t begin, std::int64_t end) override {
    return inner_.loss(logits, begin, end);
  }
  Buffer loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                           std::int64_t begin, std::int64_t end, const Buffer& dlogits) override {
    return inner_.loss_and_gradient(encoder, logits, dloss, begin, end, dlogits);
  }

 private:
  LossSignal& inner_;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> scales;
  std::map<std::int64_t, std::vector<std::int64_t>> expert_tokens;
};

class TrainerTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<TokenRow> rows(std::size_t count, std::size_t length) const {
    std::vector<TokenRow> all(count);
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t i = 0; i < length; ++i) {
        all[r].push_back(static_cast<std::uint32_t>(
            uniform_index(r + 5, i, static_cast<std::uint64_t>(config_.vocab_size))));
      }
    }
    return all;
  }

  // Four steps of one row each: the first is plain, the second recorded, the third replayed, and the last
  // one's row is shorter.
  Outcome run(bool streamed, bool recorded) {
    Tape tape(device_);
    const QuantizationPlan plan = plan_quantization(*source_, {.params = {3, 32}});
    const Parameters teacher = load_parameters(*source_, config_, DType::f32, device_);
    const Parameters floats = load_float_tensors(*source_, config_, plan, DType::f32, device_);
    const Parameters student =
        quantize_parameters(*source_, streamed ? floats : teacher, plan, Rounding::gpu, device_);
    TapeWeights weights =
        streamed ? TapeWeights(tape, *source_, DType::f32) : TapeWeights(tape, teacher, Trainable::nothing);
    const CausalLm model(config_, weights, DType::f32);
    LiveTeacher live(model, tape, {.temperature = 2.0f});
    Plain plain(live);
    TrainOptions options;
    options.steps = 4;
    options.batch_size = 1;
    options.validate_every = 4;
    options.keep_best = false;
    std::vector<TokenRow> train_rows = rows(4, 4);
    train_rows[3].resize(3);
    const BatchOrder in_order = [](std::int64_t) {
      return std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {3}};
    };
    const TrainReport report =
        train(config_, student, DType::f32, recorded ? static_cast<LossSignal&>(live) : plain, tape,
              train_rows, rows(1, 3), in_order, options);
    Outcome outcome{report.losses, {}, report.expert_tokens};
    for (const auto& [path, q] : student.quantized) outcome.scales.push_back(q.scales.to_vector<float>());
    return outcome;
  }

  Device device_ = Device::open(GetParam());
  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/qwen3_moe");
  ModelConfig config_ = source_->config();
};

TEST_P(TrainerTest, RecordedStepsGiveTheBitsOfPlainOnes) {
  const Outcome plain = run(false, false), recorded = run(false, true);
  EXPECT_EQ(plain.losses, recorded.losses);
  EXPECT_EQ(plain.scales, recorded.scales);
  EXPECT_EQ(plain.expert_tokens, recorded.expert_tokens);
  EXPECT_NE(plain.losses[0], plain.losses[1]);
}

TEST_P(TrainerTest, StreamedTeacherGivesTheBitsOfALoadedOne) {
  const Outcome loaded = run(false, true), streamed = run(true, true);
  EXPECT_EQ(loaded.losses, streamed.losses);
  EXPECT_EQ(loaded.scales, streamed.scales);
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

INSTANTIATE_TEST_SUITE_P(Devices, TrainerTest, ::testing::ValuesIn(testing::test_device_names()));

}  // namespace
}  // namespace mixtape
