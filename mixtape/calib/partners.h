// The devices that improve a student together, of this process and of others: each has the teacher, and a copy of the
// student that takes the same steps.
#pragma once

#include <memory>
#include <vector>

#include "mixtape/calib/method.h"
#include "mixtape/runtime/device_group.h"

namespace mixtape {

class Partners {
 public:
  // The group's first device of this process is the teacher's; null: that one alone. What is passed must outlive the
  // partners. Teachers of the other devices are loaded when they are first needed, in their threads, and kept.
  Partners(const Teacher& teacher, DeviceGroup* group);
  ~Partners();
  Partners(const Partners&) = delete;
  Partners& operator=(const Partners&) = delete;

  // improve of method number `i` on all devices, each with its member of a communicator. The first one's student and
  // report are the result; it alone has the hooks, but for the states that the others find too.
  TrainReport improve(const std::vector<Method>& methods, std::size_t i, MethodInput input, Student& student);
  // Tells the other processes that nothing follows.
  void end();
  // What other processes than the first one do: their part of what it improves, until it ends. The input is the first
  // one's but for start_kl; of the hooks, those of the whole work, it has should_stop, which ends all, and states.
  void follow(const std::vector<Method>& methods, const MethodInput& input);

 private:
  struct Partner;
  TrainReport improve_here(const Method& method, const MethodInput& input, Student& student);
  void take_part(const Method& method, const MethodInput& input, const Student& student, std::size_t index,
                 Communicator& communicator);

  const Teacher& teacher_;
  DeviceGroup alone_;
  DeviceGroup& group_;
  std::vector<std::unique_ptr<Partner>> others_;  // of this process's devices 1, 2, ...
};

// The hooks of the stage that method number i is, within those of the whole work.
RunHooks hooks_of_stage(const RunHooks& hooks, std::size_t i);

}  // namespace mixtape
