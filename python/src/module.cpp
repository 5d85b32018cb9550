// The Python module mixtape._mixtape.
#include <nanobind/stl/string.h>

#include "python/src/bindings.h"

namespace mixtape::python {
namespace {

// mixtape.Error, a RuntimeError, with the library's message and code.
void bind_error(nb::module_& module) {
  nb::dict members;
  members["__doc__"] =
      "What the library refuses: `code` is one of invalid_argument, index_out_of_range, "
      "out_of_memory, not_supported, device, io, format and interrupted.";
  members["code"] = "";
  const std::string full_name = nb::cast<std::string>(module.attr("__name__")) + ".Error";
  nb::object type = nb::steal(PyErr_NewException(full_name.c_str(), PyExc_RuntimeError, members.ptr()));
  module.attr("Error") = type;
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* error_type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          nb::object raised = nb::handle(static_cast<PyObject*>(error_type))(error.what());
          raised.attr("code") = name(error.code());
          PyErr_SetObject(static_cast<PyObject*>(error_type), raised.ptr());
        }
      },
      type.ptr());
}

}  // namespace

NB_MODULE(_mixtape, module) {
  module.doc() = "Ops with gradients, a tape over them, and calibration of quantized language models.";
  module.attr("__version__") = MIXTAPE_VERSION;
  bind_error(module);
  bind_tensors(module);
  bind_ops(module);
  bind_figures(module);
  bind_models(module);
}

}  // namespace mixtape::python
