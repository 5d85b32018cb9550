// What a launcher tells each of the processes that it starts for one run, on one host or several: torchrun, mpirun of
// Open MPI, or Slurm's srun.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mixtape {

struct Launch {
  std::int64_t rank = 0, size = 1;  // this process's number, from 0, and how many there are
  std::int64_t local_rank = 0;      // its number on its host
  std::string address;              // where rank 0 waits for the others
  int port = 0;
  std::chrono::seconds patience{300};  // for processes that have not come
  std::string program = {};  // which one it is, and its version: all are of one; the caller's to say
};

// The value of an environment variable; null: it is not set.
using Variable = std::function<const char*(const char* name)>;

// Nothing where there is one process alone: no launcher's number of processes is above 1. The numbers are those of
//   torchrun   WORLD_SIZE, RANK, LOCAL_RANK
//   Open MPI   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm      SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID, within srun or with MASTER_ADDR alone: a batch script itself is
//              one process
// of the first whose size is set. MASTER_ADDR and MASTER_PORT say where rank 0 waits; where torchrun's own store has
// that port (TORCHELASTIC_USE_AGENT_STORE), the next one is taken. MIXTAPE_JOIN_SECONDS is the patience. Throws
// invalid_argument, naming the variable, for one that is missing, no whole number or out of range.
std::optional<Launch> launch_of(const Variable& variable);

}  // namespace mixtape
