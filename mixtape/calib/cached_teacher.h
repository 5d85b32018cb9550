// A teacher's largest logits, kept in a directory: one file per row.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mixtape/calib/loss_signal.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/runtime/communicator.h"

namespace mixtape {

// Reads the K largest logits per position from a directory that write_targets filled: the teacher need not be
// loaded. Throws format if the directory was made from other rows, another model or other settings.
class CachedTeacher final : public LossSignal {
 public:
  CachedTeacher(const std::filesystem::path& directory, const std::string& fingerprint, Tape& tape,
                const KlOptions& options);
  void load(const Batch& batch, std::span<const std::size_t> rows) override;
  Buffer losses(CommandEncoder& encoder, const Buffer& logits, std::int64_t begin, std::int64_t end,
                const LogitGradient& gradient) override;

 private:
  std::filesystem::path directory_;
  Tape& tape_;
  KlOptions options_;
  TopKTargets targets_;                               // of the batch: [B*S, K]
  std::map<std::int64_t, TopKTargets> by_positions_;  // one for each B*S
};

// Into `directory`, which appears when it is complete; nothing where it is there already. All members of a run call
// with the same rows and options, each with its teacher and tape: each makes its share of the rows, and they are the
// bits of one that makes all. Reports rows as the stage "teacher targets"; throws interrupted between rows, io where a
// member doesn't see the directory.
void write_targets(const std::filesystem::path& directory, const std::string& fingerprint,
                   const CausalLm& teacher, Tape& tape, std::span<const TokenRow> rows,
                   const KlOptions& options, Communicator& communicator, const RunHooks& hooks = {});

// Throws invalid_argument, saying what is there, unless `directory` is one that write_targets filled.
void require_targets(const std::filesystem::path& directory);

// The same; throws format, with both fingerprints, if the directory's targets are others.
void check_targets(const std::filesystem::path& directory, const std::string& fingerprint);

// Changes with the teacher's config, its tensors' names and shapes, values sampled from each of them, the
// rows, K and the temperature; not with the place where the model lies. Reads every tensor once.
std::string targets_fingerprint(const ModelSource& teacher, std::span<const TokenRow> rows,
                                const KlOptions& options);

}  // namespace mixtape
