// The loss that a model is trained on: the next token, or a teacher's logits, computed as needed or read from
// files.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "mixtape/calib/data.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/ops/kl_div/kl_div.h"

namespace mixtape {

class LossSignal {
 public:
  virtual ~LossSignal() = default;
  // Brings what the batch needs to the device, for batches of one shape to the same place each time. Its rows
  // are numbered as training rows followed by validation rows.
  virtual void load(const Batch& batch, std::span<const std::size_t> rows) = 0;
  // Encodes what comes before the first loss of the batch.
  virtual void start() {}
  // Whether start() and what follows bring nothing more to the device.
  virtual bool is_recordable() const { return true; }
  // Loss f32 [end-begin] of the model's logits [end-begin, V] for positions [begin, end) of the batch.
  virtual Var loss(const Var& logits, std::int64_t begin, std::int64_t end) = 0;
  // The same losses, and in `dlogits`, like logits, their gradient for the upstream weights dloss
  // f32 [end-begin]. Encoded, not waited for.
  virtual Buffer loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                                   std::int64_t begin, std::int64_t end, const Buffer& dlogits) = 0;
};

// -log p(next token).
class NextToken final : public LossSignal {
 public:
  void load(const Batch& batch, std::span<const std::size_t>) override { targets_ = batch.targets; }
  Var loss(const Var& logits, std::int64_t begin, std::int64_t end) override;
  Buffer loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                           std::int64_t begin, std::int64_t end, const Buffer& dlogits) override;

 private:
  Buffer targets_;
};

// Runs the teacher beside the student.
class LiveTeacher final : public LossSignal {
 public:
  LiveTeacher(const CausalLm& teacher, Tape& tape, const KlOptions& options)
      : teacher_(teacher), tape_(tape), options_(options) {}
  void load(const Batch& batch, std::span<const std::size_t>) override { ids_ = batch.ids; }
  void start() override;
  bool is_recordable() const override { return !teacher_.is_streamed(); }
  Var loss(const Var& logits, std::int64_t begin, std::int64_t end) override;
  Buffer loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                           std::int64_t begin, std::int64_t end, const Buffer& dlogits) override;

 private:
  Buffer reference(DType dtype, std::int64_t begin, std::int64_t end) const;
  const CausalLm& teacher_;
  Tape& tape_;
  KlOptions options_;
  Buffer ids_;     // of the batch
  Buffer hidden_;  // [B*S, D]
};

// Reads the K largest logits per position from a directory that write_targets filled: the teacher need not be
// loaded. Throws format if the directory was made from other rows, another model or other settings.
class CachedTeacher final : public LossSignal {
 public:
  CachedTeacher(const std::filesystem::path& directory, const std::string& fingerprint, Tape& tape,
                const KlOptions& options);
  void load(const Batch& batch, std::span<const std::size_t> rows) override;
  Var loss(const Var& logits, std::int64_t begin, std::int64_t end) override;
  Buffer loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                           std::int64_t begin, std::int64_t end, const Buffer& dlogits) override;

 private:
  TopKTargets targets(std::int64_t begin, std::int64_t end) const;
  std::filesystem::path directory_;
  Tape& tape_;
  KlOptions options_;
  TopKTargets targets_;                               // of the batch: [B*S, K]
  std::map<std::int64_t, TopKTargets> by_positions_;  // one for each B*S
};

// One file per row, into `output`, which is committed when it is complete.
void write_targets(AtomicDirectory& output, const std::string& fingerprint, const CausalLm& teacher,
                   Tape& tape, std::span<const TokenRow> rows, const KlOptions& options,
                   const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

// Changes with the teacher's name and sizes, the rows, K and the temperature.
std::string targets_fingerprint(const std::string& model, const ModelConfig& config,
                                std::span<const TokenRow> rows, const KlOptions& options);

}  // namespace mixtape
