#include "mixtape/calib/sample.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

// The most probable token after all of `row`, computed without a state.
std::uint32_t next_token(const CausalLm& model, Tape& tape, const TokenRow& row) {
  const Buffer ids = Buffer::from(tape.device(), {1, std::ssize(row)}, row);
  const Var logits = model.logits(model.hidden(ids));  // [1, S, V]
  tape.encoder().commit_and_wait();
  const std::vector<float> all = logits.value().to_vector<float>();
  const auto last = all.end() - model.config().vocab_size;
  return static_cast<std::uint32_t>(std::max_element(last, all.end()) - last);
}

// Beyond 12 tokens this model has other frequencies: what was remembered of the first 12 is computed anew.
TEST(Sample, ASequenceOutgrowsItsShortFrequencies) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const NoGrad guard(tape);
    const std::unique_ptr<ModelSource> source = open_model("tests/data/parity/phi3_longrope");
    const Teacher teacher(*source, DType::f32, false, tape);
    const CausalLm& model = teacher.model();
    ASSERT_EQ(model.config().ropes[0].original_max_position_embeddings, 12);
    const std::vector<TokenRow> prompts = random_rows(2, 9, 263, 3);
    std::vector<TokenRow> wanted = prompts;
    for (TokenRow& row : wanted) {
      for (int i = 0; i < 7; ++i) row.push_back(next_token(model, tape, row));
    }
    EXPECT_EQ(sample(model, tape, prompts, 7, {.temperature = 0.0}), wanted);

    GenerationState state;
    const auto feed = [&](std::int64_t tokens) {
      const std::vector<TokenRow> rows = random_rows(1, tokens, 263, 3);
      return model.hidden(Buffer::from(device, {1, tokens}, rows[0]), {.state = &state});
    };
    feed(12);
    EXPECT_TRUE(model.starts_over(12, 13));
    EXPECT_FALSE(model.starts_over(0, 13));
    EXPECT_FALSE(model.starts_over(13, 14));
    MIXTAPE_EXPECT_ERROR(feed(1), ErrorCode::invalid_argument, "a sequence grows from 12 to 13 tokens");
  }
}

// What a state remembers is as good as the tokens themselves, also after a call that was stopped.
TEST(Sample, GoesOnFromAState) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::unique_ptr<ModelSource> source = open_model("tests/data/stories260k");
    const Teacher teacher(*source, DType::f32, false, tape);
    const SampleOptions greedy{.temperature = 0.0};
    TokenRow row = random_rows(1, 6, 512, 3)[0];
    GenerationState state;
    for (int turn = 0; turn < 3; ++turn) {
      const std::vector<TokenRow> wanted = sample(teacher.model(), tape, {row}, 4, greedy);
      EXPECT_EQ(sample(teacher.model(), tape, {row}, 4, greedy, {}, {}, &state), wanted);
      EXPECT_EQ(state.length, std::ssize(wanted[0]) - 1);
      row = wanted[0];
      row.push_back(5);
    }
    int drawn = 0;
    TokenRow stopped = row;
    const auto keep = [&](std::size_t, std::uint32_t id) { stopped.push_back(id), ++drawn; };
    const RunHooks hooks{.progress = {}, .should_stop = [&] { return drawn == 2; }};
    MIXTAPE_EXPECT_ERROR(sample(teacher.model(), tape, {row}, 4, greedy, keep, hooks, &state),
                         ErrorCode::interrupted, "sampling");
    EXPECT_EQ(sample(teacher.model(), tape, {stopped}, 2, greedy, {}, {}, &state),
              sample(teacher.model(), tape, {row}, 4, greedy));
    MIXTAPE_EXPECT_ERROR(sample(teacher.model(), tape, {{1, 2}}, 2, greedy, {}, {}, &state),
                         ErrorCode::invalid_argument, "expected fewer than the 2 of each prompt");
  }
}

TEST(Sample, APenaltyForbidsWhatWasSeen) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::unique_ptr<ModelSource> source = open_model("tests/data/stories260k");
    const Teacher teacher(*source, DType::f32, false, tape);
    const std::vector<TokenRow> prompts = {{1, 7, 7, 9}, {1, 4, 5, 6}};
    const auto draw = [&](double penalty, std::int64_t last) {
      const SampleOptions o{.temperature = 0.0, .repeat_penalty = penalty, .repeat_last = last};
      return sample(teacher.model(), tape, prompts, 24, o);
    };
    const std::vector<TokenRow> plain = draw(1.0, 64);
    for (TokenRow row : draw(1e30, 64)) {  // logits are then 0 or far below: no token comes twice
      std::sort(row.begin() + 4, row.end());
      EXPECT_EQ(std::adjacent_find(row.begin() + 4, row.end()), row.end());
    }
    EXPECT_EQ(draw(1e30, 0), plain);
    MIXTAPE_EXPECT_ERROR(draw(0.0, 64), ErrorCode::invalid_argument, "repeat_penalty is 0");
    MIXTAPE_EXPECT_ERROR(draw(2.0, -1), ErrorCode::invalid_argument, "repeat_last is -1");
  }
}

}  // namespace
}  // namespace mixtape
