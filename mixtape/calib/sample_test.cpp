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

}  // namespace
}  // namespace mixtape
