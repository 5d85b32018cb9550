#include "mixtape/ops/kl_div/kl_div.h"

#include <cmath>

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_temperature(const char* op, float temperature) {
  require(std::isfinite(temperature) && temperature > 0.0f, op, ": temperature is ", temperature,
          ", expected a positive number");
}

void check_student(const char* op, const Buffer& student, float temperature) {
  check_values(op, "student", student);
  check_row(op, "student", student);
  check_temperature(op, temperature);
}

void check_full(const char* op, const Buffer& teacher, const Buffer& student, float temperature) {
  check_student(op, student, temperature);
  check_values(op, "teacher", teacher);
  require(teacher.shape() == student.shape(), op, ": teacher is ", teacher,
          ", expected the shape of student ", student);
}

void check_targets(const char* op, const TopKTargets& t, const Buffer& student, float temperature) {
  check_student(op, student, temperature);
  check_values(op, "teacher.logits", t.logits);
  const Shape& shape = t.logits.shape();
  require(shape.rank() == 2 && shape[0] == student.shape().rows() && shape[1] > 0 &&
              shape[1] <= student.shape().cols(),
          op, ": teacher.logits is ", t.logits,
          ", expected one row of K entries, 1 <= K <= vocab, per row of student ", student);
  check_is(op, "teacher.indices", t.indices, DType::u32, shape);
  check_is(op, "teacher.rest_lse", t.rest_lse, DType::f32, {shape[0]});
}

void check_row_values(const char* op, const Buffer& student, const char* argument, const Buffer& b) {
  check_is(op, argument, b, DType::f32, {student.shape().rows()});
}

void check_stats(const char* op, const Buffer& student, const Buffer& stats) {
  check_is(op, "stats", stats, DType::f32, {student.shape().rows(), kKlStats});
}

void check_gradient(const char* op, const Buffer& student, const Buffer& stats, const Buffer& dloss,
                    const Buffer& dstudent, Accumulate accumulate) {
  check_stats(op, student, stats);
  check_row_values(op, student, "dloss", dloss);
  check_like(op, "dstudent", dstudent, "student", student);
  if (accumulate == Accumulate::yes) check_no_overlap(op, "dstudent", dstudent, "student", student);
}

KlDivParams params_of(const Buffer& student, std::int64_t k, float temperature, bool rest_bucket,
                      Accumulate accumulate) {
  return {student.shape().rows(),
          student.shape().cols(),
          k,
          1.0f / temperature,
          rest_bucket,
          static_cast<std::uint32_t>(accumulate)};
}

}  // namespace

TopKTargets make_top_k_targets(CommandEncoder& encoder, const Buffer& teacher, std::int64_t k,
                               float temperature) {
  const char* op = "make_top_k_targets";
  check_values(op, "teacher", teacher);
  check_temperature(op, temperature);
  require(k > 0 && k <= teacher.shape().cols(), op, ": k is ", k,
          ", expected 1 to the vocabulary of teacher ", teacher);
  const std::int64_t rows = teacher.shape().rows();
  const Device& device = encoder.device();
  const TopKTargets targets{device.alloc_uninitialized(DType::f32, {rows, k}),
                            device.alloc_uninitialized(DType::u32, {rows, k}),
                            device.alloc_uninitialized(DType::f32, {rows})};
  encoder.encode({.kernel = str("top_k_targets_", teacher.dtype()),
                  .params = params_bytes(params_of(teacher, k, temperature, true, Accumulate::no)),
                  .reads = {teacher},
                  .writes = {targets.logits, targets.indices, targets.rest_lse}});
  return targets;
}

void kl_div_forward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student, float temperature,
                    const Buffer& loss, const Buffer& stats) {
  check_full("kl_div", teacher, student, temperature);
  check_row_values("kl_div", student, "loss", loss);
  check_stats("kl_div", student, stats);
  encoder.encode({.kernel = str("kl_div_forward_", student.dtype()),
                  .params = params_bytes(params_of(student, 0, temperature, false, Accumulate::no)),
                  .reads = {teacher, student},
                  .writes = {loss, stats}});
}

void kl_div_backward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student, float temperature,
                     const Buffer& stats, const Buffer& dloss, const Buffer& dstudent,
                     Accumulate accumulate) {
  check_full("kl_div_backward", teacher, student, temperature);
  check_gradient("kl_div_backward", student, stats, dloss, dstudent, accumulate);
  check_no_overlap("kl_div_backward", "dstudent", dstudent, "teacher", teacher);
  encoder.encode({.kernel = str("kl_div_backward_", student.dtype()),
                  .params = params_bytes(params_of(student, 0, temperature, false, accumulate)),
                  .reads = {teacher, student, stats, dloss},
                  .writes = {dstudent}});
}

void kl_div_forward_backward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student,
                             float temperature, const Buffer& dloss, const Buffer& loss,
                             const Buffer& dstudent) {
  const char* op = "kl_div_forward_backward";
  check_full(op, teacher, student, temperature);
  check_row_values(op, student, "dloss", dloss);
  check_row_values(op, student, "loss", loss);
  check_no_overlap(op, "loss", loss, "dloss", dloss);
  check_like(op, "dstudent", dstudent, "student", student);
  check_no_overlap(op, "dstudent", dstudent, "teacher", teacher);
  encoder.encode({.kernel = str("kl_div_forward_backward_", student.dtype()),
                  .params = params_bytes(params_of(student, 0, temperature, false, Accumulate::no)),
                  .reads = {teacher, student, dloss},
                  .writes = {loss, dstudent}});
}

void kl_div_top_k_forward(CommandEncoder& encoder, const TopKTargets& teacher, const Buffer& student,
                          float temperature, bool rest_bucket, const Buffer& loss, const Buffer& stats) {
  check_targets("kl_div", teacher, student, temperature);
  check_row_values("kl_div", student, "loss", loss);
  check_stats("kl_div", student, stats);
  check_no_overlap("kl_div", "loss", loss, "teacher.rest_lse", teacher.rest_lse);
  const std::int64_t k = teacher.logits.shape().cols();
  encoder.encode({.kernel = str("kl_div_top_k_forward_", student.dtype()),
                  .params = params_bytes(params_of(student, k, temperature, rest_bucket, Accumulate::no)),
                  .reads = {teacher.logits, student, teacher.indices, teacher.rest_lse},
                  .writes = {loss, stats}});
}

void kl_div_top_k_backward(CommandEncoder& encoder, const TopKTargets& teacher, const Buffer& student,
                           float temperature, bool rest_bucket, const Buffer& stats, const Buffer& dloss,
                           const Buffer& dstudent, Accumulate accumulate) {
  check_targets("kl_div_backward", teacher, student, temperature);
  check_gradient("kl_div_backward", student, stats, dloss, dstudent, accumulate);
  check_device("kl_div_backward", "teacher.rest_lse", teacher.rest_lse, encoder.device());
  check_no_overlap("kl_div_backward", "dstudent", dstudent, "teacher.rest_lse", teacher.rest_lse);
  const std::int64_t k = teacher.logits.shape().cols();
  encoder.encode({.kernel = str("kl_div_top_k_backward_", student.dtype()),
                  .params = params_bytes(params_of(student, k, temperature, rest_bucket, accumulate)),
                  .reads = {teacher.logits, student, teacher.indices, stats, dloss},
                  .writes = {dstudent}});
}

Var kl_div(const Var& student, const Buffer& teacher, const KlOptions& options) {
  Tape& tape = common_tape("kl_div", {student});
  const float temperature = options.temperature;
  check_full("kl_div", teacher, student.value(), temperature);
  require(options.top_k >= 0, "kl_div: top_k is ", options.top_k, ", expected 0 or more");
  if (options.top_k > 0) {
    return kl_div(student, make_top_k_targets(tape.encoder(), teacher, options.top_k, temperature), options);
  }
  require(!options.rest_bucket, "kl_div: rest_bucket is set, but top_k is 0");
  const std::int64_t rows = student.shape().rows();
  const Buffer loss = tape.alloc(DType::f32, {rows});
  const Buffer stats = tape.alloc(DType::f32, {rows, kKlStats});
  kl_div_forward(tape.encoder(), teacher, student.value(), temperature, loss, stats);
  return tape.record("kl_div", {student}, loss,
                     [teacher, s = student.value(), temperature, stats](Backward& b) {
                       const auto [ds, accumulate] = b.grad(0);
                       kl_div_backward(b.encoder(), teacher, s, temperature, stats, b.dy(), ds, accumulate);
                     });
}

Var kl_div(const Var& student, const TopKTargets& teacher, const KlOptions& options) {
  Tape& tape = common_tape("kl_div", {student});
  check_targets("kl_div", teacher, student.value(), options.temperature);
  const std::int64_t k = teacher.logits.shape().cols();
  require(options.top_k == 0 || options.top_k == k, "kl_div: top_k is ", options.top_k, ", expected ", k,
          " like the targets");
  const std::int64_t rows = student.shape().rows();
  const Buffer loss = tape.alloc(DType::f32, {rows});
  const Buffer stats = tape.alloc(DType::f32, {rows, kKlStats});
  const float temperature = options.temperature;
  const bool rest_bucket = options.rest_bucket;
  kl_div_top_k_forward(tape.encoder(), teacher, student.value(), temperature, rest_bucket, loss, stats);
  return tape.record("kl_div", {student}, loss,
                     [teacher, s = student.value(), temperature, rest_bucket, stats](Backward& b) {
                       const auto [ds, accumulate] = b.grad(0);
                       kl_div_top_k_backward(b.encoder(), teacher, s, temperature, rest_bucket, stats, b.dy(),
                                             ds, accumulate);
                     });
}

}  // namespace mixtape
