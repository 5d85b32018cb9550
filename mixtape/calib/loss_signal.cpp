#include "mixtape/calib/loss_signal.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "mixtape/calib/evaluate.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"

namespace mixtape {
namespace {

constexpr const char* kDescription = "targets.json";

std::filesystem::path row_file(const std::filesystem::path& directory, std::size_t row) {
  return directory / str("row-", row, ".safetensors");
}

Buffer hidden_rows(const CausalLm& teacher, const Buffer& ids) {
  return teacher.hidden(ids).value().reshape({ids.numel(), teacher.config().hidden_size});
}

// FNV-1a, for fingerprints.
class Hash {
 public:
  void add(const void* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      state_ = (state_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
    }
  }
  std::uint64_t state() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

void write_row(const std::filesystem::path& file, const TopKTargets& targets) {
  const std::vector<TensorSpec> specs = {{"indices", FileDType::U32, targets.indices.shape()},
                                         {"logits", FileDType::F32, targets.logits.shape()},
                                         {"rest_lse", FileDType::F32, targets.rest_lse.shape()}};
  SafetensorsWriter writer(file, specs, {});
  writer.write("indices", targets.indices);
  writer.write("logits", targets.logits);
  writer.write("rest_lse", targets.rest_lse);
  writer.commit();
}

// Copies the rows of one file to positions [at, ...) of the batch.
void read_tensor(const SafetensorsFile& file, const std::string& name, const Buffer& to, std::int64_t at) {
  const TensorView view = file.at(name);
  const std::int64_t rows = view.shape[0];
  require(at + rows <= to.shape()[0] && view.shape.numel() * to.shape()[0] == to.numel() * rows,
          "targets: tensor '", name, "' is ", view.shape, ", expected rows of ", to);
  to.slice(at, at + rows).write_bytes(view.bytes.data());
}

TopKTargets new_targets(const Device& device, std::int64_t positions, std::int64_t k) {
  return {device.alloc(DType::f32, {positions, k}), device.alloc(DType::u32, {positions, k}),
          device.alloc(DType::f32, {positions})};
}

Buffer new_losses(CommandEncoder& encoder, const Buffer& dloss) {
  return encoder.device().alloc_uninitialized(DType::f32, dloss.shape());
}

Buffer top_k_loss_and_gradient(CommandEncoder& encoder, const TopKTargets& targets, const Buffer& logits,
                               const KlOptions& options, const Buffer& dloss, const Buffer& dlogits) {
  const Buffer losses = new_losses(encoder, dloss);
  const Buffer stats = encoder.device().alloc_uninitialized(DType::f32, {logits.shape().rows(), kKlStats});
  kl_div_top_k_forward(encoder, targets, logits, options.temperature, options.rest_bucket, losses, stats);
  kl_div_top_k_backward(encoder, targets, logits, options.temperature, options.rest_bucket, stats, dloss,
                        dlogits);
  return losses;
}

}  // namespace

Var NextToken::loss(const Var& logits, std::int64_t begin, std::int64_t end) {
  return cross_entropy(logits, targets_.slice(begin, end));
}

Buffer NextToken::loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                                    std::int64_t begin, std::int64_t end, const Buffer& dlogits) {
  const Buffer losses = new_losses(encoder, dloss);
  cross_entropy_forward_backward(encoder, logits, targets_.slice(begin, end), dloss, losses, dlogits);
  return losses;
}

void LiveTeacher::start() {
  const NoGrad guard(tape_);
  hidden_ = hidden_rows(teacher_, ids_);
}

Buffer LiveTeacher::reference(DType dtype, std::int64_t begin, std::int64_t end) const {
  return teacher_.logits(tape_.constant(hidden_.slice(begin, end)), dtype).value();
}

Var LiveTeacher::loss(const Var& logits, std::int64_t begin, std::int64_t end) {
  return kl_div(logits, reference(logits.dtype(), begin, end), options_);
}

Buffer LiveTeacher::loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                                      std::int64_t begin, std::int64_t end, const Buffer& dlogits) {
  const Buffer teacher = reference(logits.dtype(), begin, end);
  if (options_.top_k > 0) {
    const TopKTargets targets = make_top_k_targets(encoder, teacher, options_.top_k, options_.temperature);
    return top_k_loss_and_gradient(encoder, targets, logits, options_, dloss, dlogits);
  }
  const Buffer losses = new_losses(encoder, dloss);
  kl_div_forward_backward(encoder, teacher, logits, options_.temperature, dloss, losses, dlogits);
  return losses;
}

CachedTeacher::CachedTeacher(const std::filesystem::path& directory, const std::string& fingerprint,
                             Tape& tape, const KlOptions& options)
    : directory_(directory), tape_(tape), options_(options) {
  const nlohmann::json description = read_json(directory / kDescription);
  const std::string found = description.value("fingerprint", "");
  if (found != fingerprint) {
    fail(ErrorCode::format, (directory / kDescription).string(),
         ": targets were made from other data, model or settings: fingerprint is '", found, "', expected '",
         fingerprint, "'");
  }
}

void CachedTeacher::load(const Batch& batch, std::span<const std::size_t> rows) {
  const std::int64_t positions = batch.ids.numel(), columns = batch.ids.shape()[1];
  TopKTargets& kept = by_positions_[positions];
  if (!kept.logits) kept = new_targets(tape_.device(), positions, options_.top_k);
  targets_ = kept;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SafetensorsFile file = SafetensorsFile::open(row_file(directory_, rows[r]));
    const std::int64_t at = static_cast<std::int64_t>(r) * columns;
    read_tensor(file, "logits", targets_.logits, at);
    read_tensor(file, "indices", targets_.indices, at);
    read_tensor(file, "rest_lse", targets_.rest_lse, at);
  }
}

TopKTargets CachedTeacher::targets(std::int64_t begin, std::int64_t end) const {
  return {targets_.logits.slice(begin, end), targets_.indices.slice(begin, end),
          targets_.rest_lse.slice(begin, end)};
}

Var CachedTeacher::loss(const Var& logits, std::int64_t begin, std::int64_t end) {
  return kl_div(logits, targets(begin, end), options_);
}

Buffer CachedTeacher::loss_and_gradient(CommandEncoder& encoder, const Buffer& logits, const Buffer& dloss,
                                        std::int64_t begin, std::int64_t end, const Buffer& dlogits) {
  return top_k_loss_and_gradient(encoder, targets(begin, end), logits, options_, dloss, dlogits);
}

void write_targets(AtomicDirectory& output, const std::string& fingerprint, const CausalLm& teacher,
                   Tape& tape, std::span<const TokenRow> rows, const KlOptions& options,
                   const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  require(options.top_k > 0, "targets: K is ", options.top_k, ", expected 1 or more");
  const NoGrad guard(tape);
  const Device& device = tape.device();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Batch batch = make_batch(device, rows.subspan(r, 1));
    const Buffer hidden = hidden_rows(teacher, batch.ids);
    const std::int64_t positions = hidden.shape()[0], step = logit_rows(teacher.config().vocab_size, device);
    const TopKTargets all = new_targets(device, positions, options.top_k);
    for (std::int64_t begin = 0; begin < positions; begin += step) {
      const std::int64_t end = std::min(positions, begin + step);
      const Var logits = teacher.logits(tape.constant(hidden.slice(begin, end)));
      const TopKTargets part =
          make_top_k_targets(tape.encoder(), logits.value(), options.top_k, options.temperature);
      tape.encoder().copy(part.logits, all.logits.slice(begin, end));
      tape.encoder().copy(part.indices, all.indices.slice(begin, end));
      tape.encoder().copy(part.rest_lse, all.rest_lse.slice(begin, end));
    }
    tape.encoder().commit_and_wait();
    write_row(row_file(output.path(), r), all);
    if (progress) progress(static_cast<std::int64_t>(r) + 1, static_cast<std::int64_t>(rows.size()));
  }
  write_file(output.path() / kDescription, nlohmann::json{{"fingerprint", fingerprint}}.dump(2) + "\n");
  output.commit();
}

std::string targets_fingerprint(const std::string& model, const ModelConfig& config,
                                std::span<const TokenRow> rows, const KlOptions& options) {
  Hash hash;
  for (const TokenRow& row : rows) hash.add(row.data(), row.size() * sizeof(row[0]));
  return str(model, " ", config.architecture->model_type, " ", config.hidden_size, "x", config.layers.size(),
             " rows ", rows.size(), " ", std::hex, hash.state(), std::dec, " k ", options.top_k, " t ",
             options.temperature);
}

}  // namespace mixtape
