#include "mixtape/calib/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/io/json_file.h"
#include "mixtape/io/model_source.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

TEST(Initialize, DeviationsAreAsDocumented) {
  nlohmann::json json = read_json("tests/data/parity/llama_tied_bias_rope3/config.json");
  json["hidden_size"] = 256;
  json["intermediate_size"] = 512;
  const ModelConfig config = ModelConfig::parse(json, "config");
  const Parameters parameters = initial_parameters(config, 7, Device::cpu());
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers.size()));
  std::size_t matrices = 0, norms = 0, biases = 0;
  for (const auto& [name, buffer] : parameters.dense) {
    const std::vector<float> v = buffer.to_vector<float>();
    const auto all = [&](float value) {
      return std::all_of(v.begin(), v.end(), [=](float x) { return x == value; });
    };
    if (name.ends_with(".bias")) {
      EXPECT_TRUE(all(0.0f)) << name;
      ++biases;
    } else if (name.find("norm") != std::string::npos) {
      EXPECT_TRUE(all(1.0f)) << name;
      ++norms;
    } else {
      double squares = 0.0;
      for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
      const double deviation = std::sqrt(squares / static_cast<double>(v.size()));
      const bool writes = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
      // The deviation of n values is known to 1/sqrt(2n), 0.8 % for the 8,192 of the smallest matrix: 5 of them.
      EXPECT_NEAR(deviation, writes ? residual : 0.02, 0.04 * deviation) << name;
      ++matrices;
    }
  }
  EXPECT_EQ(matrices, 1 + 7 * config.layers.size());
  EXPECT_EQ(norms, 1 + 2 * config.layers.size());
  EXPECT_GT(biases, 0u);
}

TEST(Initialize, SeedsDecideEveryValue) {
  const ModelConfig config = open_model("tests/data/parity/qwen3_moe")->config();
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const auto values = [&](std::uint64_t seed) {
    return initial_parameters(config, seed, Device::cpu()).dense.at(name).to_vector<float>();
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));
}

// Within a matrix too: an embedding of four million values is asked about four times.
TEST(Initialize, StopsWithinATensor) {
  nlohmann::json json = read_json("tests/data/parity/llama_tied_bias_rope3/config.json");
  json["hidden_size"] = 256;
  json["vocab_size"] = 1 << 14;
  const ModelConfig config = ModelConfig::parse(json, "config");
  int asked = 0;
  std::int64_t tensors = 0;
  const RunHooks hooks = {.progress = [&](const StageProgress& p) { tensors = p.done; },
                          .should_stop = [&] { return ++asked == 4; }};
  try {
    initial_parameters(config, 1, Device::cpu(), hooks);
    ADD_FAILURE() << "not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::interrupted);
    EXPECT_STREQ(error.what(), "initializing: interrupted");
  }
  EXPECT_EQ(tensors, 0);
  initial_parameters(config, 1, Device::cpu(), {.progress = hooks.progress, .should_stop = {}});
  EXPECT_EQ(tensors, std::ssize(tensor_list(config)));
}

}  // namespace
}  // namespace mixtape
