#include "mixtape/ops/matmul/matmul.h"

#include "mixtape/autograd/gradients.h"
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
  check_dtypes(op, a, b, y);
  const Sizes s = sizes(op, a.shape(), b.shape(), trans_a, trans_b);
  check_is(op, y_name, y, y.dtype(), result_shape(a.shape(), trans_a, s.n));
  return s;
}

void encode(CommandEncoder& encoder, const char* kernel, DType dtype, const Buffer& a, bool trans_a,
            const Buffer& b, bool trans_b, const Buffer& c, const Sizes& s, Accumulate accumulate,
            const Buffer& addend = Buffer()) {
  const MatmulParams params{s.batch,
                            s.m,
                            s.n,
                            s.k,
                            static_cast<std::uint32_t>(trans_a),
                            static_cast<std::uint32_t>(trans_b),
                            static_cast<std::uint32_t>(accumulate)};
  std::vector<Buffer> reads = {a, b};
  if (addend) reads.push_back(addend);
  encoder.encode({.kernel = str(kernel, dtype),
                  .params = params_bytes(params),
                  .reads = std::move(reads),
                  .writes = {c},
                  .is_empty = s.k == 0,
                  .adds = accumulate == Accumulate::yes});
}

void encode_backward(CommandEncoder& encoder, const Buffer& a, bool trans_a, const Buffer& b, bool trans_b,
                     const Backward::Target& out, const Sizes& s) {
  encode(encoder, "matmul_backward_", out.buffer.dtype(), a, trans_a, b, trans_b, out.buffer, s,
         out.accumulate);
}

}  // namespace

void matmul_forward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& y, bool trans_a,
                    bool trans_b, const Buffer& addend) {
  const Sizes s = check("matmul", a, b, "y", y, trans_a, trans_b);
  check_no_overlap("matmul", "y", y, "a", a);
  check_no_overlap("matmul", "y", y, "b", b);
  if (addend) {
    check_is("matmul", "addend", addend, y.dtype(), y.shape());
    check_no_overlap("matmul", "y", y, "addend", addend);
    if (s.k == 0) return encoder.copy(addend, y);
  }
  encode(encoder, "matmul_forward_", a.dtype(), a, trans_a, b, trans_b, y, s, Accumulate::no, addend);
}

void matmul_backward(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& dy,
                     const Backward::Target& da, const Backward::Target& db, bool trans_a, bool trans_b) {
  const char* op = "matmul_backward";
  require((a || !db.buffer) && (b || !da.buffer), op, ": a is ", a, ", b is ", b, ", expected both");
  const Buffer &like_a = a ? a : da.buffer, &like_b = b ? b : db.buffer;
  const Sizes s = check(op, like_a, like_b, "dy", dy, trans_a, trans_b);
  for (const Buffer& input : {like_a, like_b}) check_device(op, "an operand", input, encoder.device());
  Gradients out(op, encoder);
  out.add("da", da, "a", like_a, {a, b, dy});
  out.add("db", db, "b", like_b, {a, b, dy});
  // da [m,k] = dy * B^T; stored transposed: da [k,m] = B * dy^T.
  if (da.buffer && trans_a) {
    encode_backward(encoder, b, trans_b, dy, true, da, {s.batch, s.k, s.m, s.n});
  } else if (da.buffer) {
    encode_backward(encoder, dy, false, b, !trans_b, da, {s.batch, s.m, s.k, s.n});
  }
  // db [k,n] = A^T * dy; stored transposed: db [n,k] = dy^T * A.
  if (db.buffer && trans_b) {
    encode_backward(encoder, dy, true, a, trans_a, db, {s.batch, s.n, s.k, s.m});
  } else if (db.buffer) {
    encode_backward(encoder, a, !trans_a, dy, false, db, {s.batch, s.k, s.n, s.m});
  }
}

Var matmul(const Var& a, const Var& b, bool trans_a, bool trans_b, std::optional<DType> out,
           const Var& addend) {
  std::vector<Var> inputs = {a, b};
  if (addend.value()) inputs.push_back(addend);
  Tape& tape = common_tape("matmul", inputs);
  const DType dtype = out.value_or(a.dtype());
  const Sizes s = sizes("matmul", a.shape(), b.shape(), trans_a, trans_b);
  const Shape shape = result_shape(a.shape(), trans_a, s.n);
  const Buffer y = tape.alloc(dtype, shape);
  matmul_forward(tape.encoder(), a.value(), b.value(), y, trans_a, trans_b, addend.value());
  const bool adds = static_cast<bool>(addend.value());
  return tape.record("matmul", inputs, y,
                     [a = a.value(), b = b.value(), trans_a, trans_b, adds](Backward& back) {
                       const auto da = back.grad(0), db = back.grad(1);
                       matmul_backward(back.encoder(), a, b, back.dy(), da, db, trans_a, trans_b);
                       if (adds && back.wants(2)) back.pass(2, back.dy());
                     });
}

}  // namespace mixtape
