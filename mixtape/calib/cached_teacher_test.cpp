#include "mixtape/calib/cached_teacher.h"

#include <gtest/gtest.h>

#include <fstream>

#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

class CachedTeacherTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::string fingerprint(const std::filesystem::path& model) {
    return targets_fingerprint(*open_model(model), rows_, options_);
  }
  void write(const std::string& print, const RunHooks& hooks = {}) {
    SingleProcess alone;
    write_targets(temp_ / "targets", print, teacher_.model(), tape_, rows_, options_, alone, hooks);
  }
  // A copy of the model in whose file the last 1024 values differ in one bit each.
  std::filesystem::path changed_copy() {
    std::filesystem::copy(kModel, temp_ / "changed");
    const auto file = temp_ / "changed" / "model.safetensors";
    std::string bytes = testing::contents_of(file);
    for (std::size_t at = bytes.size() - 4096; at < bytes.size(); at += 4)
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
    std::filesystem::remove(file);
    std::ofstream(file, std::ios::binary) << bytes;
    return temp_ / "changed";
  }

  static constexpr const char* kModel = "tests/data/parity/qwen3";
  testing::TempDirectory temp_;
  Tape tape_{Device::open(GetParam())};
  std::unique_ptr<ModelSource> source_ = open_model(kModel);
  Teacher teacher_{*source_, DType::f32, false, tape_};
  std::vector<TokenRow> rows_ = random_rows(3, 9, 263, 7);
  KlOptions options_{.temperature = 2.0f, .top_k = 16, .rest_bucket = true};
};

// Losses and gradients of one row in a batch of two, against the teacher that runs beside.
TEST_P(CachedTeacherTest, GivesTheBitsOfALiveOne) {
  write("print");
  const std::vector<std::size_t> numbers = {2, 0};
  const std::vector<TokenRow> chosen = {rows_[2], rows_[0]};
  const Batch batch = make_batch(tape_.device(), chosen);
  const std::int64_t positions = batch.ids.numel();
  std::vector<float> values;
  for (std::int64_t i = 0; i < positions * 263; ++i)
    values.push_back(static_cast<float>(normal(1, static_cast<std::uint64_t>(i))));
  const Buffer logits = Buffer::from(tape_.device(), {positions, 263}, values);
  const Buffer shares = Buffer::from(tape_.device(), {positions},
                                     std::vector<float>(static_cast<std::size_t>(positions), 0.25f));
  const auto run = [&](LossSignal& signal) {
    signal.load(batch, numbers);
    signal.start();
    const Buffer gradient = tape_.device().alloc(DType::f32, logits.shape());
    const Buffer losses = signal.losses(tape_.encoder(), logits, 0, positions, {shares, gradient});
    const Buffer alone = signal.losses(tape_.encoder(), logits, 0, positions);
    tape_.encoder().commit_and_wait();
    EXPECT_EQ(losses.to_vector<float>(), alone.to_vector<float>());
    return std::pair(losses.to_vector<float>(), gradient.to_vector<float>());
  };
  CachedTeacher cached(temp_ / "targets", "print", tape_, options_);
  LiveTeacher live(teacher_.model(), tape_, options_);
  EXPECT_EQ(run(cached), run(live));
}

// A batch is as wide as its longest row: beyond the other's end losses are anything, but they can be computed.
TEST_P(CachedTeacherTest, RowsMayDifferInLength) {
  rows_[0].resize(5);
  write("print");
  const Batch batch = make_batch(tape_.device(), std::vector<TokenRow>{rows_[2], rows_[0]});
  const std::int64_t positions = batch.ids.numel(), columns = batch.ids.shape()[1];
  const Buffer logits = tape_.device().alloc(DType::f32, {positions, 263});
  const auto losses = [&](LossSignal& signal) {
    signal.load(batch, std::vector<std::size_t>{2, 0});
    signal.start();
    const Buffer found = signal.losses(tape_.encoder(), logits, 0, positions);
    tape_.encoder().commit_and_wait();
    std::vector<float> values = found.to_vector<float>();
    values.resize(static_cast<std::size_t>(columns + 4));  // the short row's
    return values;
  };
  CachedTeacher cached(temp_ / "targets", "print", tape_, options_);
  LiveTeacher live(teacher_.model(), tape_, options_);
  const std::vector<float> found = losses(cached), wanted = losses(live);  // which sees the short row padded
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6) << i;
}

TEST_P(CachedTeacherTest, TheFingerprintIsOfTheContents) {
  const std::string print = fingerprint(kModel);
  std::filesystem::copy(kModel, temp_ / "copy");
  EXPECT_EQ(fingerprint(temp_ / "copy"), print);
  EXPECT_NE(fingerprint(changed_copy()), print);
  options_.top_k = 15;
  EXPECT_NE(fingerprint(kModel), print);
  options_.top_k = 16;
  rows_[1][3] ^= 1;
  EXPECT_NE(fingerprint(kModel), print);
}

TEST_P(CachedTeacherTest, OtherTargetsAreRefused) {
  write(fingerprint(kModel));
  EXPECT_NO_THROW(check_targets(temp_ / "targets", fingerprint(kModel)));
  EXPECT_NO_THROW(require_targets(temp_ / "targets"));
  MIXTAPE_EXPECT_ERROR(CachedTeacher(temp_ / "targets", fingerprint(changed_copy()), tape_, options_),
                       ErrorCode::format, "targets were made from other data, model or settings");
}

TEST_P(CachedTeacherTest, OtherDirectoriesAreNamed) {
  const ErrorCode code = ErrorCode::invalid_argument;
  const auto file = temp_.write("file", "");
  MIXTAPE_EXPECT_ERROR(require_targets(temp_ / "none"), code, "none: found no directory, expected");
  MIXTAPE_EXPECT_ERROR(require_targets(file), code, "file: found no directory, expected a teacher's targets");
  MIXTAPE_EXPECT_ERROR(require_targets(temp_.path()), code, "found a directory of other files, expected");
  std::filesystem::create_directory(temp_ / "empty");
  MIXTAPE_EXPECT_ERROR(require_targets(temp_ / "empty"), code, "empty: found an empty directory, expected");
}

TEST_P(CachedTeacherTest, StoppedBetweenRowsItLeavesNothing) {
  std::int64_t done = 0;
  const RunHooks hooks = {.progress = [&](const StageProgress& p) { done = p.done; },
                          .should_stop = [&] { return done == 2; }};
  MIXTAPE_EXPECT_ERROR(write("print", hooks), ErrorCode::interrupted, "teacher targets: interrupted");
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

INSTANTIATE_TEST_SUITE_P(Devices, CachedTeacherTest, ::testing::ValuesIn(testing::model_device_names()));

}  // namespace
}  // namespace mixtape
