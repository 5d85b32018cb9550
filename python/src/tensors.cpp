// Buffers, to and from whatever speaks DLPack.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bindings.h"

namespace mixtape::python {
namespace {

using Code = nb::dlpack::dtype_code;

struct DTypePair {
  DType ours;
  Code code;
  std::uint8_t bits;
};
constexpr DTypePair kDTypes[] = {{DType::f32, Code::Float, 32}, {DType::bf16, Code::Bfloat, 16},
                                 {DType::f16, Code::Float, 16}, {DType::i32, Code::Int, 32},
                                 {DType::u32, Code::UInt, 32},  {DType::u8, Code::UInt, 8},
                                 {DType::u16, Code::UInt, 16}};

DType dtype_of(nb::dlpack::dtype d) {
  for (const DTypePair& p : kDTypes) {
    if (static_cast<std::uint8_t>(p.code) == d.code && p.bits == d.bits && d.lanes == 1) return p.ours;
  }
  fail(ErrorCode::invalid_argument, "from_dlpack: found elements of ", static_cast<int>(d.bits),
       " bits, DLPack's type ", static_cast<int>(d.code), ", expected f32, bf16, f16, i32, u32, u8 or u16");
}

nb::dlpack::dtype dlpack_of(DType dtype) {
  const DTypePair* p = kDTypes;
  while (p->ours != dtype) ++p;
  return {static_cast<std::uint8_t>(p->code), p->bits, 1};
}

// Strides count elements.
void require_dense(const nb::ndarray<>& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    const auto size = static_cast<std::int64_t>(array.shape(i));
    require(size == 1 || array.size() == 0 || array.stride(i) == expected, "from_dlpack: axis ", i,
            " has a stride of ", array.stride(i), " elements, expected ", expected,
            ", an array without gaps (numpy.ascontiguousarray, torch's contiguous)");
    expected *= size;
  }
}

nb::tuple shape_tuple(const Buffer& b) { return nb::tuple(nb::cast(b.shape().dims())); }

// The buffer as an array of nanobind's own, which speaks DLPack: its memory, kept alive.
nb::object array_of(const Buffer& b) {
  auto kept = std::make_unique<Buffer>(b);
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<Buffer*>(p); });
  kept.release();
  std::vector<std::size_t> dims(b.shape().dims().begin(), b.shape().dims().end());
  return nb::cast(nb::ndarray<nb::array_api>(b.host_bytes(), dims.size(), dims.data(), owner, nullptr,
                                             dlpack_of(b.dtype()), nb::device::cpu::value, 0));
}

}  // namespace

Buffer buffer_of(const nb::object& array) {
  Buffer own;
  if (nb::try_cast(array, own, false)) return own;
  nb::ndarray<> outside;
  require(nb::try_cast(array, outside, false), "from_dlpack: found ", nb::type_name(array.type()).c_str(),
          ", expected an array that speaks DLPack and may be written to");
  if (outside.device_type() != nb::device::cpu::value)
    fail(ErrorCode::not_supported, "from_dlpack: found an array on DLPack's device ", outside.device_type(),
         ", expected one in host memory");
  require_dense(outside);
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < outside.ndim(); ++i)
    dims.push_back(static_cast<std::int64_t>(outside.shape(i)));
  const auto owner = std::make_shared<nb::ndarray<>>(outside);
  return Buffer::wrap(Device::cpu(), dtype_of(outside.dtype()), Shape(dims), outside.data(), owner);
}

void bind_tensors(nb::module_& module) {
  nb::enum_<DType>(module, "DType", "Element types of a buffer.")
      .value("f32", DType::f32)
      .value("bf16", DType::bf16)
      .value("f16", DType::f16)
      .value("i32", DType::i32)
      .value("u32", DType::u32)
      .value("u8", DType::u8)
      .value("u16", DType::u16);

  nb::class_<Buffer>(module, "Buffer",
                     "Memory with a dtype and a shape. It speaks DLPack: numpy.from_dlpack(buffer) and "
                     "torch.from_dlpack(buffer) are views of it.")
      .def_prop_ro("dtype", &Buffer::dtype)
      .def_prop_ro("shape", &shape_tuple, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("device", [](const Buffer& b) { return b.device().name(); })
      .def(
          "reshape",
          [](const Buffer& b, const std::vector<std::int64_t>& shape) { return b.reshape(Shape(shape)); },
          nb::arg("shape"), "A view of the same memory.")
      .def("__dlpack__",
           [](const Buffer& b, const nb::kwargs& how) { return array_of(b).attr("__dlpack__")(**how); })
      .def(
          "__dlpack_device__", [](const Buffer& b) { return array_of(b).attr("__dlpack_device__")(); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const Buffer& b) { return str(b); });

  module.def(
      "from_dlpack", &buffer_of, nb::arg("array"),
      "A buffer around the memory of an array (NumPy's, PyTorch's, any that speaks DLPack), nothing copied. "
      "The array must be in host memory, writable and without gaps.");
}

}  // namespace mixtape::python
