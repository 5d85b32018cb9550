#include "mixtape/calib/learned_codes.h"

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/select.h"
#include "mixtape/ops/latent_codes/latent_codes.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/creation.h"

namespace mixtape {
namespace {

// A code's cell ends half a code from it, on which side ties round depends on the code: a little less.
constexpr double kHalfCell = 0.499;

// The codes themselves, f32 [..., N, K].
Var codes_as_numbers(Tape& tape, const QuantizedWeight& q) {
  const Device& device = tape.device();
  const Var one = tape.constant(ones(device, q.scales.shape())),
            zero = tape.constant(zeros(device, q.scales.shape()));
  return dequantize_affine({q.codes, one, zero, q.format}, DType::f32);
}

Buffer latent_of(Tape& tape, const Buffer& w, const QuantizedWeight& q) {
  const NoGrad guard(tape);
  const std::int64_t group = q.format.group_size, groups = w.numel() / group;
  const auto by_group = [&](const Buffer& b, std::int64_t cols) {
    return tape.constant(b.reshape({groups, cols}));
  };
  const Var exact = (by_group(w, group) - by_group(q.biases, 1)) / by_group(q.scales, 1);  // [groups, g]
  const Var codes = reshape(codes_as_numbers(tape, q), {groups, group});
  const Var latent = where(abs(exact - codes) < kHalfCell, exact, codes);
  tape.encoder().commit_and_wait();
  return latent.value().reshape(w.shape());
}

}  // namespace

void add_latent_codes(Student& student, const Teacher& teacher, const QuantizationPlan& plan,
                      const std::string& at) {
  for (const auto& [path, q] : student.parameters.quantized) {
    const PlannedModule& module = *plan.find(path);
    if (module.kind == TensorKind::embedding || !path.starts_with(at)) continue;
    const Buffer w = teacher.source().load(module.source, DType::f32, teacher.tape().device());
    student.parameters.latent.emplace(path, latent_of(teacher.tape(), w, q));
  }
}

void pack_latent_codes(Student& student, const Device& device) {
  CommandEncoder encoder(device);
  for (const auto& [path, latent] : student.parameters.latent) {
    QuantizedWeight& q = student.parameters.quantized.at(path);
    const Buffer codes = device.alloc_uninitialized(DType::u32, q.codes.shape());
    pack_codes_forward(encoder, latent, codes, q.format);
    q.codes = codes;
  }
  encoder.commit_and_wait();
  student.parameters.latent.clear();
}

}  // namespace mixtape
