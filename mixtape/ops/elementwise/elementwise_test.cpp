#include "mixtape/ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/elementwise/elementwise_check.h"
#include "mixtape/ops/elementwise/elementwise_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Bound;
using testing::HostTensor;
using testing::OpCheck;

constexpr float kInf = HUGE_VALF;

TEST(Elementwise, UnaryMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const Unary op : kUnaries) check_ops(device, unary_checks(op, dtype));
    }
  }
}

TEST(Elementwise, UnaryOverSeveralChunks) {
  for (const Device& device : testing::test_devices()) {
    for (const Unary op : {Unary::silu, Unary::exp}) {
      OpCheck check = unary_check(op, DType::f32, {70001});
      check.prove_oracle = false;
      check_op(device, check);
    }
  }
}

TEST(Elementwise, NegIsScaleByMinusOne) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {3}, std::vector<float>{1.0f, 0.0f, -2.5f}));
    const Var y = -x;
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{-1.0f, -0.0f, 2.5f}));
    tape.backward(y, Buffer::from(device, {3}, std::vector<float>{3.0f, 4.0f, -5.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{-3.0f, -4.0f, 5.0f}));
  }
}

TEST(Elementwise, BinaryMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const Binary op : kBinaries) check_ops(device, binary_checks(op, dtype));
    }
  }
}

// More than one block of rows, more than one stripe of columns.
TEST(Elementwise, BroadcastSumsOverManyRows) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_op(device, binary_check(Binary::div, dtype, {201, 40}, {40}));
      check_op(device, binary_check(Binary::sub, dtype, {3}, {1000, 3}));
      check_op(device, binary_check(Binary::mul, dtype, {70, 2100}, {2100}));
    }
  }
}

// 5000 ones in bf16: a sum kept in bf16 would stick at 256.
TEST(Elementwise, BroadcastSumIsKeptInF32) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(device.alloc(DType::bf16, {5000, 4}));
    const Var bias = tape.parameter(device.alloc(DType::bf16, {4}));
    const Var y = x + bias;
    const Buffer ones = device.alloc(DType::bf16, {5000, 4});
    tape.encoder().fill(ones, 1.0f);
    tape.backward(y, ones);
    tape.encoder().commit_and_wait();
    for (const bf16 v : bias.grad().to_vector<bf16>()) EXPECT_EQ(static_cast<float>(v), 4992.0f);
  }
}

// In f16 the sums of 4096 60000s and of their negatives are infinite, and all of them together 0.
TEST(Elementwise, BroadcastSumsOfF16DoNotOverflowOnTheWay) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(device.alloc(DType::f16, {8192, 4}));
    const Var bias = tape.parameter(device.alloc(DType::f16, {4}));
    std::vector<f16> dy(8192 * 4, f16(60000.0f));
    std::fill(dy.begin() + 4096 * 4, dy.end(), f16(-60000.0f));
    tape.backward(x + bias, Buffer::from(device, {8192, 4}, dy));
    tape.encoder().commit_and_wait();
    for (const f16 v : bias.grad().to_vector<f16>()) EXPECT_EQ(static_cast<float>(v), 0.0f);
  }
}

// Computed in f32, rounded once: infinite from 65520 on, spaced 2^-24 at the lower end.
TEST(Elementwise, EdgesOfF16) {
  for (const Device& device : testing::test_devices()) {
    const auto values = [&](Unary op, const std::vector<float>& points, float factor) {
      const auto n = static_cast<std::int64_t>(points.size());
      const Buffer x = Buffer::from(device, {n}, std::vector<f16>(points.begin(), points.end()));
      const Buffer y = device.alloc_uninitialized(DType::f16, {n});
      CommandEncoder encoder(device);
      unary_forward(encoder, op, x, y, factor);
      encoder.commit_and_wait();
      std::vector<float> found;
      for (const f16 v : y.to_vector<f16>()) found.push_back(static_cast<float>(v));
      return found;
    };
    using Floats = std::vector<float>;
    EXPECT_EQ(values(Unary::scale, {32760.0f, 32752.0f, -32760.0f, 0x1p-24f, 0x1p-23f}, 2.0f),
              (Floats{kInf, 65504.0f, -kInf, 0x1p-23f, 0x1p-22f}));
    EXPECT_EQ(values(Unary::scale, {0x1p-24f, 0x3p-24f, -0x1p-24f}, 0.5f), (Floats{0.0f, 0x1p-23f, -0.0f}));
    EXPECT_EQ(values(Unary::exp, {-16.0f, -18.0f, 12.0f, -kInf}, 1.0f), (Floats{0x2p-24f, 0.0f, kInf, 0.0f}));
    EXPECT_EQ(values(Unary::silu, {-20.0f, 60000.0f, -kInf}, 1.0f), (Floats{-0x1p-24f, 60000.0f, 0.0f}));
    EXPECT_EQ(values(Unary::gelu, {60000.0f, -60000.0f}, 1.0f), (Floats{60000.0f, 0.0f}));
    EXPECT_EQ(values(Unary::softcap, {60000.0f, -kInf, 0x1p-24f}, 30.0f), (Floats{30.0f, -30.0f, 0x1p-24f}));
    EXPECT_EQ(values(Unary::rsqrt, {0x1p-24f, 65504.0f}, 1.0f)[0], 4096.0f);
  }
}

TEST(Elementwise, OneVarOnBothSides) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {2}, std::vector<float>{3.0f, -2.0f}));
    const Buffer dy = Buffer::from(device, {2}, std::vector<float>{1.0f, 10.0f});
    tape.backward(x * x, dy);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{6.0f, -40.0f}));
    x.clear_grad();
    tape.backward(x + x, dy);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2.0f, 20.0f}));
    EXPECT_EQ(dy.to_vector<float>(), (std::vector<float>{1.0f, 10.0f}));
    x.clear_grad();
    tape.backward(x - x, dy);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.0f, 0.0f}));
  }
}

// The gradient of an addition is dy; what a leaf keeps of it is the leaf's own.
TEST(Elementwise, AddPassesItsGradientOn) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var a = tape.parameter(device.alloc(DType::f32, {64}));
    const Var b = tape.parameter(device.alloc(DType::f32, {64}));
    const Buffer dy = Buffer::from(device, {64}, std::vector<float>(64, 3.0f));
    tape.backward(a + b, dy);
    for (const Var& leaf : {a, b}) {
      EXPECT_EQ(leaf.grad().to_vector<float>(), std::vector<float>(64, 3.0f));
      EXPECT_FALSE(overlap(leaf.grad(), dy));
    }
    EXPECT_FALSE(overlap(a.grad(), b.grad()));
  }
}

struct ValueAndSlope {
  std::vector<float> y;
  std::vector<float> dx;
};

ValueAndSlope at_points(const Device& device, Unary op, const std::vector<float>& points,
                        float factor = 1.0f) {
  Tape tape(device);
  const auto n = static_cast<std::int64_t>(points.size());
  const Var x = tape.parameter(Buffer::from(device, {n}, points));
  const Var y = unary_check(op, DType::f32, {n}, factor).op({x});
  const Buffer ones = device.alloc(DType::f32, {n});
  tape.encoder().fill(ones, 1.0f);
  tape.backward(y, ones);
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), x.grad().to_vector<float>()};
}

TEST(Elementwise, B1_SigmoidGradientFarFromZero) {
  for (const Device& device : testing::test_devices()) {
    const auto [y, dx] = at_points(device, Unary::sigmoid, {-548.0f, -201.7f, -90.0f, -74.2f, 74.2f, 548.0f});
    for (const float d : dx) EXPECT_TRUE(std::isfinite(d) && d >= 0.0f) << d;
    EXPECT_EQ(dx[0], 0.0f);
    EXPECT_EQ(dx[1], 0.0f);
    EXPECT_NEAR(dx[3], 5.96e-33f, 0.1e-33f);
    EXPECT_LE(dx[4], 6e-33f);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[5], 1.0f);
  }
}

TEST(Elementwise, B2_SiluAndGeluAtInfinity) {
  for (const Device& device : testing::test_devices()) {
    for (const Unary op : {Unary::silu, Unary::gelu}) {
      const auto [y, dx] = at_points(device, op, {-kInf, -1e3f, -1e4f, -3e38f, kInf, 3e38f, 0.0f, NAN});
      for (const std::size_t i : {0, 1, 2, 3}) {
        EXPECT_EQ(y[i], 0.0f) << name(op) << " " << i;
        EXPECT_EQ(dx[i], 0.0f) << name(op) << " " << i;
      }
      EXPECT_EQ(y[4], kInf);
      EXPECT_EQ(dx[4], 1.0f);
      EXPECT_EQ(y[5], 3e38f);
      EXPECT_EQ(dx[5], 1.0f);
      EXPECT_EQ(y[6], 0.0f);
      EXPECT_EQ(dx[6], 0.5f);
      EXPECT_TRUE(std::isnan(y[7]) && std::isnan(dx[7]));
    }
  }
}

TEST(Elementwise, SiluAccuracy) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> points;
    for (int i = 0; i < 256; ++i) points.push_back(-6.4f + 12.8f * static_cast<float>(i) / 255.0f);
    points.insert(points.end(), {-20.0f, 20.0f, -89.0f});
    const auto [y, dx] = at_points(device, Unary::silu, points);
    for (std::size_t i = 0; i + 1 < points.size(); ++i) {
      const bool is_inner = i < 256;
      EXPECT_NEAR(y[i], oracle::unary_value<double>(Unary::silu, points[i], 1), is_inner ? 1e-6 : 1e-5);
      EXPECT_NEAR(dx[i], oracle::unary_slope(Unary::silu, points[i], 1), 1e-5);
    }
    EXPECT_NEAR(dx.back(), -1.96e-37f, 0.01e-37f);
  }
}

TEST(Elementwise, EdgesOfTheDomain) {
  for (const Device& device : testing::test_devices()) {
    const auto [log_y, log_dx] =
        at_points(device, Unary::log, {0.0f, -0.0f, -1.0f, -kInf, kInf, NAN, 1.0f, 1e-45f});
    EXPECT_EQ(log_y[0], -kInf);
    EXPECT_EQ(log_y[1], -kInf);
    EXPECT_TRUE(std::isnan(log_y[2]) && std::isnan(log_y[3]) && std::isnan(log_y[5]));
    EXPECT_EQ(log_y[4], kInf);
    EXPECT_EQ(log_y[6], 0.0f);
    EXPECT_NEAR(log_y[7], -103.27893f, 1e-4f);
    EXPECT_EQ(log_dx[6], 1.0f);
    const auto [sqrt_y, sqrt_dx] = at_points(device, Unary::sqrt, {0.0f, -1.0f, kInf});
    EXPECT_EQ(sqrt_y[0], 0.0f);
    EXPECT_EQ(sqrt_dx[0], kInf);
    EXPECT_TRUE(std::isnan(sqrt_y[1]));
    EXPECT_EQ(sqrt_y[2], kInf);
    const auto [exp_y, exp_dx] = at_points(device, Unary::exp, {-kInf, kInf, -100.0f, 89.0f});
    EXPECT_EQ(exp_y[0], 0.0f);
    EXPECT_EQ(exp_y[1], kInf);
    EXPECT_GT(exp_y[2], 0.0f);  // subnormal, not flushed
    EXPECT_EQ(exp_y[3], kInf);
    const auto [tanh_y, tanh_dx] = at_points(device, Unary::tanh, {-kInf, kInf, 1e-30f, 40.0f, 1e-3f});
    EXPECT_EQ(tanh_y[0], -1.0f);
    EXPECT_EQ(tanh_y[1], 1.0f);
    EXPECT_EQ(tanh_y[2], 1e-30f);
    EXPECT_EQ(tanh_dx[0], 0.0f);
    EXPECT_EQ(tanh_dx[3], 0.0f);
  }
}

// Every 1009th bit pattern: all exponents, both signs.
TEST(Elementwise, AccuracyOverTheWholeRange) {
  for (const Device& device : testing::test_devices()) {
    std::vector<float> points;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 10007) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (std::isfinite(x)) points.push_back(x);
    }
    for (const Unary op : {Unary::exp, Unary::log, Unary::sqrt, Unary::sigmoid, Unary::tanh, Unary::silu}) {
      const auto [y, dx] = at_points(device, op, points);
      Bound bound = unary_bound(op, 0.0);
      if (op == Unary::exp && device == Device::cpu()) bound.units = 1.01;
      for (std::size_t i = 0; i < points.size(); ++i) {
        const double wanted = oracle::unary_value<double>(op, points[i], 1.0);
        const bool is_equal = static_cast<double>(y[i]) == static_cast<double>(static_cast<float>(wanted)) ||
                              (std::isnan(y[i]) && std::isnan(wanted));
        ASSERT_TRUE(is_equal || std::abs(y[i] - wanted) <=
                                    bound.units * 0x1p-23 * std::abs(wanted) +
                                        (op == Unary::silu ? std::abs(points[i]) : bound.units) * 0x1p-149)
            << name(op) << " of " << points[i] << " is " << y[i] << ", expected " << wanted;
      }
    }
  }
}

TEST(Elementwise, NanGoesThrough) {
  for (const Device& device : testing::test_devices()) {
    for (const Unary op : kUnaries)  // x^0 is 1, but x^2 isn't
      EXPECT_TRUE(std::isnan(at_points(device, op, {NAN}, 2.0f).y[0])) << name(op);
  }
}

// Views that start in the middle of a pack give the same bytes; suffixes that are no multiple of a pack
// repeat.
TEST(Elementwise, UnalignedViews) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const std::int64_t rows = 90, cols = 40, n = rows * cols;
      const HostTensor x = testing::random_tensor(dtype, {n}, 1),
                       w = testing::random_tensor(dtype, {cols}, 2);
      const auto run = [&](std::int64_t skip) {
        HostTensor wide = x;
        wide.shape = {n + skip};
        wide.values.insert(wide.values.begin(), static_cast<std::size_t>(skip), 7.0);
        const Buffer a = upload(device, wide).slice(skip, n + skip).reshape({rows, cols});
        const Buffer b = upload(device, w);
        const auto make = [&](const Shape& shape) { return device.alloc_uninitialized(dtype, shape); };
        const std::vector<Buffer> y = {make({rows, cols}), make({rows, cols})};
        CommandEncoder encoder(device);
        unary_forward(encoder, Unary::tanh, a, y[0]);
        binary_forward(encoder, Binary::sub, b, a, y[1]);
        encoder.commit_and_wait();
        return std::pair{testing::download_bytes(y[0]), testing::download_bytes(y[1])};
      };
      EXPECT_EQ(run(0), run(1)) << dtype;
    }
  }
}

TEST(Elementwise, EmptyBatchGivesZeroGradients) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 8}));
    const Var w = tape.parameter(device.alloc(DType::f32, {8}));
    const Var y = silu(x * w) + w;
    EXPECT_EQ(y.shape(), (Shape{0, 8}));
    const testing::Poison poison(device);
    tape.backward(y, device.alloc(DType::f32, {0, 8}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(8, 0.0f));
    EXPECT_EQ(x.grad().shape(), (Shape{0, 8}));
  }
}

std::vector<float> values_of(const Var& y) {
  y.tape().encoder().commit_and_wait();
  return y.value().to_vector<float>();
}

TEST(Elementwise, NumbersOnEitherSide) {
  using Floats = std::vector<float>;
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {2}, Floats{3.0f, -2.0f}));
    EXPECT_EQ(values_of(x + 1.0f), (Floats{4, -1}));
    EXPECT_EQ(values_of(1 + x), (Floats{4, -1}));
    EXPECT_EQ(values_of(x - 0.5), (Floats{2.5f, -2.5f}));
    EXPECT_EQ(values_of(1.0f - x), (Floats{-2, 3}));
    EXPECT_EQ(values_of(2.0f * x * 3.0f), (Floats{18, -12}));
    EXPECT_EQ(values_of(x / 3.0f), (Floats{1, -2.0f / 3.0f}));
    EXPECT_EQ(values_of(1.0f / x), (Floats{1.0f / 3.0f, -0.5f}));
    EXPECT_EQ(values_of(pow(x, 2.0)), (Floats{9, 4}));
    EXPECT_EQ(values_of(clamp(x, -1.0, 2.0)), (Floats{2, -1}));
    Var y = x;
    y += 1.0f;
    y *= y;
    y -= x;
    y /= 2.0f;
    EXPECT_EQ(values_of(y), (Floats{6.5f, 1.5f}));
    EXPECT_EQ(values_of(x), (Floats{3, -2}));
  }
}

TEST(Elementwise, WhoTakesTheGradientOfEquals) {
  using Floats = std::vector<float>;
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const auto leaf = [&](const Floats& v) {
      return tape.parameter(Buffer::from(device, {static_cast<std::int64_t>(v.size())}, v));
    };
    const Buffer dy = Buffer::from(device, {4}, Floats{1, 2, 3, 4});
    const auto gradients = [&](Binary op) {
      const Var a = leaf({1, 2, NAN, 5}), b = leaf({1, 3, 0, NAN});
      tape.backward(op == Binary::maximum ? maximum(a, b) : minimum(a, b), dy);
      tape.encoder().commit_and_wait();
      return std::pair{a.grad().to_vector<float>(), b.grad().to_vector<float>()};
    };
    EXPECT_EQ(gradients(Binary::maximum), (std::pair{Floats{1, 0, 3, 0}, Floats{0, 2, 0, 4}}));
    EXPECT_EQ(gradients(Binary::minimum), (std::pair{Floats{1, 2, 3, 0}, Floats{0, 0, 0, 4}}));
    const auto slope = [&](const Var& x, const Var& y) {
      tape.backward(y, dy);
      tape.encoder().commit_and_wait();
      return x.grad().to_vector<float>();
    };
    const Var x = leaf({0, -0.5f, 0.5f, 1});
    EXPECT_EQ(slope(x, relu(x)), (Floats{0, 0, 3, 4}));
    x.clear_grad();
    EXPECT_EQ(slope(x, abs(x)), (Floats{0, -2, 3, 4}));
    x.clear_grad();
    EXPECT_EQ(slope(x, clamp(x, 0.0, 0.5)), (Floats{1, 0, 3, 0}));
  }
}

// What isn't passed on is 0, even where the upstream gradient is infinite.
TEST(Elementwise, PowersAtTheEdges) {
  using Floats = std::vector<float>;
  for (const Device& device : testing::test_devices()) {
    const auto [y, dx] = at_points(device, Unary::power, {0.0f, -2.0f, 3.0f, NAN}, 0.0f);
    EXPECT_EQ(y, Floats(4, 1.0f));
    EXPECT_EQ(dx, Floats(4, 0.0f));
    const auto [cubes, squares] = at_points(device, Unary::power, {-2.0f, 0.0f, kInf}, 3.0f);
    EXPECT_EQ(cubes, (Floats{-8.0f, 0.0f, kInf}));
    EXPECT_EQ(squares, (Floats{12.0f, 0.0f, kInf}));
    EXPECT_TRUE(std::isnan(at_points(device, Unary::power, {-2.0f}, 0.5f).y[0]));
    Tape tape(device);
    const Var base = tape.parameter(Buffer::from(device, {3}, Floats{0.0f, 0.0f, 2.0f}));
    const Var exponent = tape.parameter(Buffer::from(device, {3}, Floats{2.0f, 0.0f, 3.0f}));
    tape.backward(pow(base, exponent), Buffer::from(device, {3}, Floats(3, 1.0f)));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(base.grad().to_vector<float>(), (Floats{0.0f, 0.0f, 12.0f}));
    const Floats db = exponent.grad().to_vector<float>();
    EXPECT_EQ(db[0], 0.0f);
    EXPECT_EQ(db[1], 0.0f);
    EXPECT_NEAR(db[2], 8.0 * std::log(2.0), 1e-5);
  }
}

TEST(Elementwise, BroadcastOverManyAxes) {
  for (const Device& device : testing::test_devices()) {
    for (const Binary op : {Binary::add, Binary::mul, Binary::maximum}) {
      check_op(device, binary_check(op, DType::f32, {2, 1, 3, 1, 2, 1, 2, 1}, {1, 2, 1, 3, 1, 2, 1, 2}), 2);
      check_op(device, binary_check(op, DType::bf16, {300, 1}, {1, 40}), 2);
    }
  }
}

TEST(Elementwise, KeepsOnlyWhatBackwardNeeds) {
  const Device device = Device::cpu();
  Tape tape(device);
  const Var x = tape.parameter(device.alloc(DType::f32, {1024}));
  const Var gate = tape.constant(device.alloc(DType::f32, {1024}));
  const std::size_t before = device.memory_stats().live_bytes;
  Var y = x + gate;
  y = scale(y, 2.0f);
  y = y + x;
  y = y * gate;  // keeps gate alone
  EXPECT_EQ(device.memory_stats().live_bytes, before + 4096);
}

TEST(Elementwise, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  Tape tape(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer half = device.alloc(DType::bf16, {4, 8});
  MIXTAPE_EXPECT_ERROR(unary_forward(encoder, Unary::exp, Buffer(), x), code, "exp: x is null");
  MIXTAPE_EXPECT_ERROR(unary_forward(encoder, Unary::exp, x, half), code,
                       "exp: y is bf16[4,8], expected f32[4,8]");
  MIXTAPE_EXPECT_ERROR(unary_backward(encoder, Unary::exp, x, device.alloc(DType::f32, {3, 8}), x), code,
                       "exp_backward: dy is f32[3,8], expected f32[4,8] like y");
  MIXTAPE_EXPECT_ERROR(unary_backward(encoder, Unary::log, x, half, x), code, "like x");
  MIXTAPE_EXPECT_ERROR(unary_forward(encoder, Unary::softcap, x, x, 0.0f), code, "cap is 0");
  MIXTAPE_EXPECT_ERROR(binary_forward(encoder, Binary::add, x, half, x), code, "add: b is bf16[4,8]");
  MIXTAPE_EXPECT_ERROR(binary_forward(encoder, Binary::mul, x, device.alloc(DType::f32, {4}), x), code,
                       "mul: shapes [4,8] and [4] don't broadcast");
  MIXTAPE_EXPECT_ERROR(
      binary_forward(encoder, Binary::mul, x, device.alloc(DType::f32, {8}), device.alloc(DType::f32, {8})),
      code, "mul: y is f32[8], expected f32[4,8]");
  const Buffer row = device.alloc(DType::f32, {8}), column = device.alloc(DType::f32, {4, 1});
  MIXTAPE_EXPECT_ERROR(
      binary_forward(encoder, Binary::mul, x, column, x), code,
      "mul: a is f32[4,8], b is f32[4,1], expected equal shapes, or one the end of the other");
  MIXTAPE_EXPECT_ERROR(binary_backward_a(encoder, Binary::mul, row, row, x, row), code,
                       "mul_backward_a: b is f32[8] with da f32[8], expected the shape of dy f32[4,8]");
  MIXTAPE_EXPECT_ERROR(binary_backward_b(encoder, Binary::div, x, Buffer(), x, row), code,
                       "div_backward_b: b is null, expected f32[8] like db");
  MIXTAPE_EXPECT_ERROR(binary_backward_b(encoder, Binary::maximum, x, row, x, row), code,
                       "maximum_backward_b: db is f32[8], expected the shape of dy f32[4,8]");
  MIXTAPE_EXPECT_ERROR(tape.constant(x) + tape.constant(device.alloc(DType::f32, {4})), code,
                       "add: shapes [4,8] and [4] don't broadcast");
  MIXTAPE_EXPECT_ERROR(clamp(tape.constant(x), 1.0, 0.0), code, "clamp: least is 1, most is 0");
  MIXTAPE_EXPECT_ERROR(exp(Var()), code, "exp: an input is null");
  MIXTAPE_EXPECT_ERROR(exp(tape.constant(device.alloc(DType::u32, {2}))), code, "exp: x is u32[2]");
}

}  // namespace
}  // namespace mixtape
