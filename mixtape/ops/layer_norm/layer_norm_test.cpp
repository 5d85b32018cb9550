#include "mixtape/ops/layer_norm/layer_norm.h"

#include <cmath>

#include "mixtape/ops/layer_norm/layer_norm_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;

TEST(LayerNorm, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, layer_norm_checks(device, dtype));
  }
}

TEST(LayerNorm, ManyRowsAndWideRows) {
  for (const Device& device : testing::test_devices()) {
    check_op(device, layer_norm_check(DType::f32, {300, 24}, 2), 3);
    check_op(device, layer_norm_check(DType::bf16, {3, 5000}, 2), 3);
    check_op(device, layer_norm_check(DType::f16, {70, 513}, 1), 3);
  }
}

// Squares of the elements themselves would leave nothing of a variance of 1 beside 1e8.
TEST(LayerNorm, RowsFarFromZero) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {1, 4}, Floats{10001, 9999, 10001, 9999}));
    const Var y = layer_norm(x, 1e-6f);
    tape.encoder().commit_and_wait();
    const Floats found = y.value().to_vector<float>();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], i % 2 == 0 ? 1.0 : -1.0, 1e-5);
  }
}

TEST(LayerNorm, D1_RowOfEqualElementsGivesTheBias) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1, 3}, Floats{5, 5, 5}));
    const Var w = tape.parameter(Buffer::from(device, {3}, Floats{2, 0, -1}));
    const Var b = tape.parameter(Buffer::from(device, {3}, Floats{7, 8, 9}));
    const Var y = layer_norm(x, w, b);
    tape.backward(y, Buffer::from(device, {1, 3}, Floats{1, 2, 3}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (Floats{7, 8, 9}));
    EXPECT_EQ(w.grad().to_vector<float>(), Floats(3, 0.0f));
    EXPECT_EQ(b.grad().to_vector<float>(), (Floats{1, 2, 3}));
    for (const float d : x.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(d));
  }
}

TEST(LayerNorm, A4_NanStaysInItsRow) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {2, 3}, Floats{1, NAN, 2, 1, 2, 3}));
    const Var y = layer_norm(x);
    tape.backward(y, Buffer::from(device, {2, 3}, Floats(6, 1.0f)));
    tape.encoder().commit_and_wait();
    const Floats values = y.value().to_vector<float>(), dx = x.grad().to_vector<float>();
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_TRUE(std::isnan(values[i]) == (i < 3) && std::isnan(dx[i]) == (i < 3)) << i;
  }
}

TEST(LayerNorm, OneGradientAloneAndInPlace) {
  for (const Device& device : testing::test_devices()) {
    const Shape shape{70, 40};
    const Buffer x = upload(device, testing::random_tensor(DType::f32, shape, 1));
    const Buffer w = upload(device, testing::random_tensor(DType::f32, {40}, 2));
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, shape, 3));
    const auto make = [&](const Shape& s) { return device.alloc_uninitialized(DType::f32, s); };
    const Buffer y = make(shape), stats = make({70, 2}), dx = make(shape), dw = make({40}), db = make({40});
    const Buffer dw_alone = make({40}), db_alone = make({40});
    const auto no = Accumulate::no;
    CommandEncoder encoder(device);
    layer_norm_forward(encoder, x, w, Buffer(), 1e-5f, y, stats);
    layer_norm_backward(encoder, x, w, stats, dy, {dx, no}, {dw, no}, {db, no});
    layer_norm_backward(encoder, x, w, stats, dy, {}, {dw_alone, no}, {});
    layer_norm_backward(encoder, x, w, stats, dy, {}, {}, {db_alone, no});
    layer_norm_backward(encoder, x, w, stats, dy, {dy, no}, {}, {});
    encoder.commit_and_wait();
    EXPECT_EQ(dw.to_vector<float>(), dw_alone.to_vector<float>());
    EXPECT_EQ(db.to_vector<float>(), db_alone.to_vector<float>());
    EXPECT_EQ(dx.to_vector<float>(), dy.to_vector<float>());
  }
}

TEST(LayerNorm, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const testing::Poison poison(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 3}));
    const Var w = tape.parameter(Buffer::from(device, {3}, Floats(3, 1.0f)));
    tape.backward(layer_norm(x, w), device.alloc(DType::f32, {0, 3}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
    EXPECT_EQ(w.grad().to_vector<float>(), Floats(3, 0.0f));
  }
}

TEST(LayerNorm, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), w = device.alloc(DType::f32, {8});
  const Buffer stats = device.alloc(DType::f32, {4, 2});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(layer_norm_forward(encoder, x, x, w, 1e-5f, x, stats), code,
                       "layer_norm: w is f32[4,8]");
  MIXTAPE_EXPECT_ERROR(layer_norm_forward(encoder, x, w, device.alloc(DType::bf16, {8}), 1e-5f, x, stats),
                       code, "layer_norm: b is bf16[8], expected f32[8]");
  MIXTAPE_EXPECT_ERROR(layer_norm_forward(encoder, x, w, w, -1.0f, x, stats), code, "eps is -1");
  MIXTAPE_EXPECT_ERROR(layer_norm_forward(encoder, device.alloc(DType::f32, {4, 0}), {}, {}, 1e-5f, x, stats),
                       code, "a last dimension of 1 or more");
  MIXTAPE_EXPECT_ERROR(layer_norm_backward(encoder, x, {}, stats, x, {}, {w, Accumulate::no}, {}), code,
                       "layer_norm_backward: dw is f32[8] without a w");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(layer_norm(tape.constant(x), Var()), code, "layer_norm: an input is null");
}

// Each use adds its gradient, whatever order the rule asks for its targets in.
TEST(LayerNorm, OneVarTwice) {
  for (const Device& device : testing::test_devices()) {
    const Buffer a = upload(device, testing::random_tensor(DType::f32, {8}, 1));
    const Buffer c = upload(device, testing::random_tensor(DType::f32, {3, 8}, 2));
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, {3, 8}, 3));
    Tape tape(device);
    const Var once = tape.parameter(a), first = tape.parameter(a), second = tape.parameter(a);
    const Var other = tape.constant(c);
    tape.backward(layer_norm(other, once, once), dy);
    tape.backward(layer_norm(other, first, second), dy);
    tape.encoder().accumulate(second.grad(), first.grad());
    tape.encoder().commit_and_wait();
    testing::expect_close("one variable twice", testing::download(once.grad()),
                          testing::download(first.grad()).values, {4.0, 1e-6});
  }
}

}  // namespace
}  // namespace mixtape
