#include "mixtape/calib/recipe.h"

#include <gtest/gtest.h>

#include "mixtape/io/model_source.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(Recipe, FitsGoOnFromOneAnother) {
  const auto names = [](InitialFit fit) {
    std::vector<std::string> all;
    for (const Method& m : fits(fit)) all.push_back(m.name);
    return all;
  };
  EXPECT_EQ(names(InitialFit::rounding), (std::vector<std::string>{"plain rounding"}));
  EXPECT_EQ(names(InitialFit::gptq),
            (std::vector<std::string>{"plain rounding", "least squares, weighted", "gptq"}));
}

// SmolLM2's shape: 135 million weights, tied, 1.08e9 operations a token, 2048 tokens a step of 4 rows.
TEST(Recipe, StepsFollowTheModelsSize) {
  ModelConfig config = open_model("tests/data/parity/llama_tied_bias_rope3")->config();
  const Device cpu = Device::cpu();
  EXPECT_EQ(training_of(Effort::good, config, 512, cpu).steps, 200);  // a small one: the most
  EXPECT_EQ(training_of(Effort::good, config, 512, cpu).validate_every, 20);
  EXPECT_EQ(statistics_rows_of(config, 512, cpu), 128);
  EXPECT_EQ(training_of(Effort::best, config, 512, cpu).steps, 800);
  EXPECT_EQ(training_of(Effort::fast, config, 512, cpu).steps, 0);
  config.vocab_size = 134000000 / config.hidden_size;
  const Training good = training_of(Effort::good, config, 512, cpu);
  EXPECT_EQ(good.batch_size, 4);
  EXPECT_EQ(good.learning, Learning::codes);
  EXPECT_EQ(good.validate_every, good.steps / 4);
  EXPECT_NEAR(static_cast<double>(good.steps), 6e13 / (8 * 134.5e6 * 2048), 1.0);
  EXPECT_EQ(statistics_rows_of(config, 512, cpu), 72);
  config.vocab_size = 8000000000 / config.hidden_size;
  EXPECT_EQ(training_of(Effort::good, config, 512, cpu).steps, 20);  // a large one: the least
  EXPECT_EQ(training_of(Effort::good, config, 512, cpu).learning, Learning::blocks);
}

// Keys and values of a token: 30 layers of 2 x 3 heads of 64, 36 of 2 x 8 heads of 128.
TEST(Recipe, RowsThatAreSampledTogetherFitTheirCache) {
  ModelConfig config = open_model("tests/data/parity/llama")->config();
  const Device gpu = Device::open("sim");
  EXPECT_EQ(sampled_rows_of(config, 512, Device::cpu()), 32);
  EXPECT_EQ(sampled_rows_of(config, 512, gpu), 256);
  auto& attention = std::get<AttentionSpec>(config.layers[0].mixer);
  attention.kv_heads = 3;
  attention.head_dim = 64;
  config.layers.assign(30, config.layers[0]);
  EXPECT_EQ(sampled_rows_of(config, 512, gpu), 169);
  std::get<AttentionSpec>(config.layers[0].mixer) = {.kv_heads = 8, .head_dim = 128};
  config.layers.assign(36, config.layers[0]);
  EXPECT_EQ(sampled_rows_of(config, 512, gpu), 32);
}

TEST(Recipe, LayersLearnBeforeScalesDo) {
  const auto names = [](Learning learning) {
    std::vector<std::string> all;
    for (const Method& m : training_methods(learning, {})) all.push_back(m.name);
    return all;
  };
  EXPECT_EQ(names(Learning::nothing), (std::vector<std::string>{}));
  EXPECT_EQ(names(Learning::scales), (std::vector<std::string>{"dwq"}));
  EXPECT_EQ(names(Learning::blocks), (std::vector<std::string>{"codes by layer", "dwq"}));
  EXPECT_EQ(names(Learning::codes), (std::vector<std::string>{"dwq with codes"}));
}

TEST(Recipe, AnEffortIsMethodsAndTheirSettings) {
  const ModelConfig config = open_model("tests/data/parity/llama")->config();
  const auto options = [&](Effort effort) { return calibration_options(effort, config, 512, Device::cpu()); };
  const auto names = [&](Effort effort) {
    std::vector<std::string> all;
    for (const Method& m : options(effort).methods) all.push_back(m.name);
    return all;
  };
  const std::vector<std::string> fit = {"plain rounding", "least squares, weighted", "gptq"};
  EXPECT_EQ(names(Effort::fast), fit);
  EXPECT_EQ(names(Effort::good), (std::vector<std::string>{fit[0], fit[1], fit[2], "dwq with codes"}));
  EXPECT_EQ(names(Effort::best), names(Effort::good));
  // Where nothing trains, the fits make up for the layers below.
  EXPECT_TRUE(options(Effort::fast).methods[2].follows);
  EXPECT_FALSE(options(Effort::good).methods[2].follows);
  for (const Effort effort : {Effort::fast, Effort::good}) {
    EXPECT_EQ(options(effort).evaluation_batch,
              training_of(Effort::good, config, 512, Device::cpu()).batch_size);
    EXPECT_EQ(options(effort).statistics_rows, statistics_rows_of(config, 512, Device::cpu()));
  }
}

TEST(Recipe, RateFollowsTheStart) {
  EXPECT_DOUBLE_EQ(rate_for_start(0.25), 2.0 * rate_for_start(0.0625));
  EXPECT_DOUBLE_EQ(rate_for_start(0.0), 1e-4);
  EXPECT_DOUBLE_EQ(rate_for_start(1e9), 0.02);
  EXPECT_DOUBLE_EQ(code_rate_for(150, 0.5), 0.008);
  EXPECT_DOUBLE_EQ(code_rate_for(1, 0.5), 0.012);
  EXPECT_DOUBLE_EQ(code_rate_for(100000, 0.5), 0.002);
  EXPECT_NEAR(code_rate_for(20, 0.002), 0.0055, 1e-4);
  EXPECT_DOUBLE_EQ(code_rate_for(20, 0.0), 0.002);
}

}  // namespace
}  // namespace mixtape
