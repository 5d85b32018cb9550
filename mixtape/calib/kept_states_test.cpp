// Runs that end in the middle of their work and are gone on with: the bits are those of a run that didn't.
#include "mixtape/calib/kept_states.h"

#include <gtest/gtest.h>

#include <atomic>

#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/checked_plan.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/following.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/reference_recipe.h"
#include "mixtape/calib/self_text.h"
#include "mixtape/quant/weight_codec.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

struct Killed {};

// A folder in which every state is kept as often as it may be, and whose run dies when it has asked `life` times.
class Folder final : public KeptStates {
 public:
  static constexpr int kForever = 1 << 30;

  RunHooks hooks(int life = kForever) {
    life_ = life;
    asked_ = 0;
    RunHooks hooks;
    hooks.states = this;
    return hooks;
  }
  int asked() const { return asked_; }
  int found() const { return found_; }

  bool is_due() override {
    if (++asked_ > life_) throw Killed();
    return true;
  }
  bool keep(const std::string& name, const Save& save) override {
    save(temp_ / name);
    return true;
  }
  std::optional<SafetensorsFile> find(const std::string& name) override {
    if (!std::filesystem::exists(temp_ / name)) return std::nullopt;
    ++found_;
    return SafetensorsFile::open(temp_ / name);
  }
  void forget(const std::string& begin) override {
    for (const std::filesystem::path& file : files()) {
      if (file.filename().string().starts_with(begin)) std::filesystem::remove(file);
    }
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(temp_.path())) all.push_back(entry.path());
    return all;
  }

 private:
  testing::TempDirectory temp_;
  int life_ = kForever, asked_ = 0;
  std::atomic<int> found_ = 0;  // by all devices
};

// Every value of a student: codes, scales, biases.
std::vector<std::uint32_t> bits_of(const Student& student) {
  std::vector<std::uint32_t> all;
  for (const auto& [path, q] : student.parameters.quantized) {
    for (const Buffer& b : codec_of(q).buffers(q)) {
      std::vector<std::uint32_t> part(static_cast<std::size_t>(b.numel()));
      b.read_bytes(part.data());
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

class KeptStatesTest : public ::testing::TestWithParam<std::string> {
 protected:
  static TrainOptions few_steps() {
    TrainOptions o;
    o.steps = 4;
    o.batch_size = 2;
    o.validate_every = 2;
    return o;
  }

  static Method training(bool codes = false) {
    DwqOptions o;
    o.train = few_steps();
    o.rate_from_start = o.trains_codes = codes;
    return dwq(o);
  }

  Calibration run(const std::vector<Method>& methods, const RunHooks& hooks, WeightFormat format = {3, 32}) {
    return calibrate(*source_, plan_quantization(*source_, {.params = format}), data_,
                     {.methods = methods, .evaluation_batch = 2, .devices = devices_, .compute = DType::f32},
                     tape_, hooks);
  }

  // Kills a run after each `stride`-th question and goes on with it; on other devices than the CPU once.
  void expect_same(const std::vector<Method>& methods, int stride, WeightFormat format = {3, 32}) {
    const Calibration whole = run(methods, {}, format);
    Folder undisturbed;
    EXPECT_EQ(bits_of(run(methods, undisturbed.hooks(), format).student), bits_of(whole.student));
    const int questions = undisturbed.asked(), first = is_cpu() ? 0 : questions * 3 / 4;
    for (int life = first; life < questions; life += is_cpu() ? stride : questions) {
      Folder folder;
      EXPECT_THROW(run(methods, folder.hooks(life), format), Killed);
      const Calibration resumed = run(methods, folder.hooks(), format);
      EXPECT_EQ(bits_of(resumed.student), bits_of(whole.student)) << "killed at question " << life;
      EXPECT_EQ(resumed.report.training.losses, whole.report.training.losses);
      EXPECT_EQ(resumed.report.training.best_step, whole.report.training.best_step);
      EXPECT_EQ(resumed.report.result->kl->mean, whole.report.result->kl->mean);
      EXPECT_EQ(resumed.report.initial.kl->p99, whole.report.initial.kl->p99);
      ASSERT_EQ(resumed.report.stages.size(), whole.report.stages.size());
      for (std::size_t i = 0; i < whole.report.stages.size(); ++i) {
        const StageReport &a = whole.report.stages[i], &b = resumed.report.stages[i];
        EXPECT_EQ(a.kl->mean, b.kl->mean);
        EXPECT_EQ(a.change ? a.change->value : 0.0, b.change ? b.change->value : 0.0);
        EXPECT_EQ(a.notes, b.notes);
        EXPECT_EQ(a.kept, b.kept);
      }
      EXPECT_TRUE(life == 0 || folder.found() > 0);
    }
  }

  bool is_cpu() const { return GetParam() == "cpu"; }

  std::unique_ptr<ModelSource> source_ = open_model("tests/data/parity/qwen3");
  Tape tape_{Device::open(GetParam())};
  DeviceGroup* devices_ = nullptr;
  std::vector<TokenRow> rows_ = random_rows(6, 17, 263, 1);
  CalibrationData data_{{rows_.begin(), rows_.begin() + 3}, {rows_.begin() + 3, rows_.end()}, rows_};
};

TEST_P(KeptStatesTest, CodesThatLearnTogether) {
  expect_same({plain_rounding(), least_squares(), gptq(), training(true)}, 3);
}

TEST_P(KeptStatesTest, LayersThatLearnOneByOneAndFitsThatFollow) {
  if (GetParam() == "sim") GTEST_SKIP() << "takes a minute there";
  const Method layers = block_codes({.train = few_steps(), .rate_from_start = true});
  expect_same({plain_rounding(), following(least_squares()), following(gptq()), layers, training()}, 5);
}

TEST_P(KeptStatesTest, StepsThatDevicesShare) {
  if (!is_cpu()) GTEST_SKIP() << "of what they find, whatever the device";
  DeviceGroup two({Device::cpu(), Device::cpu()});
  devices_ = &two;
  expect_same({plain_rounding(), block_codes({.train = few_steps()}), training(true)}, 5);
}

TEST_P(KeptStatesTest, BlocksOfGguf) {
  if (!is_cpu()) GTEST_SKIP() << "of the parts that are kept, whatever the device";
  expect_same({plain_rounding(), least_squares(), gptq(), training(true)}, 5, BlockType::q4_0);
}

TEST_P(KeptStatesTest, FloatsThatTrain) {
  if (!is_cpu()) GTEST_SKIP() << "of the parts that are kept, whatever the device";
  data_.validation = data_.train;  // what is learnt shows
  DwqOptions o;
  o.train = few_steps();
  apply_reference_settings(o.train);
  o.train.learning_rate = 1e-3;
  o.train.batch_size = 2;
  const std::vector<Method> methods = {plain_rounding(), dwq(o)};
  const std::string norm = "model.norm.weight";
  const Calibration whole = run(methods, {});
  Folder folder;
  run(methods, folder.hooks());
  const Calibration resumed = run(methods, folder.hooks());  // of whole stages
  EXPECT_EQ(resumed.student.parameters.dense.at(norm).to_vector<float>(),
            whole.student.parameters.dense.at(norm).to_vector<float>());
  EXPECT_TRUE(resumed.student.floats_train);
}

// What a stage was made of is gone when the next one has begun.
TEST_P(KeptStatesTest, AFinishedRunLeavesItsMethodsAndItsResult) {
  Folder folder;
  run({plain_rounding(), least_squares(), training()}, folder.hooks());
  std::vector<std::string> names;
  for (const auto& file : folder.files()) names.push_back(file.filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"evaluating result", "methods"}));
}

// Asked to stop, a run keeps what it has; the run that goes on doesn't do it again.
TEST_P(KeptStatesTest, ARunThatIsStoppedKeepsItsSteps) {
  if (!is_cpu()) GTEST_SKIP() << "of the loop, whatever the device";
  const std::vector<Method> methods = {plain_rounding(), training()};
  const Calibration whole = run(methods, {});
  for (std::int64_t last = 1; last < 4; ++last) {
    Folder folder;
    RunHooks hooks = folder.hooks();
    bool stops = false;
    std::vector<std::int64_t> steps;
    hooks.progress = [&](const StageProgress& p) {
      if (p.stage != "training" || !p.loss) return;
      steps.push_back(p.done);
      stops |= p.done == last;
    };
    hooks.should_stop = [&] { return stops; };
    EXPECT_TRUE(run(methods, hooks).report.stopped_early);
    hooks.should_stop = {};
    const Calibration resumed = run(methods, hooks);
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(bits_of(resumed.student), bits_of(whole.student));
    EXPECT_EQ(resumed.report.training.validation.size(), whole.report.training.validation.size());
  }
}

TEST_P(KeptStatesTest, MeasuredPlans) {
  if (!is_cpu()) GTEST_SKIP() << "of the measuring, whatever the device";
  const Teacher teacher(*source_, DType::f32, false, tape_);
  const QuantizationPlan plan = plan_quantization(*source_, {.params = {4, 32}});
  SensitivityOptions o{.fits = {plain_rounding(), least_squares()}, .references = {{2, 32}, {4, 32}}};
  o.kl_rows = 1;
  const std::int64_t bytes = storage_size(*source_, plan, DType::f32).bytes;
  int reports = 0;  // of modules that are measured
  const auto choose = [&](RunHooks hooks) {
    reports = 0;
    hooks.progress = [&](const StageProgress& p) { reports += p.stage.starts_with("measuring"); };
    std::vector<ModuleLosses> losses = measure_sensitivity(teacher, plan, data_, o, hooks);
    CheckedPlan checked = checked_plan_within(teacher, plan, losses, data_, bytes, DType::f32, o, hooks);
    return std::pair(std::move(checked), std::move(losses));
  };
  const auto formats = [](const CheckedPlan& checked) {
    std::vector<std::string> names;
    for (const PlannedModule& m : checked.plan.modules) names.push_back(m.stored ? m.stored->name() : "");
    return names;
  };
  const auto [whole, losses] = choose({});
  Folder undisturbed;
  choose(undisturbed.hooks());
  const int all = reports;
  EXPECT_GT(all, 5);
  for (int life = 1; life < undisturbed.asked(); life += 11) {
    Folder folder;
    EXPECT_THROW(choose(folder.hooks(life)), Killed);
    const auto [resumed, measured] = choose(folder.hooks());
    EXPECT_LT(reports, all);  // what was measured is not measured again
    EXPECT_EQ(formats(resumed), formats(whole));
    EXPECT_EQ(resumed.kl, whole.kl);
    EXPECT_EQ(resumed.first_kl, whole.first_kl);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      for (std::size_t f = 0; f < losses[i].formats.size(); ++f)
        EXPECT_EQ(measured[i].formats[f].kl, losses[i].formats[f].kl);
    }
  }
}

TEST_P(KeptStatesTest, SampledRows) {
  const Teacher teacher(*source_, DType::f32, false, tape_);
  const Beginnings beginnings{.first = 1, .texts = rows_};
  const auto sample_rows = [&](const RunHooks& hooks) {
    return self_rows(teacher.model(), tape_, beginnings, 7, 12, 2, 3, hooks);
  };
  const std::vector<TokenRow> whole = sample_rows({});
  for (int life = 0; life < 4; ++life) {
    Folder folder;
    EXPECT_THROW(sample_rows(folder.hooks(life)), Killed);
    EXPECT_EQ(sample_rows(folder.hooks()), whole);
    EXPECT_EQ(folder.asked(), 4 - life);             // four batches
    EXPECT_EQ(sample_rows(folder.hooks(0)), whole);  // all are there
  }
}

TEST_P(KeptStatesTest, FilesThatHoldNoStateAreRefused) {
  if (!is_cpu()) GTEST_SKIP() << "of files, whatever the device";
  Folder folder;
  const RunHooks hooks = folder.hooks();
  const KeptStage stage(hooks, "methods", [&](const std::filesystem::path& file) {
    std::filesystem::copy_file("tests/data/parity/qwen3/model.safetensors", file);
  });
  EXPECT_TRUE(stage.keep());
  MIXTAPE_EXPECT_ERROR(run({plain_rounding()}, folder.hooks()), ErrorCode::format, "is no state of a run");
}

INSTANTIATE_TEST_SUITE_P(Devices, KeptStatesTest, ::testing::ValuesIn(testing::model_device_names()));

}  // namespace
}  // namespace mixtape
