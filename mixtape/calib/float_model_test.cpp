#include "mixtape/calib/float_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mixtape/calib/initialize.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/model_source.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

constexpr const char* kTokenizer = "tests/data/stories260k";

class FloatModelTest : public ::testing::Test {
 protected:
  void set_dtype(const char* name) {
    json_["torch_dtype"] = name;
    config_ = ModelConfig::parse(json_, "config");
    parameters_ = initial_parameters(config_, 1, Device::cpu());
  }
  void write(const RunHooks& hooks = {}) {
    AtomicDirectory output(temp_ / "out");
    write_float_model(output, json_, kTokenizer, config_, parameters_, hooks);
  }

  testing::TempDirectory temp_;
  nlohmann::json json_ = read_json("tests/data/stories260k/config.json");
  ModelConfig config_;
  Parameters parameters_;
};

TEST_F(FloatModelTest, EveryDTypeComesBackRounded) {
  for (const auto& [name, dtype] : {std::pair("float32", DType::f32), std::pair("bfloat16", DType::bf16),
                                    std::pair("float16", DType::f16)}) {
    set_dtype(name);
    write();
    const auto source = open_model(temp_ / "out");
    for (const auto& [tensor, value] : parameters_.dense) {
      EXPECT_EQ(source->stored_dtype(tensor), dtype) << tensor;
      const std::vector<float> written = source->load(tensor, DType::f32, Device::cpu()).to_vector<float>();
      const std::vector<float> wanted = value.to_vector<float>();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const float rounded = dtype == DType::bf16  ? static_cast<float>(bf16(wanted[i]))
                              : dtype == DType::f16 ? static_cast<float>(f16(wanted[i]))
                                                    : wanted[i];
        ASSERT_EQ(written[i], rounded) << name << " " << tensor << " " << i;
      }
    }
    EXPECT_EQ(testing::contents_of(temp_ / "out" / "tokenizer.json"),
              testing::contents_of(std::filesystem::path(kTokenizer) / "tokenizer.json"));
    EXPECT_EQ(read_json(temp_ / "out" / "config.json"), json_);
    std::filesystem::remove_all(temp_ / "out");
  }
}

TEST_F(FloatModelTest, OverflowAndInterruptLeaveNothing) {
  set_dtype("float16");
  const RunHooks stop = {.progress = {}, .should_stop = [] { return true; }};
  MIXTAPE_EXPECT_ERROR(write(stop), ErrorCode::interrupted, "writing: interrupted");
  const std::string norm = "model.norm.weight";
  parameters_.dense[norm] =
      Buffer::from(Device::cpu(), parameters_.dense.at(norm).shape(),
                   std::vector<float>(static_cast<std::size_t>(config_.hidden_size), 1e6f));
  MIXTAPE_EXPECT_ERROR(write(), ErrorCode::invalid_argument,
                       "model.norm.weight: value 1e+06 at position 0 overflows f16");
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

}  // namespace
}  // namespace mixtape
