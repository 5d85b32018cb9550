#include "mixtape/runtime/launch.h"

#include <charconv>
#include <string_view>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

struct Launcher {
  const char *size, *rank, *local_rank;
};
constexpr Launcher kTorchrun = {"WORLD_SIZE", "RANK", "LOCAL_RANK"};
constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Launcher kSlurm = {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"};

constexpr std::int64_t kMostProcesses = 1 << 16;

// Empty values count as none.
class Environment {
 public:
  explicit Environment(const Variable& variable) : variable_(variable) {}

  std::string_view text(const char* name) const {
    const char* value = variable_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }

  std::string_view text_of_run(const char* name, std::int64_t size) const {
    require(has(name), name, " is not set, expected it for a run of ", size, " processes");
    return text(name);
  }

  std::int64_t number(const char* name, std::int64_t least, std::int64_t most) const {
    const std::string_view value = text(name);
    std::int64_t found = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), found);
    const bool holds =
        error == std::errc() && end == value.data() + value.size() && found >= least && found <= most;
    require(holds, name, " is ", value, ", expected ", least, " to ", most);
    return found;
  }

  std::int64_t number_of_run(const char* name, std::int64_t size, std::int64_t least,
                             std::int64_t most) const {
    text_of_run(name, size);
    return number(name, least, most);
  }

  bool is_of(const Launcher& launcher) const {
    if (!has(launcher.size)) return false;
    return launcher.size != kSlurm.size || has("MASTER_ADDR") || has("SLURM_STEP_NUM_TASKS");
  }

 private:
  const Variable& variable_;
};

}  // namespace

std::optional<Launch> launch_of(const Variable& variable) {
  const Environment environment(variable);
  for (const Launcher& launcher : {kTorchrun, kOpenMpi, kSlurm}) {
    if (!environment.is_of(launcher)) continue;
    Launch launch{.address = ""};
    launch.size = environment.number(launcher.size, 0, kMostProcesses);
    if (launch.size <= 1) return std::nullopt;
    launch.rank = environment.number_of_run(launcher.rank, launch.size, 0, launch.size - 1);
    launch.local_rank = environment.number_of_run(launcher.local_rank, launch.size, 0, launch.size - 1);
    launch.address = environment.text_of_run("MASTER_ADDR", launch.size);
    launch.port = static_cast<int>(environment.number_of_run("MASTER_PORT", launch.size, 1, 65534));
    if (environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++launch.port;
    if (environment.has("MIXTAPE_JOIN_SECONDS"))
      launch.patience = std::chrono::seconds(environment.number("MIXTAPE_JOIN_SECONDS", 1, 86400));
    return launch;
  }
  return std::nullopt;
}

}  // namespace mixtape
