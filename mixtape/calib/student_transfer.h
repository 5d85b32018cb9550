// A student on its way to another device, through host memory, or to other processes.
#pragma once

#include "mixtape/calib/student.h"
#include "mixtape/runtime/processes.h"

namespace mixtape {

// On the teacher's device. Float tensors that don't train are the teacher's there.
Student copy_to(const Teacher& teacher, const Student& student, const QuantizationPlan& plan);

// From rank 0, which sends, to all others, which receive, by the same plan.
void send_student(Processes& processes, const Student& student, const QuantizationPlan& plan);
Student receive_student(Processes& processes, const Teacher& teacher, const QuantizationPlan& plan);

}  // namespace mixtape
