#include "mixtape/calib/dwq.h"

#include <algorithm>
#include <cmath>

#include "mixtape/calib/cached_teacher.h"
#include "mixtape/calib/learned_codes.h"
#include "mixtape/calib/reference_recipe.h"

namespace mixtape {
namespace {

// The rows that need targets, numbered as the trainer does.
std::vector<TokenRow> target_rows(const CalibrationData& data) {
  std::vector<TokenRow> rows = data.train;
  rows.insert(rows.end(), data.validation.begin(), data.validation.end());
  return rows;
}

void check_options(const DwqOptions& o, const ModelSource& source) {
  check(o.train);
  check(o.loss, source.config().vocab_size);
  require(o.target_dir.empty() || o.loss.top_k > 0,
          "dwq: a target directory stores the largest logits: top_k is 0, expected 1 or more");
}

bool is_first(const MethodInput& in) { return in.communicator == nullptr || in.communicator->rank() == 0; }

std::unique_ptr<LossSignal> make_signal(const DwqOptions& o, const MethodInput& in) {
  const CausalLm& teacher = in.teacher.model();
  Tape& tape = in.teacher.tape();
  if (o.target_dir.empty()) return std::make_unique<LiveTeacher>(teacher, tape, o.loss, in.data.train.size());
  const std::vector<TokenRow> rows = target_rows(in.data);
  const std::string fingerprint = targets_fingerprint(in.teacher.source(), rows, o.loss);
  SingleProcess alone;
  write_targets(o.target_dir, fingerprint, teacher, tape, rows, o.loss,
                in.communicator ? *in.communicator : alone, in.hooks);
  return std::make_unique<CachedTeacher>(o.target_dir, fingerprint, tape, o.loss);
}

TrainReport improve(const DwqOptions& o, const MethodInput& in, Student& student) {
  if (o.train.trainable == Trainable::everything) own_floats(student, in.teacher, in.plan);
  const std::unique_ptr<LossSignal> signal = make_signal(o, in);
  const BatchOrder order = o.reference_order
                               ? reference_batches(in.data.train, o.train.batch_size, o.seed)
                               : shuffled_batches(in.data.train.size(), o.train.batch_size, o.seed);
  TrainOptions options = o.train;
  if (o.rate_from_start && in.start_kl) rate_from_start(options, *in.start_kl, o.trains_codes);
  if (o.trains_codes) add_latent_codes(student, in.teacher, in.plan);
  const TrainReport report = train(student.config, student.parameters, in.teacher.compute(), *signal,
                                   in.teacher.tape(), {in.data.train, in.data.validation, order}, options,
                                   {.run = in.hooks,
                                    .checkpoint = is_first(in) ? o.checkpoint : nullptr,
                                    .communicator = in.communicator});
  pack_latent_codes(student, in.teacher.tape().device());
  renew_scales(student);
  return report;
}

}  // namespace

double rate_for_start(double kl) { return std::clamp(0.005 * std::sqrt(kl), 1e-4, 0.02); }

double code_rate_for(std::int64_t steps, double kl) {
  const double most = 0.012 * std::pow(kl / 0.1, 0.2);
  return std::clamp(std::min(1.2 / static_cast<double>(steps), most), 0.002, 0.012);
}

// Beside codes that learn, scales have less to make up for.
void rate_from_start(TrainOptions& options, double kl, bool trains_codes) {
  options.code_rate = code_rate_for(options.steps, kl);
  options.learning_rate = rate_for_start(kl) * (trains_codes ? 0.5 : 1.0);
}

Method dwq(const DwqOptions& options) {
  return {
      .name = options.trains_codes ? "dwq with codes" : "dwq",
      .improve = [options](const MethodInput& in, Student& student) { return improve(options, in, student); },
      .check =
          [options](const ModelSource& source, const CalibrationData& data) {
            check_options(options, source);
            if (options.target_dir.empty() || data.train.empty() ||
                !std::filesystem::exists(options.target_dir))
              return;
            check_targets(options.target_dir, targets_fingerprint(source, target_rows(data), options.loss));
          }};
}

}  // namespace mixtape
