// A calibration that several processes share is that of as many devices of one, to the last bit.
#include <gtest/gtest.h>

#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/process_groups.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using Devices = std::vector<std::vector<Device>>;

std::vector<Device> several_cpus(std::size_t n) { return std::vector<Device>(n, Device::cpu()); }

TrainOptions three_steps_of_four() {
  TrainOptions o;
  o.steps = 3;
  o.batch_size = 4;
  return o;
}

struct Result {
  std::vector<float> values;  // of all parameters
  CalibrationReport report;
};

std::vector<float> values_of(const Student& student) {
  std::vector<float> all;
  const auto add = [&](const Buffer& b) {
    const std::vector<float> part = b.to_vector<float>();
    all.insert(all.end(), part.begin(), part.end());
  };
  for (const auto& [path, q] : student.parameters.quantized) add(q.scales), add(q.biases);
  if (!student.floats_train) return all;
  for (const auto& [name, value] : student.parameters.dense) add(value);
  return all;
}

class ProcessRun : public ::testing::Test {
 protected:
  // What each process reads for itself, and does.
  Result run(const std::vector<Method>& improve, DeviceGroup& group, const RunHooks& hooks = {}) const {
    const auto source = open_model("tests/data/parity/qwen3");
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    const CalibrationData data{rows_, rows_, rows_};
    CalibrationOptions options{.methods = {plain_rounding()}, .devices = &group};
    options.methods.insert(options.methods.end(), improve.begin(), improve.end());
    Tape tape(group.devices()[0]);
    const Teacher teacher(*source, DType::f32, false, tape);
    if (group.is_first()) {
      const Calibration c = calibrate(teacher, plan, data, options, hooks);
      return {values_of(c.student), c.report};
    }
    take_part_in_calibration(teacher, plan, data, options, hooks);
    return {};
  }

  Result in_one(const std::vector<Method>& improve, std::size_t devices) const {
    DeviceGroup group(several_cpus(devices));
    return run(improve, group);
  }

  Result in_several(const std::vector<Method>& improve, const Devices& devices) const {
    Result first;
    const auto errors = testing::run_processes(devices, [&](DeviceGroup& group) {
      Result own = run(improve, group);
      if (group.is_first()) first = std::move(own);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    return first;
  }

  void expect_same(const std::vector<Method>& improve) const {
    const Result three = in_one(improve, 3);
    for (const Devices& devices : {Devices{several_cpus(2), several_cpus(1)},
                                   Devices{several_cpus(1), several_cpus(1), several_cpus(1)}}) {
      const Result several = in_several(improve, devices);
      EXPECT_EQ(several.values, three.values);
      EXPECT_EQ(several.report.training.losses, three.report.training.losses);
      EXPECT_EQ(several.report.result->kl->mean, three.report.result->kl->mean);
    }
    EXPECT_LT(three.report.result->kl->mean, 0.99 * three.report.initial.kl->mean);
  }

  std::vector<TokenRow> rows_ = random_rows(8, 12, 263, 3);
};

TEST_F(ProcessRun, ScalesLearn) {
  DwqOptions o;
  o.train = three_steps_of_four();
  expect_same({dwq(o)});
}

TEST_F(ProcessRun, LayersThenCodesThenFloatsLearn) {
  BlockCodesOptions layers;
  layers.train = three_steps_of_four();
  DwqOptions codes;
  codes.train = three_steps_of_four();
  codes.trains_codes = true;
  DwqOptions floats;
  floats.train = three_steps_of_four();
  floats.train.trainable = Trainable::everything;
  expect_same({block_codes(layers), dwq(codes), dwq(floats), dwq(codes)});
}

// Each makes its share of the teacher's targets.
TEST_F(ProcessRun, TargetsAreTheBitsOfOneDevice) {
  const testing::TempDirectory temp;
  DwqOptions o;
  o.train = three_steps_of_four();
  o.loss.top_k = 16;
  const auto train_to = [&](const char* name, const auto& run_it) {
    o.target_dir = temp / name;
    run_it();
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(temp / name))
      files.emplace(entry.path().filename().string(), testing::contents_of(entry.path()));
    return files;
  };
  const auto one = train_to("one", [&] { in_one({dwq(o)}, 1); });
  EXPECT_EQ(one.size(), 17U);  // 8 rows to train on, 8 to judge by, and what they are
  EXPECT_TRUE(train_to("three", [&] { in_one({dwq(o)}, 3); }) == one);
  EXPECT_TRUE(train_to("several", [&] { in_several({dwq(o)}, {several_cpus(1), several_cpus(2)}); }) == one);
}

TEST_F(ProcessRun, MayHaveNothingToImprove) {
  const Result one = in_one({}, 2), two = in_several({}, {several_cpus(1), several_cpus(1)});
  EXPECT_EQ(two.values, one.values);
}

// Whoever is asked stops all, which end without an error.
TEST_F(ProcessRun, AnyProcessStopsAll) {
  DwqOptions o;
  o.train = three_steps_of_four();
  o.train.steps = 1000;
  for (const bool asks_first : {true, false}) {
    Result first;
    const auto errors = testing::run_processes({several_cpus(1), several_cpus(1)}, [&](DeviceGroup& group) {
      int asked = 0;
      RunHooks hooks;
      if (group.is_first() == asks_first) hooks.should_stop = [&] { return ++asked > 40; };
      Result own = run({dwq(o)}, group, hooks);
      if (group.is_first()) first = std::move(own);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    EXPECT_TRUE(first.report.stopped_early);
    EXPECT_LT(first.report.training.steps_done, 100);
  }
}

// Also where the first one is not at a sum.
TEST_F(ProcessRun, AnErrorOfTheFirstEndsAll) {
  DwqOptions o;
  o.train = three_steps_of_four();
  for (const char* stage : {"fitting", "training", "evaluating result"}) {
    const auto errors = testing::run_processes({several_cpus(1), several_cpus(1)}, [&](DeviceGroup& group) {
      RunHooks hooks;
      hooks.progress = [&](const StageProgress& p) {
        if (p.stage == stage && p.done > 0) fail(ErrorCode::device, "the card was lost while ", stage);
      };
      run({dwq(o)}, group, hooks);
    });
    EXPECT_EQ(errors[0], str("the card was lost while ", stage));
    // Nothing is shared behind the steps.
    const bool is_told = std::string_view(stage) != "evaluating result";
    EXPECT_EQ(errors[1].ends_with(errors[0]), is_told) << errors[1];
  }
}

TEST_F(ProcessRun, AnErrorOfAnotherEndsAll) {
  DwqOptions o;
  o.train = three_steps_of_four();
  const auto errors = testing::run_processes({several_cpus(1), several_cpus(1)}, [&](DeviceGroup& group) {
    RunHooks hooks;
    if (!group.is_first()) hooks.should_stop = [] { return fail(ErrorCode::out_of_memory, "no room"), true; };
    run({dwq(o)}, group, hooks);
  });
  EXPECT_EQ(errors[1], "no room");
  EXPECT_TRUE(errors[0].ends_with(": no room")) << errors[0];
  EXPECT_TRUE(errors[0].starts_with("rank 1 on ")) << errors[0];
}

TEST_F(ProcessRun, EachProcessHasItsPart) {
  const auto errors = testing::run_processes({several_cpus(1), several_cpus(1)}, [&](DeviceGroup& group) {
    const auto source = open_model("tests/data/parity/qwen3");
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    const CalibrationOptions options{.methods = {plain_rounding()}, .devices = &group};
    Tape tape(Device::cpu());
    const Teacher teacher(*source, DType::f32, false, tape);
    const CalibrationData data{rows_, rows_, rows_};
    if (!group.is_first()) calibrate(teacher, plan, data, options);
    take_part_in_calibration(teacher, plan, data, options);
  });
  EXPECT_EQ(errors[0], "calibrate: this process is the first of the run, expected calibrate");
  EXPECT_EQ(errors[1],
            "calibrate: this process is not the first of the run, expected take_part_in_calibration");
}

}  // namespace
}  // namespace mixtape
