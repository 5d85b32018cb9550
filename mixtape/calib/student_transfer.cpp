#include "mixtape/calib/student_transfer.h"

#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

Bytes bytes_of(const Buffer& b) {
  Bytes bytes(b.bytes());
  b.read_bytes(bytes.data());
  return bytes;
}

Buffer buffer_of(const Bytes& bytes, const Device& device, DType dtype, const Shape& shape) {
  const Buffer b = device.alloc_uninitialized(dtype, shape);
  require(b.bytes() == bytes.size(), "student: a tensor came in ", bytes.size(), " bytes, expected ",
          b.bytes());
  b.write_bytes(bytes.data());
  return b;
}

Buffer copy_to(const Device& device, const Buffer& b) {
  return buffer_of(bytes_of(b), device, b.dtype(), b.shape());
}

void send(Processes& processes, const Buffer& b) {
  Bytes bytes = bytes_of(b);
  processes.broadcast(Exchange::message, bytes);
}

Bytes received(Processes& processes) {
  Bytes bytes;
  processes.broadcast(Exchange::message, bytes);
  return bytes;
}

}  // namespace

Student copy_to(const Teacher& teacher, const Student& student, const QuantizationPlan& plan) {
  const Device& device = teacher.tape().device();
  Student copy = unfitted_student(teacher, plan);
  for (const auto& [path, q] : student.parameters.quantized) {
    std::vector<Buffer> buffers = codec_of(q).buffers(q);
    for (Buffer& b : buffers) b = copy_to(device, b);
    copy.parameters.quantized.emplace(path, codec_of(q).weight(buffers, format_of(q)));
  }
  copy.floats_train = student.floats_train;
  if (!student.floats_train) return copy;
  for (auto& [name, value] : copy.parameters.dense)
    value = copy_to(device, student.parameters.dense.at(name));
  return copy;
}

void send_student(Processes& processes, const Student& student, const QuantizationPlan& plan) {
  Bytes floats_train = {std::byte{student.floats_train}};
  processes.broadcast(Exchange::message, floats_train);
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const QuantizedWeight& q = student.parameters.quantized.at(m.path);
    for (const Buffer& b : codec_of(q).buffers(q)) send(processes, b);
  }
  if (!student.floats_train) return;
  for (const auto& [name, value] : student.parameters.dense) send(processes, value);
}

Student receive_student(Processes& processes, const Teacher& teacher, const QuantizationPlan& plan) {
  const Device& device = teacher.tape().device();
  Student student = unfitted_student(teacher, plan);
  student.floats_train = received(processes) == Bytes{std::byte{true}};
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const WeightCodec& codec = codec_of(*m.stored);
    std::vector<Buffer> buffers;
    for (const WeightPart& part : codec.parts(m.shape, *m.stored, DType::f32))
      buffers.push_back(buffer_of(received(processes), device, part.dtype, part.shape));
    student.parameters.quantized.emplace(m.path, codec.weight(buffers, *m.stored));
  }
  if (!student.floats_train) return student;
  for (auto& [name, value] : student.parameters.dense)
    value = buffer_of(received(processes), device, DType::f32, value.shape());
  return student;
}

}  // namespace mixtape
