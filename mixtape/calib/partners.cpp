#include "mixtape/calib/partners.h"

#include "mixtape/calib/kept_states.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

// Through host memory.
Buffer copy_to(const Device& device, const Buffer& b) {
  std::vector<std::byte> bytes(b.bytes());
  b.read_bytes(bytes.data());
  const Buffer copy = device.alloc_uninitialized(b.dtype(), b.shape());
  copy.write_bytes(bytes.data());
  return copy;
}

// Float tensors that don't train are the teacher's there.
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

}  // namespace

struct Partners::Partner {
  Partner(const Teacher& first, const Device& device)
      : tape(device), teacher(first.source(), first.compute(), first.model().is_streamed(), tape) {}
  Tape tape;
  Teacher teacher;
};

Partners::Partners(const Teacher& teacher, DeviceGroup* group)
    : teacher_(teacher),
      alone_({teacher.tape().device()}),
      group_(group ? *group : alone_),
      others_(group_.devices().size() - 1) {
  const Device &first = group_.devices()[0], &wanted = teacher.tape().device();
  require(first == wanted, "devices: the first one is ", first.name(), ", expected the teacher's, ",
          wanted.name());
}

Partners::~Partners() = default;

TrainReport Partners::improve(const Method& method, MethodInput input, Student& student) {
  TrainReport report;
  group_.run([&](Communicator& communicator) {
    if (communicator.rank() > 0) return take_part(method, input, student, communicator);
    communicator.meet();  // the others have their copies
    MethodInput first = input;
    first.communicator = &communicator;
    report = method.improve(first, student);
  });
  return report;
}

void Partners::take_part(const Method& method, const MethodInput& input, const Student& student,
                         Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::unique_ptr<Partner>& partner = others_[rank - 1];
  if (!partner) partner = std::make_unique<Partner>(teacher_, group_.devices()[rank]);
  Student copy = copy_to(partner->teacher, student, input.plan);
  communicator.meet();
  FoundStates states(input.hooks.states);
  const RunHooks hooks{.progress = {}, .should_stop = {}, .states = &states, .scope = input.hooks.scope};
  method.improve({partner->teacher, input.plan, input.data, hooks, input.start_kl, &communicator}, copy);
}

}  // namespace mixtape
