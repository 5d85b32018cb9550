#include "mixtape/calib/partners.h"

#include <cstring>

#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/student_transfer.h"

namespace mixtape {
namespace {

// What the first process tells the others before they improve a student together.
struct Task {
  std::uint64_t method = 0, is_end = 0, has_kl = 0;
  double kl = 0.0;  // that the student starts at
};

void send(Processes& processes, const Task& task) {
  const auto part = std::as_bytes(std::span(&task, 1));
  Bytes bytes(part.begin(), part.end());
  processes.broadcast(Exchange::message, bytes);
}

Task received_task(Processes& processes) {
  Bytes bytes;
  processes.broadcast(Exchange::message, bytes);
  Task task;
  require(bytes.size() == sizeof task, "calibrate: a task came in ", bytes.size(), " bytes, expected ",
          sizeof task);
  std::memcpy(&task, bytes.data(), sizeof task);
  return task;
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

TrainReport Partners::improve(const std::vector<Method>& methods, std::size_t i, MethodInput input,
                              Student& student) {
  if (Processes* processes = group_.processes()) {
    send(*processes, {.method = i, .has_kl = input.start_kl ? 1U : 0U, .kl = input.start_kl.value_or(0.0)});
    send_student(*processes, student, input.plan);
  }
  return improve_here(methods[i], input, student);
}

void Partners::end() {
  if (Processes* processes = group_.processes()) send(*processes, {.is_end = 1});
}

void Partners::follow(const std::vector<Method>& methods, const MethodInput& in) {
  FoundStates states(in.hooks.states);
  for (;;) {
    const Task task = received_task(*group_.processes());
    if (task.is_end) return;
    RunHooks hooks = hooks_of_stage(in.hooks, task.method);
    hooks.states = &states;
    Student student = receive_student(*group_.processes(), teacher_, in.plan);
    const auto kl = task.has_kl ? std::optional(task.kl) : std::nullopt;
    improve_here(methods.at(task.method), {teacher_, in.plan, in.data, hooks, kl}, student);
  }
}

TrainReport Partners::improve_here(const Method& method, const MethodInput& input, Student& student) {
  TrainReport report;
  group_.run([&](Communicator& communicator) {
    const auto index = static_cast<std::size_t>(communicator.rank() - group_.first_rank());
    if (index > 0) return take_part(method, input, student, index, communicator);
    communicator.meet();  // the others have their copies
    MethodInput first = input;
    first.communicator = &communicator;
    report = method.improve(first, student);
  });
  return report;
}

void Partners::take_part(const Method& method, const MethodInput& input, const Student& student,
                         std::size_t index, Communicator& communicator) {
  std::unique_ptr<Partner>& partner = others_[index - 1];
  if (!partner) partner = std::make_unique<Partner>(teacher_, group_.devices()[index]);
  Student copy = copy_to(partner->teacher, student, input.plan);
  communicator.meet();
  FoundStates states(input.hooks.states);
  const RunHooks hooks{.progress = {}, .should_stop = {}, .states = &states, .scope = input.hooks.scope};
  method.improve({partner->teacher, input.plan, input.data, hooks, input.start_kl, &communicator}, copy);
}

RunHooks hooks_of_stage(const RunHooks& hooks, std::size_t i) { return within(hooks, str("stage ", i, " ")); }

}  // namespace mixtape
