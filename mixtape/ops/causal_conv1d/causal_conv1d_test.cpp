#include "mixtape/ops/causal_conv1d/causal_conv1d.h"

#include <cmath>

#include "mixtape/ops/causal_conv1d/causal_conv1d_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr auto kSilu = ConvActivation::silu;

TEST(CausalConv1d, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, causal_conv1d_checks(device, dtype));
  }
}

// More positions than a run, more channels than a tile of the CPU and a block of a card, and a last run, tile and
// pack that are not full; runs shorter than the taps' reach among them.
TEST(CausalConv1d, RunsAndTiles) {
  for (const Device& device : testing::test_devices()) {
    const bool f32_too = device == Device::cpu();
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::f32 && !f32_too) continue;
      check_op(device,
               causal_conv1d_check(device, dtype,
                                   {.c = {.batch = 2, .length = 21, .channels = 530, .taps = 4, .silu = true},
                                    .history = true}));
      check_op(device, causal_conv1d_check(
                           device, dtype,
                           {.c = {.batch = 1, .length = 18, .channels = 531, .taps = 4}, .bias = true}));
      check_op(device,
               causal_conv1d_check(device, dtype,
                                   {.c = {.batch = 1, .length = 21, .channels = 3, .taps = 16, .silu = true},
                                    .history = true}));
    }
  }
}

std::vector<float> joined(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// A sequence in two calls, the second after the first one's last rows, is the sequence in one: the same bits.
TEST(CausalConv1d, HistoryContinuesASequence) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t length = 13, channels = 6;
    const Buffer x = upload(device, testing::random_tensor(DType::f32, {1, length, channels}, 1));
    const Buffer w = upload(device, testing::random_tensor(DType::f32, {channels, 4}, 2));
    const auto run = [&](std::int64_t begin, std::int64_t end, std::int64_t before) {
      const Buffer part = x.reshape({length, channels}).slice(begin, end).reshape({1, end - begin, channels});
      const Buffer history =
          before == 0 ? Buffer()
                      : x.reshape({length, channels}).slice(begin - 3, begin).reshape({1, 3, channels});
      const Buffer y = device.alloc_uninitialized(DType::f32, part.shape());
      CommandEncoder encoder(device);
      causal_conv1d_forward(encoder, part, w, Buffer(), history, kSilu, y);
      encoder.commit_and_wait();
      return y.to_vector<float>();
    };
    EXPECT_EQ(joined(run(0, 8, 0), run(8, length, 3)), run(0, length, 0));
  }
}

TEST(CausalConv1d, KnownSums) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1, 3, 1}, {1.0f, 2.0f, 3.0f}));
    const Var w = tape.parameter(Buffer::from(device, {1, 2}, {10.0f, 1.0f}));
    const Var y = causal_conv1d(x, w, Var(), Var(), ConvActivation::none);
    tape.backward(y, Buffer::from(device, {1, 3, 1}, {1.0f, 1.0f, 1.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(),
              (std::vector<float>{1, 12, 23}));  // the last tap on the current one
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{11, 11, 1}));
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{3, 6}));
  }
}

TEST(CausalConv1d, NanReachesOnlyThePositionsThatSeeIt) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t taps : {3, 4}) {
      std::vector<float> values(20, 1.0f);
      values[6] = NAN;  // position 3 of channel 0
      Tape tape(device);
      const Var x = tape.constant(Buffer::from(device, {1, 10, 2}, values));
      const Var w = tape.constant(device.alloc(DType::f32, {2, taps}));
      const Var y = causal_conv1d(x, w, Var(), Var(), kSilu);
      tape.encoder().commit_and_wait();
      const std::vector<float> found = y.value().to_vector<float>();
      for (std::int64_t i = 0; i < 20; ++i)
        EXPECT_EQ(std::isnan(found[static_cast<std::size_t>(i)]),
                  i % 2 == 0 && i / 2 >= 3 && i / 2 < 3 + taps)
            << i;
    }
  }
}

TEST(CausalConv1d, B2_SiluOfInfinities) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1, 1, 2}, {-HUGE_VALF, HUGE_VALF}));
    const Var w = tape.constant(Buffer::from(device, {2, 1}, {1.0f, 1.0f}));
    const Var y = causal_conv1d(x, w, Var(), Var(), kSilu);
    tape.backward(y, Buffer::from(device, {1, 1, 2}, {1.0f, 1.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{0.0f, HUGE_VALF}));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.0f, 1.0f}));
  }
}

TEST(CausalConv1d, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {2, 5, 3}), y = device.alloc(DType::f32, {2, 5, 3});
  const Buffer w = device.alloc(DType::f32, {3, 4}), none;
  const auto code = ErrorCode::invalid_argument;
  const auto forward = [&](const Buffer& in, const Buffer& weight, const Buffer& bias,
                           const Buffer& history) {
    causal_conv1d_forward(encoder, in, weight, bias, history, kSilu, y);
  };
  MIXTAPE_EXPECT_ERROR(forward(x.reshape({10, 3}), w, none, none), code,
                       "causal_conv1d: x is f32[10,3], expected [B,S,C]");
  MIXTAPE_EXPECT_ERROR(forward(x, w.reshape({4, 3}), none, none), code,
                       "causal_conv1d: w is f32[4,3], expected f32 or f32 [3,K]");
  MIXTAPE_EXPECT_ERROR(forward(x, device.alloc(DType::f32, {3, 17}), none, none), code,
                       "expected 1 to 16 taps");
  MIXTAPE_EXPECT_ERROR(forward(x, w, device.alloc(DType::f32, {4}), none), code,
                       "causal_conv1d: bias is f32[4], expected f32[3]");
  MIXTAPE_EXPECT_ERROR(forward(x, w, none, device.alloc(DType::f32, {2, 4, 3})), code,
                       "causal_conv1d: history is f32[2,4,3], expected f32[2,3,3]");
  MIXTAPE_EXPECT_ERROR(causal_conv1d_forward(encoder, x, w, none, none, kSilu, x), code, "y");
  MIXTAPE_EXPECT_ERROR(causal_conv1d_backward(encoder, x, w, none, none, kSilu, y, {}, {},
                                              {device.alloc(DType::f32, {3}), Accumulate::no}, {}),
                       code, "causal_conv1d_backward: dbias is f32[3] without a bias");
}

}  // namespace
}  // namespace mixtape
