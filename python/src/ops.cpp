// A tape and ops on it, forward and backward.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/src/bindings.h"

namespace mixtape::python {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;

// Waits for what the tape has encoded; errors that surface then are thrown.
void wait_for(const Var& var) {
  if (var.has_tape()) var.tape().encoder().commit_and_wait();
}

std::optional<Buffer> grad_of(const Var& var) {
  wait_for(var);
  if (!var.grad()) return std::nullopt;
  return var.grad();
}

Buffer value_of(const Var& var) {
  wait_for(var);
  return var.value();
}

void bind_tape(nb::module_& module) {
  nb::class_<Var>(module, "Var", "A buffer on a tape, which remembers how it was made.")
      .def_prop_ro("value", &value_of)
      .def_prop_ro("grad", &grad_of, "What backward left in a parameter; None if nothing reached it.")
      .def_prop_ro("requires_grad", &Var::requires_grad)
      .def("clear_grad", &Var::clear_grad)
      .def("detach", &Var::detach, "The same value, cut off from the graph.");

  nb::class_<Tape>(
      module, "Tape",
      "Records ops and walks them backwards. It must live as long as ops are applied to its Vars. Arrays "
      "that are given to it are not copied: what they hold must not change before backward.")
      .def(
          "__init__", [](Tape* tape, const std::string& device) { new (tape) Tape(Device::open(device)); },
          nb::arg("device") = "cpu")
      .def_prop_ro("device", [](const Tape& tape) { return tape.device().name(); })
      .def(
          "parameter", [](Tape& tape, const nb::object& a) { return tape.parameter(buffer_of(a)); },
          nb::arg("array"), "A leaf that gathers a gradient: f32, bf16 or f16.")
      .def(
          "constant", [](Tape& tape, const nb::object& a) { return tape.constant(buffer_of(a)); },
          nb::arg("array"), "A leaf without gradient.")
      .def("backward", nb::overload_cast<const Var&>(&Tape::backward), nb::arg("loss"), NoGil(),
           "Adds d loss / d leaf to every parameter's gradient. `loss` has one element.")
      .def(
          "backward",
          [](Tape& tape, const Var& output, const nb::object& dy) {
            const Buffer upstream = buffer_of(dy);
            const nb::gil_scoped_release released;
            tape.backward(output, upstream);
          },
          nb::arg("output"), nb::arg("dy"), "The same with the gradient `dy`, of output's dtype and shape.");
}

void bind_quantized(nb::module_& module) {
  nb::enum_<Rounding>(module, "Rounding", "Which of MLX's two sets of rounding rules applies.")
      .value("gpu", Rounding::gpu)
      .value("cpu", Rounding::cpu);

  nb::class_<QuantizedWeight>(module, "QuantizedWeight",
                              "Codes u32 [..., N, K/32*bits], scales and biases [..., N, K/group_size]; "
                              "w = code * scale + bias.")
      .def_ro("codes", &QuantizedWeight::codes)
      .def_ro("scales", &QuantizedWeight::scales)
      .def_ro("biases", &QuantizedWeight::biases)
      .def_prop_ro("bits", [](const QuantizedWeight& w) { return w.format.bits; })
      .def_prop_ro("group_size", [](const QuantizedWeight& w) { return w.format.group_size; });

  module.def(
      "quantize_matrix",
      [](const nb::object& w, std::int32_t bits, std::int32_t group_size, Rounding rounding,
         DType scale_dtype) {
        const Buffer weight = buffer_of(w);
        const nb::gil_scoped_release released;
        return quantize_matrix("w", weight, {bits, group_size}, rounding, scale_dtype);
      },
      nb::arg("w"), nb::arg("bits") = 4, nb::arg("group_size") = 64, nb::arg("rounding") = Rounding::gpu,
      nb::arg("scale_dtype") = DType::f32, "Plain rounding of w [..., N, K], as MLX does.");

  nb::class_<QuantizedVar>(module, "QuantizedVar",
                           "A quantized weight on a tape: gradients go to scales and biases.")
      .def(
          "__init__",
          [](QuantizedVar* q, const nb::object& codes, const Var& scales, const Var& biases,
             std::int32_t bits, std::int32_t group_size) {
            new (q) QuantizedVar{buffer_of(codes), scales, biases, {bits, group_size}};
          },
          nb::arg("codes"), nb::arg("scales"), nb::arg("biases"), nb::arg("bits"), nb::arg("group_size"))
      .def_ro("scales", &QuantizedVar::scales)
      .def_ro("biases", &QuantizedVar::biases);

  module.def("dequantize_affine", &dequantize_affine, nb::arg("q"), nb::arg("dtype") = DType::f32, NoGil(),
             "w = code * scale + bias in `dtype`.");
  module.def("quantized_matmul", &quantized_matmul, nb::arg("x"), nb::arg("w"), nb::arg("out") = nb::none(),
             NoGil(), "x [..., K] times a quantized w [N, K], transposed: [..., N], in `out` or x's dtype.");
}

}  // namespace

void bind_ops(nb::module_& module) {
  bind_tape(module);
  bind_quantized(module);
  module.def("matmul", &matmul, nb::arg("a"), nb::arg("b"), nb::arg("trans_a") = false,
             nb::arg("trans_b") = false, nb::arg("out") = nb::none(), NoGil(),
             "The product of a [..., m, k] and b [..., k, n], or their transposes, in `out` or a's dtype.");
  module.def("softmax", &softmax, nb::arg("x"), NoGil(), "Over the last axis.");
  module.def(
      "kl_div",
      [](const Var& student, const nb::object& teacher, float temperature, std::int64_t top_k,
         bool rest_bucket) {
        const Buffer logits = buffer_of(teacher);
        const nb::gil_scoped_release released;
        return kl_div(student, logits, KlOptions{temperature, top_k, rest_bucket});
      },
      nb::arg("student"), nb::arg("teacher"), nb::arg("temperature") = 1.0f, nb::arg("top_k") = 0,
      nb::arg("rest_bucket") = false,
      "KL(softmax(teacher/T) || softmax(student/T)) of logits [..., vocab], one per row; the teacher is a "
      "constant.");
}

}  // namespace mixtape::python
