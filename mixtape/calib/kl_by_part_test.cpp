#include "mixtape/calib/kl_by_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"

namespace mixtape {
namespace {

constexpr std::int64_t kVocabulary = 263;

class KlByPartTest : public ::testing::Test {
 protected:
  void open(const std::string& model, bool streamed = false) {
    source_ = open_model("tests/data/parity/" + model);
    teacher_ = std::make_unique<Teacher>(*source_, DType::f32, streamed, tape_);
    plan_ = plan_quantization(*source_, {.params = {3, 32}});
    student_ = fitted(plan_);
  }

  Student fitted(const QuantizationPlan& plan) {
    return fit_students(*teacher_, plan, fits(InitialFit::rounding), {}, 2).back().student;
  }

  KlByPart measure(const RunHooks& hooks = {}) {
    return measure_kl_by_part(*teacher_, student_, plan_, DType::f32, rows_, 2, hooks);
  }

  // By the evaluation that reports use, of a student that has these matrices alone.
  Evaluation directly(const std::vector<std::string>& quantized) {
    QuantizationOptions o{.params = {3, 32}};
    for (const PlannedModule& m : plan_.modules) {
      const bool is_one = std::find(quantized.begin(), quantized.end(), m.path) != quantized.end();
      if (m.stored && !is_one) o.modules.emplace(m.path, std::nullopt);
    }
    return evaluate_stored(fitted(plan_quantization(*source_, o)), *teacher_, DType::f32, rows_, 3);
  }

  Tape tape_{Device::cpu()};
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<Teacher> teacher_;
  QuantizationPlan plan_;
  Student student_;
  std::vector<TokenRow> rows_ = random_rows(3, 13, kVocabulary, 9);
};

// Plain rounding treats each matrix by itself: a part alone is a student that has nothing else quantized.
TEST_F(KlByPartTest, IsTheKlOfAStudentWithThePartAlone) {
  rows_[1].resize(6);  // padding does not count
  for (const auto& [model, streamed] :
       {std::pair("llama", false), std::pair("llama_tied_bias_rope3", true), std::pair("qwen3_moe", false)}) {
    open(model, streamed);
    const KlByPart found = measure();
    EXPECT_EQ(found.positions, count_positions(rows_));
    const Evaluation whole = evaluate_stored(student_, *teacher_, DType::f32, rows_, 3);
    EXPECT_NEAR(found.kl.value, whole.kl->mean, 1e-6);
    EXPECT_NEAR(found.kl.error, whole.kl->mean_error, 1e-6);
    for (const auto* parts : {&found.places, &found.kinds, &found.modules}) {
      for (const PartLoss& p : *parts) {
        const KlStatistics expected = *directly(p.part.modules).kl;
        EXPECT_NEAR(p.kl.value, expected.mean, 1e-6 + 1e-4 * expected.mean) << model << ": " << p.part.name;
        EXPECT_NEAR(p.kl.error, expected.mean_error, 1e-6 + 1e-3 * expected.mean) << p.part.name;
      }
    }
  }
}

TEST_F(KlByPartTest, PartsHoldEveryQuantizedMatrixOnce) {
  open("qwen3_moe");
  const StudentParts parts = parts_of(plan_);
  const auto quantized =
      static_cast<std::size_t>(std::count_if(plan_.modules.begin(), plan_.modules.end(),
                                             [](const PlannedModule& m) { return m.stored.has_value(); }));
  const auto held = [](const std::vector<StudentPart>& all) {
    std::multiset<std::string> paths;
    for (const StudentPart& part : all) paths.insert(part.modules.begin(), part.modules.end());
    EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), paths.size());
    return paths.size();
  };
  EXPECT_EQ(held(parts.places), quantized);
  std::size_t outside = 0;
  for (const StudentPart& place : parts.places) {
    EXPECT_EQ(is_layer(place), place.modules.size() > 1) << place.name;
    outside += !is_layer(place);
  }
  EXPECT_EQ(parts.places.size() - outside, source_->config().layers.size());
  EXPECT_EQ(held(parts.kinds), quantized - outside);
  for (const StudentPart& kind : parts.kinds) {
    for (const std::string& path : kind.modules) EXPECT_TRUE(path.ends_with("." + kind.name));
  }

  const KlByPart found = measure();
  const PartLoss* worst = worst_of(found.places, is_layer);
  ASSERT_NE(worst, nullptr);
  EXPECT_TRUE(is_layer(worst->part));
  for (const PartLoss& p : found.places) EXPECT_TRUE(!is_layer(p.part) || p.kl.value <= worst->kl.value);
  EXPECT_GE(worst_of(found.places)->kl.value, worst->kl.value);
  ASSERT_EQ(found.modules.size(), worst->part.modules.size());
  EXPECT_EQ(found.modules[0].part.name, worst->part.modules[0]);
}

TEST_F(KlByPartTest, ProgressEndsAtItsTotalAndStopsBetweenParts) {
  open("llama");
  StageProgress last;
  RunHooks hooks;
  hooks.progress = [&](const StageProgress& p) {
    EXPECT_EQ(p.stage, "measuring parts");
    EXPECT_GE(p.done, last.done);
    last = p;
  };
  measure(hooks);
  EXPECT_GT(last.total, 0);
  EXPECT_EQ(last.done, last.total);
  hooks.should_stop = [&] { return last.done == 2; };
  last = {};
  EXPECT_THROW(measure(hooks), Error);
  EXPECT_EQ(last.done, 2);
}

TEST(FirstPositions, CutsTheLastRow) {
  const std::vector<TokenRow> rows = {{1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
  EXPECT_EQ(first_positions(rows, 2), (std::vector<TokenRow>{{1, 2, 3}}));
  EXPECT_EQ(first_positions(rows, 3), (std::vector<TokenRow>{{1, 2, 3}, {4, 5}}));
  EXPECT_EQ(first_positions(rows, 100), rows);
}

TEST_F(KlByPartTest, RefusesAnOutputLayerOfItsOwn) {
  open("llama_tied_bias_rope3");
  plan_.unties_embeddings = true;
  EXPECT_THROW(measure(), Error);
}

}  // namespace
}  // namespace mixtape
