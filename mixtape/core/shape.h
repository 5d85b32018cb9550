// The dimensions of a buffer: row-major, last one contiguous, all sizes 64-bit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <vector>

namespace mixtape {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::vector<std::int64_t>(dims)) {}
  // Throws invalid_argument for a negative dimension or a product that overflows 63 bits.
  explicit Shape(std::vector<std::int64_t> dims);

  std::int64_t rank() const { return static_cast<std::int64_t>(dims_.size()); }
  std::int64_t operator[](std::int64_t axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  // Negative axes count from the end; throws invalid_argument naming `what` when there is no such axis.
  std::int64_t axis(std::int64_t axis, const char* what) const;
  std::int64_t numel() const { return numel_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }

  // The 2-D view: all leading dimensions folded, and the last one. A scalar is 1 x 1.
  std::int64_t rows() const;
  std::int64_t cols() const { return dims_.empty() ? 1 : dims_.back(); }

  // The same shape with dimension `axis` set to `size`.
  Shape with(std::int64_t axis, std::int64_t size) const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  std::vector<std::int64_t> dims_;
  std::int64_t numel_ = 1;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // [4,8]

}  // namespace mixtape
