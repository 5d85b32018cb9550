// Two members that share a run take the steps that one would take alone.
#include "mixtape/calib/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// What two threads meet at.
struct Table {
  std::barrier<> meet{2};
  std::array<double, 2> values{};
  std::array<std::vector<std::vector<float>>, 2> buffers;
};

class Member final : public Communicator {
 public:
  Member(Table& table, std::size_t rank) : table_(table), rank_(rank) {}
  std::int64_t size() const override { return 2; }
  void all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) override {
    encoder.commit_and_wait();
    auto& mine = table_.buffers[rank_];
    mine.clear();
    for (const Buffer& b : buffers) mine.push_back(b.to_vector<float>());
    table_.meet.arrive_and_wait();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      std::vector<float> sum = table_.buffers[0][i];
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += table_.buffers[1][i][j];
      buffers[i].copy_from(std::span<const float>(sum));
    }
    table_.meet.arrive_and_wait();
  }
  double all_reduce_sum(double value) override {
    table_.values[rank_] = value;
    table_.meet.arrive_and_wait();
    const double sum = table_.values[0] + table_.values[1];
    table_.meet.arrive_and_wait();
    return sum;
  }

 private:
  Table& table_;
  std::size_t rank_;
};

struct Outcome {
  TrainReport report;
  std::vector<float> scales;
};

// Four steps on batches of these rows, of a run of its own or shared.
Outcome run(const std::vector<TokenRow>& rows, std::int64_t batch, Communicator* communicator,
            const RunHooks& hooks = {}) {
  const auto source = open_model("tests/data/parity/qwen3");
  Tape tape(Device::cpu());
  const Teacher teacher(*source, DType::f32, false, tape);
  Student student = fit_student(teacher, plan_quantization(*source, {.params = {3, 32}}), plain_rounding());
  LiveTeacher signal(teacher.model(), tape, {.temperature = 2.0f});
  TrainOptions options;
  options.steps = 4;
  options.batch_size = batch;
  options.clip_norm = 0.01;
  options.keep_best = false;
  const BatchOrder order = [&](std::int64_t) {
    std::vector<std::vector<std::size_t>> batches;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (r % static_cast<std::size_t>(batch) == 0) batches.emplace_back();
      batches.back().push_back(r);
    }
    return batches;
  };
  const std::vector<TokenRow> validation(rows.begin(), rows.begin() + batch);
  Outcome outcome;
  outcome.report =
      train(student.config, student.parameters, DType::f32, signal, tape, {rows, validation, order}, options,
            {.run = hooks, .checkpoint = {}, .communicator = communicator});
  for (const auto& [path, q] : student.parameters.quantized) {
    const std::vector<float> part = q.scales.to_vector<float>();
    outcome.scales.insert(outcome.scales.end(), part.begin(), part.end());
  }
  return outcome;
}

// Rows of many lengths: a mean of the members' means would be another number.
std::vector<TokenRow> uneven_rows() {
  std::vector<TokenRow> rows = random_rows(8, 20, 263, 3);
  const std::size_t lengths[] = {20, 5, 3, 12, 9, 9, 2, 17};
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r].resize(lengths[r]);
  return rows;
}

std::array<Outcome, 2> run_shared(const std::vector<TokenRow>& rows, const RunHooks& hooks_of_second = {}) {
  Table table;
  std::array<Outcome, 2> outcomes;
  std::array<std::thread, 2> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads[rank] = std::thread([&, rank] {
      std::vector<TokenRow> mine;
      for (std::size_t r = rank; r < rows.size(); r += 2) mine.push_back(rows[r]);
      Member member(table, rank);
      outcomes[rank] = run(mine, 1, &member, rank == 1 ? hooks_of_second : RunHooks());
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

TEST(Communicator, TwoMembersStepAsOne) {
  const std::vector<TokenRow> rows = uneven_rows();
  const auto [a, b] = run_shared(rows);
  const Outcome alone = run(rows, 2, nullptr);
  EXPECT_EQ(a.report.losses, b.report.losses);
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.report.tokens_seen, alone.report.tokens_seen);
  ASSERT_EQ(a.report.losses.size(), alone.report.losses.size());
  for (std::size_t i = 0; i < a.report.losses.size(); ++i)
    EXPECT_NEAR(a.report.losses[i], alone.report.losses[i], 1e-4 * alone.report.losses[i]) << i;
  EXPECT_LE(testing::relative_distance(a.scales, alone.scales), 1e-4);
}

TEST(Communicator, OneMemberStopsBoth) {
  std::int64_t done = 0;
  const RunHooks stop = {.progress = [&](const StageProgress& p) { done = p.done; },
                         .should_stop = [&] { return done == 2; }};
  const auto [a, b] = run_shared(uneven_rows(), stop);
  EXPECT_TRUE(a.report.stopped_early && b.report.stopped_early);
  EXPECT_EQ(a.report.steps_done, 2);
  EXPECT_EQ(b.report.steps_done, 2);
}

// The whole calibration, shared: each member has half of the training rows, and both get the same student.
TEST(Communicator, SharesACalibration) {
  const std::vector<TokenRow> rows = uneven_rows();
  Table table;
  std::array<std::vector<float>, 2> scales;
  const auto calibrate_half = [&](std::size_t rank) {
    const auto source = open_model("tests/data/parity/qwen3");
    Tape tape(Device::cpu());
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    Member member(table, rank);
    DwqOptions options;
    options.train.steps = 3;
    options.train.batch_size = 2;
    options.train.keep_best = false;
    options.communicator = &member;
    const auto half = static_cast<std::ptrdiff_t>(4 * rank);
    const CalibrationData data = {{rows.begin() + half, rows.begin() + half + 4}, {rows[0]}, {rows[1]}};
    const Calibration c = calibrate(*source, plan, data, {.methods = {plain_rounding(), dwq(options)}}, tape);
    for (const auto& [path, q] : c.student.parameters.quantized) {
      const std::vector<float> part = q.scales.to_vector<float>();
      scales[rank].insert(scales[rank].end(), part.begin(), part.end());
    }
  };
  std::thread second(calibrate_half, 1);
  calibrate_half(0);
  second.join();
  EXPECT_FALSE(scales[0].empty());
  EXPECT_EQ(scales[0], scales[1]);
}

}  // namespace
}  // namespace mixtape
