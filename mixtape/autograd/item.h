// A single element, read.
#pragma once

#include "mixtape/autograd/tape.h"

namespace mixtape {

// The value of x's only element, once the tape's pending work is done. Any dtype. Throws invalid_argument where x has
// another number of elements, and what the device reports.
double item(const Var& x);

}  // namespace mixtape
