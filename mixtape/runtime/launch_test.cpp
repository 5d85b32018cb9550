// What launchers say in the environment.
#include "mixtape/runtime/launch.h"

#include <map>

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_in(const Variables& values) {
  return launch_of([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

const Variables kTorchrun = {{"WORLD_SIZE", "4"},
                             {"RANK", "3"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"}};

Variables with(Variables values, const std::string& name, const std::string& value) {
  values[name] = value;
  return values;
}

Variables without(Variables values, const std::string& name) {
  values.erase(name);
  return values;
}

TEST(Launch, IsWhatTorchrunSays) {
  const auto launch = launch_in(kTorchrun);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 4);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->address, "node0");
  EXPECT_EQ(launch->port, 29500);
  EXPECT_EQ(launch->patience.count(), 300);
  EXPECT_EQ(launch_in(with(kTorchrun, "MIXTAPE_JOIN_SECONDS", "7"))->patience.count(), 7);
}

// torchrun's own store is at that port.
TEST(Launch, LeavesItsPortToTorchrunsStore) {
  EXPECT_EQ(launch_in(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"))->port, 29501);
  EXPECT_EQ(launch_in(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"))->port, 29500);
}

TEST(Launch, IsWhatMpirunAndSlurmSay) {
  const Variables place = {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  Variables mpi = place, slurm = place;
  mpi.insert(
      {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  slurm.insert({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "0"}});
  for (const Variables& values : {mpi, slurm}) {
    const auto launch = launch_in(values);
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->rank, 1);
    EXPECT_EQ(launch->size, 2);
    EXPECT_EQ(launch->local_rank, 0);
  }
  MIXTAPE_EXPECT_ERROR(launch_in(without(mpi, "MASTER_ADDR")), ErrorCode::invalid_argument,
                       "MASTER_ADDR is not set, expected it for a run of 2 processes");
  // torchrun's variables come first.
  slurm.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(launch_in(slurm)->rank, 3);
  EXPECT_FALSE(launch_in(with(slurm, "WORLD_SIZE", "1")));
}

// A batch script has the number of its tasks in the environment, and is one process.
TEST(Launch, ABatchScriptIsOneProcess) {
  const Variables script = {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  EXPECT_FALSE(launch_in(script));
  MIXTAPE_EXPECT_ERROR(launch_in(with(script, "SLURM_STEP_NUM_TASKS", "4")), ErrorCode::invalid_argument,
                       "MASTER_ADDR is not set");
}

TEST(Launch, OneProcessIsNone) {
  EXPECT_FALSE(launch_in({}));
  EXPECT_FALSE(launch_in({{"RANK", "5"}, {"LOCAL_RANK", "5"}, {"MASTER_PORT", "no port"}}));
  EXPECT_FALSE(launch_in({{"WORLD_SIZE", "1"}, {"RANK", "senior"}}));
  EXPECT_FALSE(launch_in(with(kTorchrun, "WORLD_SIZE", "")));
}

TEST(Launch, NamesTheVariable) {
  for (const char* name : {"RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    MIXTAPE_EXPECT_ERROR(launch_in(without(kTorchrun, name)), ErrorCode::invalid_argument,
                         str(name, " is not set, expected it for a run of 4 processes"));
  }
  const auto expect = [](const char* name, const char* value, const char* what) {
    MIXTAPE_EXPECT_ERROR(launch_in(with(kTorchrun, name, value)), ErrorCode::invalid_argument, what);
  };
  expect("RANK", "4", "RANK is 4, expected 0 to 3");
  expect("RANK", "-1", "RANK is -1, expected 0 to 3");
  expect("RANK", "1.5", "RANK is 1.5, expected 0 to 3");
  expect("LOCAL_RANK", "x", "LOCAL_RANK is x, expected 0 to 3");
  expect("WORLD_SIZE", "many", "WORLD_SIZE is many, expected 0 to 65536");
  expect("MASTER_PORT", "0", "MASTER_PORT is 0, expected 1 to 65534");
  expect("MASTER_PORT", "70000", "MASTER_PORT is 70000, expected 1 to 65534");
  expect("MIXTAPE_JOIN_SECONDS", "0", "MIXTAPE_JOIN_SECONDS is 0, expected 1 to 86400");
}

}  // namespace
}  // namespace mixtape
