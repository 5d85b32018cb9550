#include "mixtape/calib/allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

using Choices = std::vector<Choice>;

constexpr std::int64_t kUnits = 65536;

std::int64_t least_bytes(const Choices& choices) {
  return std::min_element(choices.begin(), choices.end(),
                          [](const Choice& a, const Choice& b) { return a.bytes < b.bytes; })
      ->bytes;
}

void check(const std::vector<Choices>& modules) {
  for (std::size_t m = 0; m < modules.size(); ++m) {
    require(!modules[m].empty(), "allocation: module ", m, " has no choice, expected one or more");
    for (const Choice& c : modules[m]) {
      require(c.bytes >= 0, "allocation: module ", m, " has a choice of ", c.bytes,
              " bytes, expected 0 or more");
      require(std::isfinite(c.loss), "allocation: module ", m, " has a loss of ", c.loss,
              ", expected a finite number");
    }
  }
}

// The largest unit that every module's sizes above its smallest are multiples of; 1 where there are none.
std::int64_t common_unit(const std::vector<Choices>& modules) {
  std::int64_t unit = 0;
  for (const Choices& choices : modules) {
    for (const Choice& c : choices) unit = std::gcd(unit, c.bytes - least_bytes(choices));
  }
  return std::max<std::int64_t>(unit, 1);
}

// Dynamic program over the units that are spent beyond each module's smallest choice.
class Program {
 public:
  Program(std::int64_t unit, std::int64_t units)
      : unit_(unit), least_(static_cast<std::size_t>(units) + 1, 0.0) {}

  void add(const Choices& choices) {
    std::vector<std::size_t> order(choices.size());  // by size: of equal losses the first is kept
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return choices[a].bytes < choices[b].bytes; });
    std::vector<double> with(least_.size(), std::numeric_limits<double>::infinity());
    std::vector<std::uint16_t> taken(least_.size());
    std::vector<std::size_t> costs(choices.size());
    for (const std::size_t c : order) {
      const std::int64_t extra = choices[c].bytes - choices[order[0]].bytes;
      costs[c] = static_cast<std::size_t>((extra + unit_ - 1) / unit_);
      for (std::size_t u = costs[c]; u < with.size(); ++u) {
        const double loss = least_[u - costs[c]] + choices[c].loss;
        if (loss >= with[u]) continue;
        with[u] = loss;
        taken[u] = static_cast<std::uint16_t>(c);
      }
    }
    least_ = std::move(with);
    taken_.push_back(std::move(taken));
    costs_.push_back(std::move(costs));
  }

  std::vector<std::size_t> result() const {
    std::vector<std::size_t> chosen(taken_.size());
    std::size_t left = least_.size() - 1;
    for (std::size_t m = taken_.size(); m-- > 0;) {
      chosen[m] = taken_[m][left];
      left -= costs_[m][chosen[m]];
    }
    return chosen;
  }

 private:
  std::int64_t unit_;
  std::vector<double> least_;                      // loss of the modules so far, by units at most
  std::vector<std::vector<std::uint16_t>> taken_;  // by module and units
  std::vector<std::vector<std::size_t>> costs_;    // by module and choice
};

// Single steps of the greatest gain, as long as one fits into the bytes left.
void fill(const std::vector<Choices>& modules, std::int64_t left, std::vector<std::size_t>& chosen) {
  for (;;) {
    double most = 0.0;
    std::size_t module = 0, choice = 0;
    for (std::size_t m = 0; m < modules.size(); ++m) {
      const Choice& now = modules[m][chosen[m]];
      for (std::size_t c = 0; c < modules[m].size(); ++c) {
        const double gain = now.loss - modules[m][c].loss;
        if (gain <= most || modules[m][c].bytes - now.bytes > left) continue;
        most = gain;
        module = m;
        choice = c;
      }
    }
    if (most <= 0.0) return;
    left -= modules[module][choice].bytes - modules[module][chosen[module]].bytes;
    chosen[module] = choice;
  }
}

}  // namespace

SizeRange possible_sizes(const std::vector<Choices>& modules) {
  SizeRange range;
  for (const Choices& choices : modules) {
    const auto [least, most] = std::minmax_element(
        choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.bytes < b.bytes; });
    range.least += least->bytes;
    range.most += most->bytes;
  }
  return range;
}

std::vector<std::size_t> allocate(const std::vector<Choices>& modules, std::int64_t budget) {
  check(modules);
  const SizeRange range = possible_sizes(modules);
  require(budget >= range.least, "allocation: the budget is ", budget, " bytes, expected ", range.least,
          " or more (", range.most, " hold the largest choices)");
  const std::int64_t spread = std::min(budget, range.most) - range.least;
  const std::int64_t unit = std::max(common_unit(modules), (spread + kUnits - 1) / kUnits);
  Program program(unit, spread / unit);
  for (const Choices& choices : modules) program.add(choices);
  std::vector<std::size_t> chosen = program.result();
  std::int64_t left = budget;
  for (std::size_t m = 0; m < modules.size(); ++m) left -= modules[m][chosen[m]].bytes;
  fill(modules, left, chosen);
  return chosen;
}

}  // namespace mixtape
