#include "mixtape/quant/gguf_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/core/bf16.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/io/tokenizer.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/tensor_providers.h"
#include "mixtape/runtime/creation.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDirectory;

constexpr const char* kStories = "tests/data/stories260k";
constexpr const char* kMoe = "models/tiny-moe";

std::vector<float> decoded(const QuantizedWeight& q) {
  const Shape& groups = q.scales.shape();
  const Buffer w =
      Device::cpu().alloc(DType::f32, groups.with(groups.rank() - 1, groups.cols() * q.format.group_size));
  CommandEncoder encoder(Device::cpu());
  dequantize_affine_forward(encoder, q, w);
  encoder.commit_and_wait();
  return w.to_vector<float>();
}

std::vector<float> decoded(GgufType type, const Buffer& stored) {
  const std::vector<std::byte> bytes = testing::download_bytes(stored);
  const GgufTypeInfo& info = gguf_type_info(type);
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(info.block_bytes) *
                            static_cast<std::size_t>(info.block_elements));
  decode_gguf_blocks(type, bytes, values);
  return values;
}

QuantizedWeight quantized(const Shape& shape, AffineParams format, DType scales) {
  return quantize_matrix("w", randn(Device::cpu(), shape, 3), format, Rounding::gpu, scales);
}

// Every width that a type holds, every group size, 16-bit scales: the same values, bit for bit.
TEST(GgufEncode, HoldsCodesOfUpToFiveBitsExactly) {
  for (const std::int32_t bits : {2, 3, 4, 5}) {
    for (const std::int32_t group : {32, 64, 128}) {
      for (const DType scales : {DType::bf16, DType::f16}) {
        const QuantizedWeight q = quantized({3, 5, 128}, {bits, group}, scales);
        GgufLoss loss;
        const auto bytes = gguf_bytes("w", q, loss);
        EXPECT_EQ(decoded(gguf_type_of(q.format), bytes), decoded(q)) << bits << " bits, group " << group;
        EXPECT_EQ(loss.scales, 2 * q.scales.numel());
        EXPECT_EQ(loss.inexact, 0);
      }
    }
  }
}

TEST(GgufEncode, CountsWhatF16DoesNotHold) {
  QuantizedWeight q = quantized({2, 64}, {4, 32}, DType::f32);
  q.scales = Buffer::from(Device::cpu(), q.scales.shape(), std::vector<float>{0.5f, 1.0009f, 0.25f, 1e-9f});
  q.biases = Buffer::from(Device::cpu(), q.biases.shape(), std::vector<float>{-2.0f, 0.0f, 1.0f, 3.0f});
  GgufLoss loss;
  gguf_bytes("w", q, loss);
  EXPECT_EQ(loss.scales, 8);
  EXPECT_EQ(loss.inexact, 2);
  EXPECT_EQ(loss.largest, 1.0);  // 1e-9 became 0
  q.scales = Buffer::from(Device::cpu(), q.scales.shape(), std::vector<float>{0.5f, 70000.0f, 0.25f, 1.0f});
  MIXTAPE_EXPECT_ERROR(gguf_bytes("w", q, loss), ErrorCode::invalid_argument, "w: a scale or bias is 70000");
}

TEST(GgufEncode, EightBitsAreExactWhereTheirBiasIsTheMiddle) {
  QuantizedWeight q = quantized({2, 64}, {8, 32}, DType::f16);
  std::vector<float> scales(4, 0.0625f), biases(4, -8.0f);
  q.scales = Buffer::from(Device::cpu(), q.scales.shape(), scales);
  q.biases = Buffer::from(Device::cpu(), q.biases.shape(), biases);
  GgufLoss loss;
  EXPECT_EQ(decoded(GgufType::q8_0, gguf_bytes("w", q, loss)), decoded(q));
  EXPECT_EQ(loss.rounded_matrices, 0);
  // Else they are rounded again, to steps of a 127th of each block's extreme.
  const QuantizedWeight other = quantized({2, 64}, {8, 64}, DType::f32);
  const std::vector<float> found = decoded(GgufType::q8_0, gguf_bytes("w", other, loss));
  const std::vector<float> wanted = decoded(other);
  EXPECT_EQ(loss.rounded_matrices, 1);
  for (std::size_t block = 0; block < found.size(); block += 32) {
    float extreme = 0.0f;
    for (std::size_t i = block; i < block + 32; ++i) extreme = std::max(extreme, std::abs(wanted[i]));
    for (std::size_t i = block; i < block + 32; ++i)
      EXPECT_NEAR(found[i], wanted[i], 0.51f * extreme / 127.0f);
  }
}

std::map<std::string, std::vector<std::byte>> bytes_by_name(const fs::path& path) {
  const GgufFile file(path);
  std::map<std::string, std::vector<std::byte>> found;
  for (const GgufTensor& t : file.tensors())
    found[str(t.name, " ", t.type, t.shape)].assign(t.bytes.begin(), t.bytes.end());
  return found;
}

class GgufExport : public ::testing::Test {
 protected:
  fs::path written(const ModelSource& source, const QuantizationPlan& plan, const TensorProvider& tensors,
                   DType dtype) {
    const fs::path path = directory_ / "x.gguf";
    fs::remove(path);
    AtomicFile file(path);
    const GgufPlan gguf = plan_gguf(source, plan, dtype);
    write_gguf_model(file, source, gguf, tensors);
    EXPECT_EQ(fs::file_size(path), gguf.layout().file_bytes());
    return path;
  }

  TempDirectory directory_;
};

// Also the rows of q and k, which the file has in another order.
TEST_F(GgufExport, BlocksKeepTheirValues) {
  const auto source = open_model(kStories);
  for (const BlockType type : {BlockType::q4_0, BlockType::q5_1}) {
    const QuantizationPlan plan = plan_quantization(*source, {.params = type});
    const auto found = open_gguf_model(written(
        *source, plan, rounded_tensors(*source, Rounding::gpu, DType::f16, Device::cpu()), DType::f32));
    const PlannedModule* key = plan.find("model.layers.1.self_attn.k_proj");
    EXPECT_EQ(key->stored, StoredAs(type));
    for (const PlannedModule& m : plan.modules) {
      if (!m.stored) continue;
      const Buffer w = source->load(m.source, DType::f32, Device::cpu());
      EXPECT_EQ(found->load(m.source, DType::f32, Device::cpu()).to_vector<float>(),
                decoded(quantize_matrix(m.path, w, type, Rounding::gpu, DType::f16)))
          << m.path;
    }
  }
}

TEST_F(GgufExport, FileTypesAreLlamaCpps) {
  const auto source = open_model(kMoe);
  const auto number = [&](const QuantizationOptions& options, const GgufMix* mix) {
    const QuantizationPlan plan = plan_quantization(*source, options);
    const GgufPlan gguf = plan_gguf(*source, plan, DType::bf16, mix);
    return static_cast<int>(gguf.metadata.find("general.file_type")->bytes[0]);
  };
  EXPECT_EQ(number({.params = BlockType::q4_0}, nullptr), 2);
  EXPECT_EQ(number({.params = {5, 32}}, nullptr), 9);
  const GgufMix& large = gguf_mix("q3_k_l");
  EXPECT_EQ(number(mix_options(large, source->config(), false), &large), 13);
}

// Blocks, floats and the file's type are what they were, carried as bytes or taken apart and put together again.
TEST_F(GgufExport, AFileOfBlocksKeepsItsBytes) {
  const std::pair<const char*, BlockType> cases[] = {{kStories, BlockType::q4_0},
                                                     {kStories, BlockType::q5_1},
                                                     {kMoe, BlockType::q5_0},
                                                     {kMoe, BlockType::q8_0}};
  for (const auto& [model, type] : cases) {
    const auto source = open_model(model);
    const QuantizationPlan plan =
        plan_quantization(*source, {.params = type, .rules = {ModuleRule::parse("*.v_proj=float", "")}});
    const fs::path first = directory_ / "first.gguf";
    fs::rename(written(*source, plan, rounded_tensors(*source, Rounding::gpu, DType::f16, Device::cpu()),
                       DType::f16),
               first);
    const auto file = open_gguf_model(first);
    const QuantizationPlan stored = plan_of_stored(*file);
    EXPECT_EQ(stored.find("model.layers.1.self_attn.k_proj")->stored, StoredAs(type));
    for (const bool carries : {true, false}) {
      const fs::path again = directory_ / "again.gguf";
      AtomicFile output(again);
      GgufPlan gguf = plan_gguf(*file, stored, std::nullopt);
      if (carries) carry_tensors(*file, gguf);
      write_gguf_model(output, *file, gguf, stored_tensors(*file));
      EXPECT_EQ(bytes_by_name(again), bytes_by_name(first)) << block_format(type).name;
      EXPECT_EQ(GgufFile(again).integer("general.file_type"), GgufFile(first).integer("general.file_type"));
      fs::remove(again);
    }
  }
}

// Small mixes are not called after the largest of their base.
TEST_F(GgufExport, AFileOfTheSameTypesKeepsItsName) {
  const auto source = open_model(kStories);
  const GgufMix& mix = gguf_mix("q4_k_s");
  const QuantizationPlan plan = plan_quantization(*source, mix_options(mix, source->config(), false));
  const fs::path path = directory_ / "s.gguf";
  AtomicFile output(path);
  write_gguf_model(output, *source, plan_gguf(*source, plan, DType::f32, &mix),
                   rounded_tensors(*source, Rounding::gpu, DType::f16, Device::cpu()));
  const auto file = open_gguf_model(path);
  const auto number = [&](const QuantizationPlan& of) {
    return static_cast<int>(plan_gguf(*file, of, std::nullopt).metadata.find("general.file_type")->bytes[0]);
  };
  EXPECT_EQ(number(plan_of_stored(*file)), static_cast<int>(mix.file_type));
  EXPECT_EQ(number(plan_of_decoded(*file)), 0);
}

// What decodes a directory's codes.
TEST_F(GgufExport, DecodedModelsAreInFloat) {
  const auto source = open_model(kStories);
  {
    AtomicDirectory output(directory_ / "mlx");
    write_rounded_model(output, *source, plan_quantization(*source, {.params = {4, 32}}), Rounding::gpu,
                        DType::f32, Device::cpu());
  }
  const auto quantized = open_model(directory_ / "mlx");
  const QuantizationPlan plan = plan_of_decoded(*quantized);
  const auto found = open_gguf_model(written(*quantized, plan, decoded_tensors(*quantized), DType::f32));
  const TensorProvider codes = stored_tensors(*quantized);
  for (const PlannedModule& m : plan_of_stored(*quantized).modules) {
    if (!m.stored) continue;
    EXPECT_EQ(gguf_file_of(*found)->find_tensor("token_embd.weight")->type, GgufType::f32);
    EXPECT_EQ(found->load(m.source, DType::f32, Device::cpu()).to_vector<float>(),
              decoded(codes.quantized(m)))
        << m.path;
  }
  EXPECT_EQ(gguf_file_of(*quantized), nullptr);
}

// Read again it is the same model: config, every tensor, the ids of texts.
TEST_F(GgufExport, FloatModelsComeBack) {
  for (const char* model : {kStories, kMoe}) {
    const auto source = open_model(model);
    const QuantizationPlan plan = plan_of_stored(*source);
    const auto found = open_gguf_model(written(*source, plan, {}, DType::f32));
    const ModelConfig a = source->config(), b = found->config();
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
    EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
    EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
    EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
    for (const ModelTensor& t : tensor_list(a)) {
      EXPECT_EQ(source->load(t.name, DType::f32, Device::cpu()).to_vector<float>(),
                found->load(t.name, DType::f32, Device::cpu()).to_vector<float>())
          << t.name;
    }
    const auto tokenizer = [](const ModelSource& s) {
      return Tokenizer::from_json(s.tokenizer_json(), s.tokenizer_config_json());
    };
    for (const char* text : {"Once upon a time, there was a cat.", "  two  spaces", "caf\u00e9 \u4f60", ""}) {
      EXPECT_EQ(tokenizer(*source).encode(text, true), tokenizer(*found).encode(text, true)) << text;
    }
  }
}

TEST_F(GgufExport, CodesAreThoseOfTheDirectory) {
  for (const char* model : {kStories, kMoe}) {
    const auto source = open_model(model);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {4, 32}});
    const TensorProvider tensors = rounded_tensors(*source, Rounding::gpu, DType::f16, Device::cpu());
    const auto found = open_gguf_model(written(*source, plan, tensors, DType::f32));
    for (const PlannedModule& m : plan.modules) {
      const std::vector<float> values =
          found->load(m.path + ".weight", DType::f32, Device::cpu()).to_vector<float>();
      EXPECT_EQ(values, m.stored ? decoded(tensors.quantized(m))
                                 : source->load(m.source, DType::f32, Device::cpu()).to_vector<float>())
          << m.path;
    }
  }
}

// A quantized directory is converted without being quantized anew.
TEST_F(GgufExport, AQuantizedDirectoryKeepsItsCodes) {
  const auto source = open_model(kStories);
  {
    AtomicDirectory output(directory_ / "mlx");
    write_rounded_model(output, *source, plan_quantization(*source, {.params = {5, 32}}), Rounding::gpu,
                        DType::bf16, Device::cpu());
  }
  const auto quantized = open_model(directory_ / "mlx");
  const QuantizationPlan plan = plan_of_stored(*quantized);
  const TensorProvider tensors = stored_tensors(*quantized);
  const auto found = open_gguf_model(written(*quantized, plan, tensors, DType::bf16));
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    EXPECT_EQ(found->load(m.path + ".weight", DType::f32, Device::cpu()).to_vector<float>(),
              decoded(tensors.quantized(m)))
        << m.path;
  }
}

TEST_F(GgufExport, VectorsAndRoutersAreF32) {
  const auto source = open_model(kMoe);
  const QuantizationPlan plan = plan_quantization(*source, {.params = {4, 32}});
  const GgufPlan gguf = plan_gguf(*source, plan, DType::bf16);
  for (const GgufPlannedTensor& t : gguf.tensors) {
    const bool is_small = t.tensor.kind == TensorKind::vector || t.tensor.kind == TensorKind::router;
    EXPECT_EQ(t.type, is_small ? GgufType::f32 : GgufType::q4_1) << t.tensor.name;
  }
}

}  // namespace
}  // namespace mixtape
