#include "mixtape/io/interleaved_experts.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "mixtape/io/model_source.h"
#include "mixtape/io/mxfp4.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

const std::string kPath = "model.layers.0.mlp.experts.";

// Stored tensors that outlive their views.
class Files {
 public:
  void add(const std::string& name, FileDType dtype, const Shape& shape,
           const std::vector<std::byte>& bytes) {
    bytes_[name] = bytes;
    views_[name] = {dtype, shape, bytes_[name]};
  }
  void add_floats(const std::string& name, const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const auto bytes = std::as_bytes(std::span(values));
    add(name, FileDType::F32, shape, {bytes.begin(), bytes.end()});
  }
  std::vector<ExpertTensor> read(const std::string& name) const {
    const FindTensor find = [&](const std::string& other) {
      const auto found = views_.find(other);
      return found == views_.end() ? nullptr : &found->second;
    };
    return interleaved_experts("files", name, views_.at(name), find).value();
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, TensorView> views_;
};

TEST(InterleavedExperts, GateAndUpStandInTurnsAndMatricesAreTransposed) {
  Files files;
  files.add_floats(kPath + "gate_up_proj", {2, 3, 4});  // [E,D,2F]
  files.add_floats(kPath + "gate_up_proj_bias", {2, 4});
  files.add_floats(kPath + "down_proj", {2, 2, 3});
  files.add_floats(kPath + "down_proj_bias", {2, 3});
  const std::vector<ExpertTensor> both = files.read(kPath + "gate_up_proj");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, kPath + "gate_proj.weight");
  EXPECT_EQ(both[0].shape, Shape({2, 2, 3}));
  EXPECT_EQ(both[0].values(1), (std::vector<float>{12, 16, 20, 14, 18, 22}));
  EXPECT_EQ(both[1].name, kPath + "up_proj.weight");
  EXPECT_EQ(both[1].values(0), (std::vector<float>{1, 5, 9, 3, 7, 11}));
  const std::vector<ExpertTensor> biases = files.read(kPath + "gate_up_proj_bias");
  ASSERT_EQ(biases.size(), 2u);
  EXPECT_EQ(biases[0].name, kPath + "gate_proj.bias");
  EXPECT_EQ(biases[0].shape, Shape({2, 2}));
  EXPECT_EQ(biases[1].values(1), (std::vector<float>{5, 7}));
  const std::vector<ExpertTensor> down = files.read(kPath + "down_proj");
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0].name, kPath + "down_proj.weight");
  EXPECT_EQ(down[0].shape, Shape({2, 3, 2}));
  EXPECT_EQ(down[0].values(0), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(files.read(kPath + "down_proj_bias")[0].values(1), (std::vector<float>{3, 4, 5}));
}

TEST(InterleavedExperts, OtherTensorsAreLeftAlone) {
  const FindTensor none = [](const std::string&) { return nullptr; };
  for (const char* name : {"model.layers.0.mlp.experts.3.down_proj.weight",
                           "model.layers.0.mlp.router.weight", "model.layers.0.mlp.experts.gate_proj.weight"})
    EXPECT_FALSE(interleaved_experts("files", name, {}, none)) << name;
}

// Bit by bit what transformers decodes.
TEST(InterleavedExperts, Mxfp4IsWhatTransformersDecodes) {
  const std::string folder = "tests/data/parity/gpt_oss_mxfp4";
  const auto model = open_model(folder);
  const SafetensorsFile expected = SafetensorsFile::open(folder + "/expected.safetensors");
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string name = kPath + matrix + ".weight";
    const TensorView& wanted = expected.at("decoded." + name);
    EXPECT_EQ(model->stored_dtype(name), DType::bf16);
    const Buffer found = model->load(name, DType::bf16, Device::cpu());
    ASSERT_EQ(found.shape(), wanted.shape);
    EXPECT_EQ(testing::download_bytes(found), std::vector(wanted.bytes.begin(), wanted.bytes.end())) << name;
  }
  EXPECT_FALSE(model->has(kPath + "gate_up_proj_blocks"));
  EXPECT_FALSE(model->config_json().contains("quantization_config"));
  ASSERT_EQ(model->notices().size(), 1u);
  EXPECT_EQ(model->notices()[0], "experts are stored in MXFP4 and read as floats");
}

TEST(Mxfp4, ValuesAndScales) {
  constexpr std::array kValues = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (unsigned code = 0; code < 8; ++code) {
    EXPECT_EQ(mxfp4_value(code), kValues[code]);
    EXPECT_EQ(mxfp4_value(code | 8), -kValues[code]);
    EXPECT_TRUE(std::signbit(mxfp4_value(code | 8)));
    EXPECT_EQ(mxfp4_value(code | 0x50), kValues[code]);  // the high half is another's
  }
  EXPECT_EQ(mxfp4_scale(127), 1.0f);
  EXPECT_EQ(mxfp4_scale(0), 0x1p-127f);
  EXPECT_EQ(mxfp4_scale(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(mxfp4_scale(255)));
}

TEST(InterleavedExperts, RefusesOtherShapes) {
  const auto refused = [](const std::string& name, FileDType dtype, const Shape& shape, const char* text) {
    Files files;
    files.add(kPath + name, dtype, shape, {});
    MIXTAPE_EXPECT_ERROR(files.read(kPath + name), ErrorCode::format, text);
  };
  refused("gate_up_proj", FileDType::F32, {3, 4}, "experts.gate_up_proj': has shape [3,4], expected [E,K,N]");
  refused("gate_up_proj", FileDType::F32, {2, 3, 5}, "has 5 rows, expected an even number");
  refused("down_proj_bias", FileDType::F32, {4}, "has shape [4], expected [E,N]");
  refused("down_proj_blocks", FileDType::U8, {2, 3, 1, 8}, "is U8[2,3,1,8], expected U8[E,N,K/32,16]");
  refused("down_proj_blocks", FileDType::BF16, {2, 3, 1, 16}, "is BF16[2,3,1,16], expected");
  refused("down_proj_blocks", FileDType::U8, {2, 3, 1, 16}, "experts.down_proj_scales' is missing");
  Files files;
  files.add(kPath + "down_proj_blocks", FileDType::U8, {2, 3, 1, 16}, {});
  files.add(kPath + "down_proj_scales", FileDType::U8, {2, 3, 2}, {});
  MIXTAPE_EXPECT_ERROR(files.read(kPath + "down_proj_blocks"), ErrorCode::format,
                       "is U8[2,3,2], expected U8[2,3,1]");
  EXPECT_TRUE(files.read(kPath + "down_proj_scales").empty());
}

}  // namespace
}  // namespace mixtape
