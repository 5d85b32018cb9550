// The devices that improve a student together: each has the teacher, and a copy of the student that takes the same
// steps.
#pragma once

#include <memory>
#include <vector>

#include "mixtape/calib/method.h"
#include "mixtape/runtime/device_group.h"

namespace mixtape {

class Partners {
 public:
  // The group's first device is the teacher's; null: that one alone. What is passed must outlive the partners. Teachers
  // of the other devices are loaded when they are first needed, in their threads, and kept.
  Partners(const Teacher& teacher, DeviceGroup* group);
  ~Partners();
  Partners(const Partners&) = delete;
  Partners& operator=(const Partners&) = delete;

  // method.improve on all devices, each with its member of a communicator. The first one's student and report are the
  // result; it alone has the hooks, but for the states that the others find too.
  TrainReport improve(const Method& method, MethodInput input, Student& student);

 private:
  struct Partner;
  void take_part(const Method& method, const MethodInput& input, const Student& student,
                 Communicator& communicator);

  const Teacher& teacher_;
  DeviceGroup alone_;
  DeviceGroup& group_;
  std::vector<std::unique_ptr<Partner>> others_;  // of devices 1, 2, ...
};

}  // namespace mixtape
