// Devices that share the rows of each step take the steps that one would take alone.
#include <gtest/gtest.h>

#include <array>

#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/step.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/runtime/device_group.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using Rows = std::vector<TokenRow>;

std::vector<Device> processors(std::size_t n) { return std::vector<Device>(n, Device::cpu()); }

std::vector<float> scales_of(const Student& student) {
  std::vector<float> all;
  for (const auto& [path, q] : student.parameters.quantized) {
    const std::vector<float> part = q.scales.to_vector<float>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Rows of many lengths: a mean of the devices' means would be another number.
Rows uneven_rows() {
  Rows rows = random_rows(8, 20, 263, 3);
  const std::size_t lengths[] = {20, 5, 3, 12, 9, 9, 2, 17};
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r].resize(lengths[r]);
  return rows;
}

// What every member of a run has of its own.
struct OwnModel {
  explicit OwnModel(const Device& device, const std::string& model = "qwen3")
      : source(open_model("tests/data/parity/" + model)),
        tape(device),
        teacher(*source, DType::f32, false, tape),
        student(fit_student(teacher, plan_quantization(*source, {.params = {3, 32}}), plain_rounding())),
        signal(teacher.model(), tape, {.temperature = 2.0f}) {}

  std::unique_ptr<ModelSource> source;
  Tape tape;
  Teacher teacher;
  Student student;
  LiveTeacher signal;
};

struct Outcome {
  TrainReport report;
  std::vector<float> scales;
};

class SharedRun : public ::testing::Test {
 protected:
  // Four steps on batches of these rows, in order.
  TrainOptions options_ = [] {
    TrainOptions o;
    o.steps = 4;
    o.batch_size = 2;
    o.clip_norm = 0.01;
    o.keep_best = false;
    return o;
  }();
  Rows rows_ = uneven_rows();

  TrainRows rows() const {
    const auto batch = static_cast<std::size_t>(options_.batch_size);
    return {rows_, std::span(rows_).first(3), [n = rows_.size(), batch](std::int64_t) {
              std::vector<std::vector<std::size_t>> batches;
              for (std::size_t r = 0; r < n; ++r) {
                if (r % batch == 0) batches.emplace_back();
                batches.back().push_back(r);
              }
              return batches;
            }};
  }

  Outcome run(OwnModel& own, Communicator& communicator, const RunHooks& hooks = {}) const {
    Outcome outcome;
    outcome.report = train(own.student.config, own.student.parameters, DType::f32, own.signal, own.tape,
                           rows(), options_, {.run = hooks, .communicator = &communicator});
    outcome.scales = scales_of(own.student);
    return outcome;
  }
  Outcome alone(const Device& device = Device::cpu(), const std::string& model = "qwen3") const {
    OwnModel own(device, model);
    SingleProcess one;
    return run(own, one);
  }
  std::vector<Outcome> shared(const std::vector<Device>& devices, const std::string& model = "qwen3",
                              const RunHooks& hooks_of_last = {}) const {
    DeviceGroup group(devices);
    std::vector<Outcome> outcomes(devices.size());
    group.run([&](Communicator& c) {
      const auto rank = static_cast<std::size_t>(c.rank());
      OwnModel own(devices[rank], model);
      outcomes[rank] = run(own, c, rank + 1 == devices.size() ? hooks_of_last : RunHooks());
    });
    return outcomes;
  }

  static void expect_equal(const Outcome& a, const Outcome& b) {
    EXPECT_EQ(a.report.losses, b.report.losses);
    EXPECT_EQ(a.report.tokens_seen, b.report.tokens_seen);
    EXPECT_EQ(a.report.expert_tokens, b.report.expert_tokens);
    EXPECT_EQ(a.report.validation.back().loss, b.report.validation.back().loss);
    EXPECT_EQ(a.scales, b.scales);
  }
  // Up to the rounding of sums in another order, which four steps of Adam make larger.
  static void expect_near(const Outcome& a, const Outcome& b) {
    EXPECT_EQ(a.report.tokens_seen, b.report.tokens_seen);
    ASSERT_EQ(a.report.losses.size(), b.report.losses.size());
    for (std::size_t i = 0; i < a.report.losses.size(); ++i)
      EXPECT_NEAR(a.report.losses[i], b.report.losses[i], 1e-4 * b.report.losses[i]) << i;
    EXPECT_NEAR(a.report.validation.back().loss, b.report.validation.back().loss, 1e-4);
    EXPECT_LE(testing::relative_distance(a.scales, b.scales), 1e-4);
  }
};

TEST_F(SharedRun, StepsAsOneDeviceDoes) {
  const std::vector<Outcome> two = shared(processors(2));
  expect_equal(two[0], two[1]);
  expect_near(two[0], alone());
  options_.batch_size = 4;
  const std::vector<Outcome> three = shared(processors(3));  // 1, 1 and 2 rows
  expect_equal(three[0], three[2]);
  expect_near(three[0], alone());
}

TEST_F(SharedRun, GivesTheSameBitsOnEveryRun) {
  const std::vector<Outcome> first = shared(processors(2));
  for (int i = 0; i < 3; ++i) expect_equal(shared(processors(2))[0], first[0]);
}

TEST_F(SharedRun, CountsTheTokensOfExpertsOnce) {
  rows_ = random_rows(8, 9, 263, 3);  // no padding, which is counted too
  const std::vector<Outcome> two = shared(processors(2), "qwen3_moe");
  EXPECT_EQ(two[0].report.expert_tokens, alone(Device::cpu(), "qwen3_moe").report.expert_tokens);
  EXPECT_FALSE(two[0].report.expert_tokens.empty());
  expect_equal(two[0], two[1]);
}

// The first call of a step gives the positions of the whole batch instead of those of a part.
class PartOf final : public Communicator {
 public:
  std::int64_t size() const override { return 1; }
  std::int64_t rank() const override { return 0; }
  void all_reduce_sum(CommandEncoder&, const std::vector<Buffer>&) override {}
  void all_reduce_sum(std::span<double> values) override {
    if (asks_positions_) values[0] = positions;
    asks_positions_ = !asks_positions_;
  }
  double positions = 0.0;

 private:
  bool asks_positions_ = true;
};

// The steps of two devices, made by one after the other.
class Halves final : public Objective {
 public:
  Halves(OwnModel& own, const Rows& rows)
      : own_(own),
        rows_(rows),
        weights_(own.tape, own.student.parameters, Trainable::quantization),
        model_(own.student.config, weights_, DType::f32),
        step_(model_, own.signal, own.tape, part_, forward_) {}

  const std::vector<NamedVar>& leaves() const { return weights_.trainable(); }

  BatchLoss train(std::span<const std::size_t> rows, const Optimizer& optimizer) override {
    part_.positions = static_cast<double>(count_positions(rows_of(rows)));
    const auto [first, gradients] = half(rows.first(rows.size() / 2), optimizer);
    const auto [second, others] = half(rows.subspan(rows.size() / 2), optimizer);
    optimizer.clear_gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::vector<float> sum = gradients[i];
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += others[i][j];
      const Var& leaf = leaves()[i].var;
      own_.tape.backward(leaf, Buffer::from(leaf.value().device(), leaf.shape(), sum));
    }
    return {first + second, part_.positions};
  }
  BatchLoss evaluate(std::span<const std::size_t>) override { return {1.0, 1.0}; }

 private:
  Rows rows_of(std::span<const std::size_t> rows) const {
    Rows chosen;
    for (const std::size_t r : rows) chosen.push_back(rows_[r]);
    return chosen;
  }
  std::pair<double, std::vector<std::vector<float>>> half(std::span<const std::size_t> rows,
                                                          const Optimizer& optimizer) {
    optimizer.clear_gradients();
    const double loss = step_.train(make_batch(own_.tape.device(), rows_of(rows)), rows, optimizer).loss;
    std::vector<std::vector<float>> gradients;
    for (const NamedVar& leaf : leaves()) gradients.push_back(leaf.var.grad().to_vector<float>());
    return {loss, gradients};
  }

  OwnModel& own_;
  const Rows& rows_;
  TapeWeights weights_;
  CausalLm model_;
  PartOf part_;
  ForwardOptions forward_;
  Step step_;
};

// To the last bit, where the parts are the same.
TEST_F(SharedRun, AddsTheGradientsOfTheParts) {
  options_.batch_size = 4;
  const Outcome two = shared(processors(2))[0];
  OwnModel own(Device::cpu());
  Halves halves(own, rows_);
  TrainState state{make_optimizer(halves.leaves(), own.student.parameters, options_)};
  TrainLoop(halves, state, {rows_.size(), 1, rows().order}, options_, {}).run();
  EXPECT_EQ(state.report.losses, two.report.losses);
  EXPECT_EQ(scales_of(own.student), two.scales);
}

// Recorded steps among them: what a replay left must not count where a member's share has no position.
TEST_F(SharedRun, AShareMayBeEmpty) {
  rows_ = random_rows(10, 4, 263, 5);
  rows_[7].resize(1);
  options_.steps = 5;
  const std::vector<Outcome> simulated = shared({Device::open("sim"), Device::open("sim:1")});
  expect_equal(simulated[0], simulated[1]);
  expect_near(simulated[0], alone(Device::open("sim")));
  const std::vector<Outcome> two = shared(processors(2));
  expect_equal(two[0], two[1]);
  expect_near(two[0], alone());
}

TEST_F(SharedRun, OneMemberStopsAll) {
  std::int64_t done = 0;
  const RunHooks stop = {.progress = [&](const StageProgress& p) { done = p.done; },
                         .should_stop = [&] { return done == 2; }};
  for (const Outcome& o : shared(processors(2), "qwen3", stop)) {
    EXPECT_TRUE(o.report.stopped_early);
    EXPECT_EQ(o.report.steps_done, 2);
  }
}

TEST_F(SharedRun, AMemberThatFailsEndsAll) {
  const RunHooks failing = {.progress =
                                [&](const StageProgress& p) {
                                  if (p.done == 2) fail(ErrorCode::device, "the card was lost");
                                },
                            .should_stop = {}};
  MIXTAPE_EXPECT_ERROR(shared(processors(3), "qwen3", failing), ErrorCode::invalid_argument,
                       "a batch has 2 rows, expected one or more for each of the 3 devices");
  MIXTAPE_EXPECT_ERROR(shared(processors(2), "qwen3", failing), ErrorCode::device, "the card was lost");
}

TEST_F(SharedRun, FindsParametersThatDiffer) {
  DeviceGroup group(processors(2));
  const auto begin_apart = [&](Communicator& c) {
    OwnModel own(Device::cpu());
    const Buffer& scales = own.student.parameters.quantized.begin()->second.scales;
    std::vector<float> values = scales.to_vector<float>();
    if (c.rank() == 1) values.back() = std::nextafter(values.back(), 2.0f);
    scales.copy_from(std::span<const float>(values));
    run(own, c);
  };
  MIXTAPE_EXPECT_ERROR(group.run(begin_apart), ErrorCode::device,
                       "after step 0 the parameters on cpu are not those of the other devices");
}

class SharedCalibration : public ::testing::Test {
 protected:
  Calibration run(const std::vector<Method>& improve, DeviceGroup* devices) {
    std::vector<Method> methods = {plain_rounding()};
    methods.insert(methods.end(), improve.begin(), improve.end());
    Tape tape(Device::cpu());
    return calibrate(*source_, plan_, data_, {.methods = methods, .devices = devices, .compute = DType::f32},
                     tape);
  }
  Calibration alone(const std::vector<Method>& improve) { return run(improve, nullptr); }
  Calibration shared(const std::vector<Method>& improve) {
    DeviceGroup group(processors(2));
    return run(improve, &group);
  }
  static TrainOptions three_steps() {
    TrainOptions o;
    o.steps = 3;
    o.batch_size = 4;
    return o;
  }
  // KL of what was trained, before and after.
  static void expect_near(const Calibration& a, const Calibration& b) {
    EXPECT_EQ(a.report.initial.kl->mean, b.report.initial.kl->mean);
    EXPECT_NEAR(a.report.result->kl->mean, b.report.result->kl->mean, 0.01 * b.report.result->kl->mean);
    EXPECT_LT(a.report.result->kl->mean, 0.99 * a.report.initial.kl->mean);
    EXPECT_LE(testing::relative_distance(scales_of(a.student), scales_of(b.student)), 1e-3);
  }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/qwen3");
  QuantizationPlan plan_ = plan_quantization(*source_, {.params = {3, 32}});
  Rows rows_ = uneven_rows();
  CalibrationData data_{rows_, rows_, rows_};
};

TEST_F(SharedCalibration, ScalesLearn) {
  DwqOptions o;
  o.train = three_steps();
  const Calibration two = shared({dwq(o)});
  expect_near(two, alone({dwq(o)}));
  EXPECT_EQ(scales_of(shared({dwq(o)}).student), scales_of(two.student));
}

TEST_F(SharedCalibration, CodesAndFloatsLearn) {
  DwqOptions codes;
  codes.train = three_steps();
  codes.trains_codes = true;
  DwqOptions floats;
  floats.train = three_steps();
  floats.train.trainable = Trainable::everything;
  expect_near(shared({dwq(codes), dwq(floats)}), alone({dwq(codes), dwq(floats)}));
}

TEST_F(SharedCalibration, LayersLearnThenScales) {
  BlockCodesOptions layers;
  layers.train = three_steps();
  DwqOptions scales;
  scales.train = three_steps();
  expect_near(shared({block_codes(layers), dwq(scales)}), alone({block_codes(layers), dwq(scales)}));
}

// The first device writes the teacher's targets, and all read them.
TEST_F(SharedCalibration, TargetsAreWrittenOnce) {
  const testing::TempDirectory temp;
  DwqOptions o;
  o.train = three_steps();
  o.loss.top_k = 16;
  o.target_dir = temp / "targets";
  rows_ = random_rows(8, 12, 263, 3);
  data_ = {rows_, rows_, rows_};
  const Calibration two = shared({dwq(o)});
  EXPECT_EQ(scales_of(shared({dwq(o)}).student), scales_of(two.student));  // from those that are there
  o.target_dir = temp / "others";
  expect_near(two, alone({dwq(o)}));
}

TEST_F(SharedCalibration, TheFirstDeviceIsTheTeachers) {
  DeviceGroup group({Device::open("sim"), Device::cpu()});
  MIXTAPE_EXPECT_ERROR(run({}, &group), ErrorCode::invalid_argument,
                       "devices: the first one is sim, expected the teacher's, cpu");
}

}  // namespace
}  // namespace mixtape
