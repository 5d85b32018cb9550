// Fits that make up for the errors of the layers below. A student's matrix sees z where the teacher's sees x; the matrix
// that comes nearest to the teacher's outputs W x from inputs z is, with cross moments C = sum of x z^T and second
// moments H = sum of z z^T,
//   W + W (C - H) (H + damping * mean(diag H) * I)^-1
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

// The matrix moved so far (share 1: all the way) towards that one; w f32 [N, K], the result too. By conjugate
// gradients, preconditioned by the diagonal, as far as 16 iterations go: what is left then lies in directions that the
// inputs hardly have.
Buffer shifted_target(const Buffer& w, const InputStatistics& inputs, double share, double damping);

// The same half the way, which is worth more than all of it: the errors at hand are this student's on these rows alone.
// Of experts, of what is looked up and without cross moments w itself.
Buffer target_of(const PlannedModule& module, const Buffer& w, const InputStatistics* inputs);

// A method that fits, to those targets.
Method following(Method method);

}  // namespace mixtape
