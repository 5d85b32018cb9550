#include "mixtape/core/shape.h"

#include "mixtape/core/error.h"

namespace mixtape {

Shape::Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {
  bool overflow = false;
  for (const std::int64_t d : dims_) {
    require(d >= 0, "shape: dimension is ", d, ", expected 0 or more");
    overflow |= __builtin_mul_overflow(numel_, d == 0 ? 1 : d, &numel_);
  }
  require(!overflow, "shape: ", *this, " has more elements than 63 bits can count");
  for (const std::int64_t d : dims_) {
    if (d == 0) numel_ = 0;
  }
}

std::int64_t Shape::axis(std::int64_t axis, const char* what) const {
  const std::int64_t found = axis < 0 ? axis + rank() : axis;
  require(found >= 0 && found < rank(), what, ": invalid axis ", axis, ", expected ", -rank(), " to ",
          rank() - 1, " for shape ", *this);
  return found;
}

std::int64_t Shape::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < dims_.size(); ++i) rows *= dims_[i];
  return rows;
}

Shape Shape::with(std::int64_t axis, std::int64_t size) const {
  std::vector<std::int64_t> dims = dims_;
  dims[static_cast<std::size_t>(axis)] = size;
  return Shape(std::move(dims));
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (std::int64_t i = 0; i < shape.rank(); ++i) out << (i ? "," : "") << shape[i];
  return out << ']';
}

}  // namespace mixtape
