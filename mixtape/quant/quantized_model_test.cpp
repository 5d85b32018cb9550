#include "mixtape/quant/quantized_model.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using nlohmann::json;
using testing::TempDirectory;

const std::string kParity = "tests/data/parity/";

QuantizationOptions four_bits() { return {.params = {4, 32}, .modules = {}}; }

void expect_same(const Buffer& a, const Buffer& b) {
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_EQ(testing::download_bytes(a), testing::download_bytes(b));
}

// Every tensor of the written directory is what the plan says, read back through ModelSource.
void expect_written(const ModelSource& source, const ModelSource& written, const QuantizationPlan& plan,
                    DType dtype) {
  const Device device = Device::cpu();
  const QuantizedReader reader(written);
  std::size_t tensors = plan.others.size();
  for (const PlannedModule& m : plan.modules) {
    SCOPED_TRACE(m.path);
    const Buffer w = source.load(m.source, source.stored_dtype(m.source), device);
    ASSERT_EQ(reader.is_quantized(m.path), m.stored.has_value());
    tensors += m.stored ? 3 : 1;
    if (!m.stored) {
      expect_same(written.load(m.path + ".weight", dtype, device), source.load(m.source, dtype, device));
      continue;
    }
    const QuantizedWeight wanted = quantize_matrix(m.path, w, *m.stored, Rounding::gpu, dtype);
    const QuantizedWeight found = reader.load(m.path, m.shape, dtype, device);
    EXPECT_EQ(found.format, *m.stored);
    expect_same(found.codes, wanted.codes);
    expect_same(found.scales, wanted.scales);
    expect_same(found.biases, wanted.biases);
    EXPECT_EQ(written.stored_dtype(m.path + ".scales"), dtype);
  }
  EXPECT_EQ(written.names().size(), tensors);
}

TEST(QuantizedModel, WritesWhatItReadsBack) {
  for (const char* name : {"llama", "llama_tied_bias_rope3", "qwen3", "qwen3_moe"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(str(name, " ", dtype));
      const TempDirectory temp;
      const auto source = open_model(kParity + name);
      const QuantizationPlan plan = plan_quantization(*source, four_bits());
      AtomicDirectory output(temp / "out");
      write_rounded_model(output, *source, plan, Rounding::gpu, dtype, Device::cpu());
      const auto written = open_model(temp / "out");
      expect_written(*source, *written, plan, dtype);

      const json config = read_json(temp / "out" / "config.json");
      EXPECT_EQ(config["quantization"], plan.config.to_json());
      EXPECT_EQ(config["quantization_config"], config["quantization"]);
      EXPECT_EQ(config["tie_word_embeddings"], source->config().tie_word_embeddings);
      EXPECT_EQ(written->config().dtype, dtype);
      const json index = read_json(temp / "out" / "model.safetensors.index.json");
      const StorageSize size = storage_size(*source, plan, dtype);
      EXPECT_EQ(index["metadata"]["total_size"], size.bytes);
      EXPECT_EQ(index["metadata"]["total_parameters"], size.weights);
    }
  }
}

TEST(QuantizedModel, MixedBitsAndEightBitRouters) {
  const TempDirectory temp;
  const auto source = open_model(kParity + "qwen3_moe");
  QuantizationOptions options = four_bits();
  options.quantize_routers = true;
  options.modules = {{"model.layers.0.mlp.switch_mlp.down_proj", AffineParams{3, 32}},
                     {"model.layers.1.mlp.up_proj", AffineParams{5, 64}},
                     {"lm_head", std::nullopt}};
  const QuantizationPlan plan = plan_quantization(*source, options);
  AtomicDirectory output(temp / "out");
  write_rounded_model(output, *source, plan, Rounding::gpu, DType::f32, Device::cpu());
  const auto written = open_model(temp / "out");
  expect_written(*source, *written, plan, DType::f32);
  EXPECT_EQ(QuantizedReader(*written).format("model.layers.0.mlp.gate", {8, 64}), (AffineParams{8, 64}));
}

TEST(QuantizedModel, K4_UntiedHeadIsWritten) {
  const TempDirectory temp;
  const auto source = open_model(kParity + "qwen3");
  ASSERT_TRUE(source->config().tie_word_embeddings);
  QuantizationOptions options = four_bits();
  options.modules = {{"lm_head", AffineParams{8, 32}}, {"model.embed_tokens", AffineParams{4, 32}}};
  const QuantizationPlan plan = plan_quantization(*source, options);
  AtomicDirectory output(temp / "out");
  write_rounded_model(output, *source, plan, Rounding::gpu, DType::f32, Device::cpu());
  const auto written = open_model(temp / "out");
  EXPECT_FALSE(written->config().tie_word_embeddings);
  expect_written(*source, *written, plan, DType::f32);
}

TEST(QuantizedModel, TensorsCanComeFromTheCaller) {
  const TempDirectory temp;
  const Device device = Device::cpu();
  const auto source = open_model(kParity + "llama");
  const QuantizationPlan plan = plan_quantization(*source, four_bits());
  std::vector<std::string> asked;
  const TensorProvider tensors{
      [&](const PlannedModule& m) {
        asked.push_back(m.path);
        QuantizedWeight q{device.alloc(DType::u32, {m.shape[0], m.stored->packed_cols(m.shape[1])}),
                          device.alloc(DType::f32, {m.shape[0], m.stored->groups(m.shape[1])}), Buffer(),
                          *m.stored};
        q.biases = q.scales;
        return q;
      },
      [&](const std::string& name) { return device.alloc(DType::f32, source->shape(name)); }};
  AtomicDirectory output(temp / "out");
  write_quantized_model(output, *source, plan, tensors, DType::bf16);
  const auto written = open_model(temp / "out");
  for (const std::string& name : written->names()) {
    if (name.ends_with(".weight") && written->stored_dtype(name) == DType::u32) continue;
    const auto values = written->load(name, DType::f32, device).to_vector<float>();
    EXPECT_THAT(values, ::testing::Each(0.0f)) << name;
  }
  EXPECT_EQ(asked.front(), "model.embed_tokens");
  EXPECT_EQ(asked.back(), "lm_head");
}

TEST(QuantizedModel, NothingIsLeftAfterAnError) {
  const TempDirectory temp;
  const Device device = Device::cpu();
  const auto source = open_model(kParity + "llama");
  const QuantizationPlan plan = plan_quantization(*source, four_bits());
  const auto write = [&](const TensorProvider& tensors, DType dtype) {
    AtomicDirectory output(temp / "out");
    write_quantized_model(output, *source, plan, tensors, dtype);
  };
  const auto round = [&](const PlannedModule& m, AffineParams params) {
    return quantize_matrix(m.path, source->load(m.source, DType::f32, device), params, Rounding::gpu,
                           DType::f32);
  };
  MIXTAPE_EXPECT_ERROR(write({[&](const PlannedModule& m) {
                                return round(m, {5, 32});
                              },
                              nullptr},
                             DType::f32),
                       ErrorCode::invalid_argument, "model.embed_tokens: got 5 bits, group 32");
  const auto huge = [&](const PlannedModule& m) {
    QuantizedWeight q = round(m, *m.stored);
    CommandEncoder(device).fill(q.scales, 1e6f);
    return q;
  };
  MIXTAPE_EXPECT_ERROR(write({huge, nullptr}, DType::f16), ErrorCode::invalid_argument,
                       "model.embed_tokens.scales: value 1e+06 at position 0 overflows f16");
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
  std::filesystem::create_directory(temp / "out");
  EXPECT_THROW(write({[&](const PlannedModule& m) { return round(m, *m.stored); }, nullptr}, DType::f32),
               Error);
}

TEST(QuantizedModel, H5_NonFiniteWeightNamesTheTensor) {
  const Device device = Device::cpu();
  std::vector<float> w(3 * 64, 0.5f);
  w[64 + 40] = -HUGE_VALF;
  MIXTAPE_EXPECT_ERROR(
      quantize_matrix("model.layers.3.mlp.up_proj.weight", Buffer::from(device, {3, 64}, w), {4, 32},
                      Rounding::gpu, DType::f32),
      ErrorCode::invalid_argument,
      "model.layers.3.mlp.up_proj.weight: quantize_affine: weight at row 1, column 40 is -inf");
}

// A written model whose config.json is replaced.
class ChangedConfig {
 public:
  ChangedConfig() {
    const auto source = open_model(kParity + "llama");
    AtomicDirectory output(temp_ / "out");
    write_rounded_model(output, *source, plan_quantization(*source, four_bits()), Rounding::gpu, DType::f32,
                        Device::cpu());
    config = read_json(temp_ / "out" / "config.json");
  }
  std::unique_ptr<ModelSource> open() const {
    temp_.write("out/config.json", config.dump());
    return open_model(temp_ / "out");
  }
  json config;

 private:
  TempDirectory temp_;
};

TEST(QuantizedReader, K1_KeysAndShapesMustAgree) {
  ChangedConfig model;
  const std::string path = "model.layers.0.mlp.up_proj";
  const Shape shape = {160, 64};
  model.config["quantization"]["language_model." + path] = {{"bits", 4}, {"group_size", 32}};
  EXPECT_EQ(QuantizedReader(*model.open()).is_quantized(path), true);

  model.config["quantization"]["language_model." + path] = {{"bits", 6}, {"group_size", 32}};
  const auto six = model.open();
  MIXTAPE_EXPECT_ERROR(QuantizedReader(*six).format(path, shape), ErrorCode::format,
                       "has 4 bits in groups of 32 by its shapes, the config says 6 in groups of 32");
  MIXTAPE_EXPECT_ERROR(QuantizedReader(*six).format("model.layers.1.mlp.up_proj", {160, 96}),
                       ErrorCode::format, "model.layers.1.mlp.up_proj");

  model.config["quantization"][path] = {{"bits", 4}, {"group_size", 32}};
  model.config["quantization"].erase("language_model." + path);
  model.config["quantization"]["model.layers.0.self_attn.rope"] = false;  // has no weight
  EXPECT_EQ(QuantizedReader(*model.open()).is_quantized(path), true);

  model.config["quantization"]["model.layers.7.mlp.up_proj"] = {{"bits", 4}, {"group_size", 32}};
  const auto unknown = model.open();
  MIXTAPE_EXPECT_ERROR(QuantizedReader{*unknown}, ErrorCode::format, "'model.layers.7.mlp.up_proj'");
}

TEST(QuantizedReader, TheConfigDecides) {
  ChangedConfig model;
  const std::string path = "model.layers.0.mlp.up_proj";
  model.config["quantization"][path] = false;
  const auto as_float = model.open();
  MIXTAPE_EXPECT_ERROR(QuantizedReader(*as_float).is_quantized(path), ErrorCode::format,
                       "has scales, but the config");
  model.config["quantization"].erase(path);
  model.config["quantization"]["model.norm"] = true;
  const auto norm = model.open();
  MIXTAPE_EXPECT_ERROR(QuantizedReader(*norm).is_quantized("model.norm"), ErrorCode::format,
                       "'model.norm.scales' is missing");
  model.config["quantization"] = {{"bits", 8},
                                  {"group_size", 64}};  // unnamed modules follow from their shapes
  EXPECT_EQ(QuantizedReader(*model.open()).format(path, {160, 64}), (AffineParams{4, 32}));

  const auto plain = open_model(kParity + "llama");
  EXPECT_FALSE(QuantizedReader(*plain).is_quantized(path));
}

}  // namespace
}  // namespace mixtape
