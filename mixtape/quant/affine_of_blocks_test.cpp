#include "mixtape/quant/affine_of_blocks.h"

#include <gmock/gmock.h>

#include "mixtape/io/gguf_model.h"
#include "mixtape/quant/gguf_export.h"
#include "mixtape/quant/tensor_providers.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using testing::TempDirectory;

TEST(AffineOfBlocks, WhatMlxHolds) {
  const auto obstacle = [](BlockType type, DType value) { return affine_obstacle(type, value); };
  for (const BlockType type :
       {BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1, BlockType::q8_0}) {
    EXPECT_EQ(obstacle(type, DType::f16), "");
    EXPECT_EQ(obstacle(type, DType::f32), "");
    EXPECT_EQ(obstacle(type, DType::bf16), "its scales are f16 numbers, which bf16 does not hold");
  }
  for (const BlockType type : {BlockType::q4_k, BlockType::q5_k}) {
    EXPECT_EQ(obstacle(type, DType::f32), "");
    EXPECT_EQ(obstacle(type, DType::f16), "its scales take f32, f16 does not hold them");
  }
  for (const BlockType type : {BlockType::q2_k, BlockType::q3_k, BlockType::q6_k})
    EXPECT_EQ(obstacle(type, DType::f32), "groups of 16, MLX has 32, 64 and 128");
  EXPECT_EQ(affine_obstacle(WeightFormat(4, 64), DType::bf16), "");
}

class AffineOfBlocksTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelSource> file_in(BlockType type, const char* model) {
    const auto source = open_model(model);
    const QuantizationPlan plan = plan_quantization(*source, {.params = type});
    const std::filesystem::path path = directory_ / "x.gguf";
    std::filesystem::remove(path);
    AtomicFile output(path);
    write_gguf_model(output, *source, plan_gguf(*source, plan, DType::bf16),
                     rounded_tensors(*source, Rounding::gpu, DType::f16, Device::cpu()));
    return open_gguf_model(path);
  }
  TempDirectory directory_;
};

// Every matrix of the directory decodes to the file's values, bit for bit; the rows of q and k are in the other order.
TEST_F(AffineOfBlocksTest, DirectoriesHaveTheFilesValues) {
  for (const char* model : {"tests/data/stories260k", "models/tiny-moe"}) {
    for (const BlockType type :
         {BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1, BlockType::q8_0}) {
      const auto file = file_in(type, model);
      const QuantizationPlan stored = plan_of_stored(*file);
      const DType value = exact_dtype(*file, stored);
      const std::filesystem::path path = directory_ / "mlx";
      std::filesystem::remove_all(path);
      {
        AtomicDirectory output(path);
        write_quantized_model(output, *file, affine_plan(stored, value), stored_tensors(*file), value);
      }
      const auto written = open_model(path);
      const QuantizationPlan plan = plan_of_stored(*written);
      const TensorProvider decoded = decoded_tensors(*written);
      for (const PlannedModule& m : plan.modules) {
        EXPECT_EQ(m.stored, stored.find(m.path)->stored ? StoredAs(WeightFormat(block_format(type).affine))
                                                        : std::nullopt);
        EXPECT_EQ(decoded.dense(m.source).dtype(), m.stored ? DType::f32 : value);
        const std::vector<float> found =
            stored_as(DType::f32, m.path, decoded.dense(m.source)).to_vector<float>();
        EXPECT_EQ(found, file->load(m.source, DType::f32, Device::cpu()).to_vector<float>()) << m.path;
      }
    }
  }
}

TEST_F(AffineOfBlocksTest, ModulesAreRefusedByName) {
  QuantizationPlan plan;
  plan.modules = {{"a", "a.weight", {4, 256}, TensorKind::matrix, WeightFormat(BlockType::q6_k), ""}};
  MIXTAPE_EXPECT_ERROR(affine_plan(plan, DType::f32), ErrorCode::not_supported,
                       "'a' is Q6_K: groups of 16, MLX has 32, 64 and 128");
}

}  // namespace
}  // namespace mixtape
