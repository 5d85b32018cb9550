#include "mixtape/calib/allocation.h"

#include <gtest/gtest.h>

#include "mixtape/core/random.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Modules = std::vector<std::vector<Choice>>;

struct Total {
  std::int64_t bytes = 0;
  double loss = 0.0;
};

Total total(const Modules& modules, const std::vector<std::size_t>& chosen) {
  Total t;
  for (std::size_t m = 0; m < modules.size(); ++m) {
    t.bytes += modules[m].at(chosen[m]).bytes;
    t.loss += modules[m][chosen[m]].loss;
  }
  return t;
}

// The least loss within the budget, of all combinations.
double exhaustive(const Modules& modules, std::int64_t budget, std::size_t from = 0) {
  if (budget < 0) return 1e9;
  if (from == modules.size()) return 0.0;
  double least = 1e9;
  for (const Choice& c : modules[from])
    least = std::min(least, c.loss + exhaustive(modules, budget - c.bytes, from + 1));
  return least;
}

// Choices whose losses mostly fall with their size, in units of `unit` bytes.
Modules random_modules(std::uint64_t seed, std::size_t count, std::int64_t unit) {
  Modules modules(count);
  std::uint64_t at = 0;
  for (auto& choices : modules) {
    const std::size_t n = 1 + uniform_index(seed, ++at, 5);
    for (std::size_t c = 0; c < n; ++c) {
      const auto bytes = static_cast<std::int64_t>(1 + uniform_index(seed, ++at, 40)) * unit;
      choices.push_back({bytes, uniform(seed, ++at) / static_cast<double>(bytes)});
    }
  }
  return modules;
}

TEST(Allocation, IsTheBestOfAllCombinations) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Modules modules = random_modules(seed, 1 + seed % 6, seed % 3 == 0 ? 1 : 13824);
    const SizeRange range = possible_sizes(modules);
    for (const double part : {0.0, 0.1, 0.5, 0.9, 1.0, 1.7}) {
      const std::int64_t budget =
          range.least + static_cast<std::int64_t>(part * static_cast<double>(range.most - range.least));
      const Total found = total(modules, allocate(modules, budget));
      EXPECT_LE(found.bytes, budget);
      EXPECT_NEAR(found.loss, exhaustive(modules, budget), 1e-15) << "seed " << seed << ", budget " << budget;
    }
  }
}

// Sizes that share no divisor, of which the range holds far more than 65536: near the best, never above the budget.
TEST(Allocation, SizesWithoutACommonDivisor) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Modules modules = random_modules(seed, 6, 1'000'003);
    std::uint64_t at = 1000;
    for (auto& choices : modules) {
      for (Choice& c : choices) c.bytes += static_cast<std::int64_t>(uniform_index(seed, ++at, 1000));
    }
    const SizeRange range = possible_sizes(modules);
    const std::int64_t budget = (range.least + range.most) / 2;
    const Total found = total(modules, allocate(modules, budget));
    EXPECT_LE(found.bytes, budget);
    // What a budget smaller by one unit of each module allows is reached at least.
    const std::int64_t units = 6 * ((budget - range.least) / 65536 + 1);
    EXPECT_LE(found.loss, exhaustive(modules, std::max(range.least, budget - units)) + 1e-15);
  }
}

TEST(Allocation, AllThatFitsIsTaken) {
  const Modules modules = {{{10, 1.0}, {20, 0.5}, {30, 0.1}}, {{10, 3.0}, {20, 0.2}}, {{7, 0.0}}};
  EXPECT_EQ(allocate(modules, 1'000'000), (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_EQ(allocate(modules, 57), (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_EQ(allocate(modules, 56), (std::vector<std::size_t>{1, 1, 0}));
  EXPECT_EQ(allocate(modules, 27), (std::vector<std::size_t>{0, 0, 0}));
  EXPECT_TRUE(allocate({}, 0).empty());
}

// A choice that costs more and loses more is of no use; of equal losses the smaller one is taken.
TEST(Allocation, LargerIsNotAlwaysBetter) {
  EXPECT_EQ(allocate({{{30, 0.5}, {20, 0.1}, {10, 1.0}}}, 30), (std::vector<std::size_t>{1}));
  EXPECT_EQ(allocate({{{30, 0.5}, {20, 0.5}, {10, 0.5}}}, 30), (std::vector<std::size_t>{2}));
}

TEST(Allocation, Refuses) {
  const Modules modules = {{{10, 1.0}, {20, 0.5}}, {{10, 3.0}, {40, 0.2}}};
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(allocate(modules, 19), code,
                       "the budget is 19 bytes, expected 20 or more (60 hold the largest choices)");
  MIXTAPE_EXPECT_ERROR(allocate({{}}, 19), code, "module 0 has no choice");
  MIXTAPE_EXPECT_ERROR(allocate({{{1, NAN}}}, 19), code, "module 0 has a loss of nan");
  MIXTAPE_EXPECT_ERROR(allocate({{{-1, 0.0}}}, 19), code, "module 0 has a choice of -1 bytes");
}

}  // namespace
}  // namespace mixtape
