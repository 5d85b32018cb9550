#include "mixtape/runtime/trace.h"

#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

struct Heard {
  std::string kernel, device;
  Shape written;
  double seconds;
  std::vector<std::string> notes;
};

// What a softmax of rows of `cols` tells.
std::vector<Heard> heard(const Device& device, std::int64_t cols) {
  std::vector<Heard> all;
  const Buffer x = device.alloc(DType::f32, {3, cols}), y = device.alloc(DType::f32, {3, cols});
  CommandEncoder encoder(device);
  set_trace_sink([&](const DispatchTrace& t) {
    all.push_back({t.dispatch.kernel, t.device.name(), t.dispatch.writes.at(0).shape(), t.seconds, t.notes});
  });
  softmax_forward(encoder, x, y);
  encoder.commit_and_wait();
  set_trace_sink(nullptr);
  softmax_forward(encoder, x, y);
  return all;
}

TEST(Trace, TellsKernelShapesAndTime) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<Heard> all = heard(device, 8);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].kernel, "softmax_forward_f32");
    EXPECT_EQ(all[0].device, device.name());
    EXPECT_EQ(all[0].written, (Shape{3, 8}));
    EXPECT_GT(all[0].seconds, 0.0);
  }
}

TEST(Trace, TellsWhatALauncherChoseAndPassedOver) {
  const Device sim = Device::open("sim");
  EXPECT_EQ(
      heard(sim, 8).at(0).notes,
      std::vector<std::string>{"launch softmax_forward_f32_held1, grid 1 x 1 x 1, block 32 x 8 x 1, 0 shared "
                               "bytes"});
  const std::vector<std::string> wide = heard(sim, 200).at(0).notes;
  ASSERT_EQ(wide.size(), 2u);
  EXPECT_EQ(wide[0], "not softmax_forward_f32_held1: a row has 50 packs of 16 bytes, expected at most 32");
  EXPECT_NE(wide[1].find("launch softmax_forward_f32_held2"), std::string::npos) << wide[1];
  const std::vector<std::string> odd = heard(sim, 7).at(0).notes;
  EXPECT_EQ(odd.at(0), "not softmax_forward_f32_held*: rows are no whole, aligned packs of 16 bytes");
}

TEST(Trace, WhatIsRecordedHasNoTime) {
  const Device sim = Device::open("sim");
  const Buffer x = sim.alloc(DType::f32, {3});
  CommandEncoder encoder(sim);
  std::vector<double> seconds;
  set_trace_sink([&](const DispatchTrace& t) { seconds.push_back(t.seconds); });
  encoder.record([&] { encoder.fill(x, 1.0f); });
  set_trace_sink(nullptr);
  EXPECT_EQ(seconds, std::vector<double>{0.0});
}

}  // namespace
}  // namespace mixtape
