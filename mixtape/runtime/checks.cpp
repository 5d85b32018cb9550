#include "mixtape/runtime/checks.h"

namespace mixtape {

void check_values(const char* op, const char* argument, const Buffer& found) {
  require(found && is_value(found.dtype()) && found.shape().rank() > 0, op, ": ", argument, " is ", found,
          ", expected f32, bf16 or f16 of rank 1 or more");
}

void check_like(const char* op, const char* argument, const Buffer& found, const char* like,
                const Buffer& wanted) {
  require(found && found.dtype() == wanted.dtype() && found.shape() == wanted.shape(), op, ": ", argument,
          " is ", found, ", expected ", wanted, " like ", like);
}

void check_is(const char* op, const char* argument, const Buffer& found, DType dtype, const Shape& shape) {
  require(found && found.dtype() == dtype && found.shape() == shape, op, ": ", argument, " is ", found,
          ", expected ", dtype, shape);
}

void check_not_empty(const char* op, const char* argument, const Buffer& found) {
  require(found && found.numel() > 0, op, ": ", argument, " is ", found, ", expected no dimension of 0");
}

void check_row(const char* op, const char* argument, const Buffer& found) {
  require(found && found.shape().cols() > 0, op, ": ", argument, " is ", found,
          ", expected a last dimension of 1 or more");
}

void check_indices(const char* op, const char* argument, const Buffer& found) {
  require(found && (found.dtype() == DType::u32 || found.dtype() == DType::i32) && found.shape().rank() > 0,
          op, ": ", argument, " is ", found, ", expected u32 or i32 of rank 1 or more");
}

void check_no_overlap(const char* op, const char* output, const Buffer& a, const char* input,
                      const Buffer& b) {
  require(!overlap(a, b), op, ": ", output, " shares memory with ", input, ", expected separate buffers");
}

void check_gradients_apart(const char* op, const char* first, const Buffer& a, const char* second,
                           const Buffer& b, bool is_second_added) {
  require(is_second_added || !overlap(a, b), op, ": ", second, " shares memory with ", first,
          ", expected separate buffers, or one that is added to");
}

void check_device(const char* op, const char* argument, const Buffer& found, const Device& device) {
  require(found && found.device() == device, op, ": ", argument, " is ", found, ", expected it on ",
          device.name());
}

}  // namespace mixtape
