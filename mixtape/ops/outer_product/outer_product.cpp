#include "mixtape/ops/outer_product/outer_product.h"

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// Throws unless a and b are vectors of one dtype with equal leading dimensions.
void check_vectors(const char* op, const Buffer& a, const Buffer& b) {
  check_values(op, "a", a);
  require(b && b.dtype() == a.dtype() && b.shape().rank() == a.shape().rank() &&
              b.shape().with(b.shape().rank() - 1, a.shape().cols()) == a.shape(),
          op, ": b is ", b, ", expected the dtype and leading dimensions of a ", a);
}

Shape output_shape(const Buffer& a, const Buffer& b) {
  std::vector<std::int64_t> dims = a.shape().dims();
  dims.push_back(b.shape().cols());
  return Shape(dims);
}

// Of dy [..., n, m] and the gradient of one vector, [..., n] or [..., m]: dimension `gone` of dy is summed.
void check_gradient(const char* op, const char* vector_name, const Buffer& vector, const Buffer& dy,
                    const char* gradient_name, const Buffer& gradient, bool sums_cols) {
  check_values(op, vector_name, vector);
  check_values(op, "dy", dy);
  const std::size_t rank = dy.shape().rank();
  require(rank >= 2 && vector.dtype() == dy.dtype(), op, ": dy is ", dy, ", expected ", vector.dtype(),
          " of rank 2 or more");
  std::vector<std::int64_t> with_vector = dy.shape().dims(), with_gradient = with_vector;
  with_vector.erase(with_vector.end() - (sums_cols ? 2 : 1));
  with_gradient.erase(with_gradient.end() - (sums_cols ? 1 : 2));
  check_is(op, vector_name, vector, dy.dtype(), Shape(with_vector));
  check_is(op, gradient_name, gradient, dy.dtype(), Shape(with_gradient));
  check_not_empty(op, "dy", dy);
  check_no_overlap(op, gradient_name, gradient, "dy", dy);
  check_no_overlap(op, gradient_name, gradient, vector_name, vector);
}

OuterProductParams params_of(const Buffer& y, Accumulate accumulate) {
  const std::int64_t n = y.shape()[y.shape().rank() - 2], m = y.shape().cols();
  return {y.shape().rows() / n, n, m, static_cast<std::uint32_t>(accumulate)};
}

}  // namespace

void outer_product_forward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y) {
  check_vectors("outer_product", a, b);
  check_not_empty("outer_product", "a", a);
  check_not_empty("outer_product", "b", b);
  check_is("outer_product", "y", y, a.dtype(), output_shape(a, b));
  check_no_overlap("outer_product", "y", y, "a", a);
  check_no_overlap("outer_product", "y", y, "b", b);
  encoder.encode({.kernel = str("outer_product_forward_", a.dtype()),
                  .params = params_bytes(params_of(y, Accumulate::no)),
                  .reads = {a, b},
                  .writes = {y}});
}

void outer_product_backward_a(CommandEncoder& encoder, const Buffer& b, const Buffer& dy, const Buffer& da,
                              Accumulate accumulate) {
  check_gradient("outer_product_backward_a", "b", b, dy, "da", da, true);
  encoder.encode({.kernel = str("outer_product_backward_a_", dy.dtype()),
                  .params = params_bytes(params_of(dy, accumulate)),
                  .reads = {b, dy},
                  .writes = {da}});
}

void outer_product_backward_b(CommandEncoder& encoder, const Buffer& a, const Buffer& dy, const Buffer& db,
                              Accumulate accumulate) {
  check_gradient("outer_product_backward_b", "a", a, dy, "db", db, false);
  encoder.encode({.kernel = str("outer_product_backward_b_", dy.dtype()),
                  .params = params_bytes(params_of(dy, accumulate)),
                  .reads = {a, dy},
                  .writes = {db}});
}

Var outer_product(const Var& a, const Var& b) {
  Tape& tape = common_tape("outer_product", {a, b});
  check_vectors("outer_product", a.value(), b.value());
  const Shape shape = output_shape(a.value(), b.value());
  if (shape.numel() == 0) return tape.record_empty("outer_product", {a, b}, a.dtype(), shape);
  const Buffer y = tape.alloc(a.dtype(), shape);
  outer_product_forward(tape.encoder(), a.value(), b.value(), y);
  return tape.record("outer_product", {a, b}, y, [a = a.value(), b = b.value()](Backward& back) {
    if (const auto [da, accumulate] = back.grad(0); da)
      outer_product_backward_a(back.encoder(), b, back.dy(), da, accumulate);
    if (const auto [db, accumulate] = back.grad(1); db)
      outer_product_backward_b(back.encoder(), a, back.dy(), db, accumulate);
  });
}

}  // namespace mixtape
