// What the parts of the Python module share. Each part only names functions of the library; names, defaults and
// errors are the library's.
#pragma once

#include <nanobind/nanobind.h>

#include "mixtape/mixtape.h"

namespace mixtape::python {

namespace nb = nanobind;

void bind_tensors(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_figures(nb::module_& module);
void bind_models(nb::module_& module);

// A buffer's own handle, or one around the memory of whatever speaks DLPack: NumPy's arrays, PyTorch's tensors.
// Nothing is copied; the array lives as long as the buffer. Throws invalid_argument for an array that is read-only, has
// gaps between its elements or a dtype that no buffer has, not_supported for one that is not in host memory.
Buffer buffer_of(const nb::object& array);

}  // namespace mixtape::python
