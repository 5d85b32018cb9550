#include "mixtape/ops/matmul/matmul.h"

#include "mixtape/ops/matmul/matmul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// The last two dimensions of the operands, and how often; leading dimensions are folded into m for a flat b.
struct Sizes {
  std::int64_t batch, m, n, k;
};

bool same_leading(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (std::int64_t i = 0; i < a.rank() - 2; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

Sizes sizes(const char* op, const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  require(a.rank() >= 2 && b.rank() >= 2, op, ": a is ", a, ", b is ", b, ", expected rank 2 or more");
  const bool folded = b.rank() == 2 && (a.rank() == 2 || !trans_a);
  require(folded || same_leading(a, b), op, ": a is ", a, trans_a ? " transposed" : "", ", b is ", b,
          ", expected equal leading dimensions, or b of rank 2 and a not transposed");
  const std::int64_t last = a.rank() - 1;
  const std::int64_t k = trans_a ? a[last - 1] : a[last];
  const std::int64_t b_k = trans_b ? b[b.rank() - 1] : b[b.rank() - 2];
  require(k == b_k, op, ": a is ", a, trans_a ? " transposed" : "", ", b is ", b,
          trans_b ? " transposed" : "", ", expected the same inner dimension, got ", k, " and ", b_k);
  Sizes s{1, 0, trans_b ? b[b.rank() - 2] : b[b.rank() - 1], k};
  for (std::int64_t i = 0; i < last - 1; ++i) s.batch *= a[i];
  s.m = trans_a ? a[last] : a[last - 1];
  if (folded) {
    s.m *= s.batch;
    s.batch = 1;
  }
  return s;
}

Shape result_shape(const Shape& a, bool trans_a, std::int64_t n) {
  std::vector<std::int64_t> dims = a.dims();
  if (trans_a) dims[dims.size() - 2] = dims.back();
  dims.back() = n;
  return Shape(dims);
}

void check_dtypes(const char* op, const Buffer& a, const Buffer& b, const Buffer& y) {
  require(a.dtype() == b.dtype(), op, ": b is ", b, ", expected ", a.dtype(), " like a");
  require(y.dtype() == a.dtype() || y.dtype() == DType::f32, op, ": y is ", y, ", expected ", a.dtype(),
          " or f32");
}

// Checks y against a and b, for forward and backward alike.
Sizes check(const char* op, const Buffer& a, const Buffer& b, const char* y_name, const Buffer& y,
            bool trans_a, bool trans_b) {
  check_values(op, "a", a);
  check_values(op, "b", b);
  check_values(op, y_name, y);
  check_not_empty(op, "a", a);
  check_not_empty(op, "b", b);
  check_dtypes(op, a, b, y);
  const Sizes s = sizes(op, a.shape(), b.shape(), trans_a, trans_b);
  check_is(op, y_name, y, y.dtype(), result_shape(a.shape(), trans_a, s.n));
  return s;
}

void encode(CommandEncoder& encoder, const char* kernel, DType dtype, const Buffer& a, bool trans_a,
            const Buffer& b, bool trans_b, const Buffer& c, const Sizes& s, Accumulate accumulate) {
  const MatmulParams params{s.batch,
                            s.m,
                            s.n,
                            s.k,
                            static_cast<std::uint32_t>(trans_a),
                            static_cast<std::uint32_t>(trans_b),
                            static_cast<std::uint32_t>(accumulate)};
  encoder.encode(
      {.kernel = str(kernel, dtype), .params = params_bytes(params), .reads = {a, b}, .writes = {c}});
}

}  // namespace

void matmul_forward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y, bool trans_a,
                    bool trans_b) {
  const Sizes s = check("matmul", a, b, "y", y, trans_a, trans_b);
  check_no_overlap("matmul", "y", y, "a", a);
  check_no_overlap("matmul", "y", y, "b", b);
  encode(encoder, "matmul_forward_", a.dtype(), a, trans_a, b, trans_b, y, s, Accumulate::no);
}

// da [m,k] = dy * B^T; stored transposed: da [k,m] = B * dy^T.
void matmul_backward_a(CommandEncoder& encoder, const Buffer& b, const Buffer& dy, const Buffer& da,
                       bool trans_a, bool trans_b, Accumulate accumulate) {
  const Sizes s = check("matmul_backward_a", da, b, "dy", dy, trans_a, trans_b);
  check_no_overlap("matmul_backward_a", "da", da, "dy", dy);
  check_no_overlap("matmul_backward_a", "da", da, "b", b);
  const char* kernel = "matmul_backward_";
  if (trans_a) {
    encode(encoder, kernel, b.dtype(), b, trans_b, dy, true, da, {s.batch, s.k, s.m, s.n}, accumulate);
  } else {
    encode(encoder, kernel, b.dtype(), dy, false, b, !trans_b, da, {s.batch, s.m, s.k, s.n}, accumulate);
  }
}

// db [k,n] = A^T * dy; stored transposed: db [n,k] = dy^T * A.
void matmul_backward_b(CommandEncoder& encoder, const Buffer& a, const Buffer& dy, const Buffer& db,
                       bool trans_a, bool trans_b, Accumulate accumulate) {
  const Sizes s = check("matmul_backward_b", a, db, "dy", dy, trans_a, trans_b);
  check_no_overlap("matmul_backward_b", "db", db, "dy", dy);
  check_no_overlap("matmul_backward_b", "db", db, "a", a);
  const char* kernel = "matmul_backward_";
  if (trans_b) {
    encode(encoder, kernel, a.dtype(), dy, true, a, trans_a, db, {s.batch, s.n, s.k, s.m}, accumulate);
  } else {
    encode(encoder, kernel, a.dtype(), a, !trans_a, dy, false, db, {s.batch, s.k, s.n, s.m}, accumulate);
  }
}

Var matmul(const Var& a, const Var& b, bool trans_a, bool trans_b, std::optional<DType> out) {
  Tape& tape = common_tape("matmul", {a, b});
  const DType dtype = out.value_or(a.dtype());
  const Sizes s = sizes("matmul", a.shape(), b.shape(), trans_a, trans_b);
  const Shape shape = result_shape(a.shape(), trans_a, s.n);
  if (s.batch == 0 || s.m == 0) return tape.record_empty("matmul", {a, b}, dtype, shape);
  const Buffer y = tape.alloc(dtype, shape);
  matmul_forward(tape.encoder(), a.value(), b.value(), y, trans_a, trans_b);
  return tape.record("matmul", {a, b}, y, [a = a.value(), b = b.value(), trans_a, trans_b](Backward& back) {
    if (const auto [da, accumulate] = back.grad(0); da)
      matmul_backward_a(back.encoder(), b, back.dy(), da, trans_a, trans_b, accumulate);
    if (const auto [db, accumulate] = back.grad(1); db)
      matmul_backward_b(back.encoder(), a, back.dy(), db, trans_a, trans_b, accumulate);
  });
}

}  // namespace mixtape
