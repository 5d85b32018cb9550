// NumPy's legacy generator, for runs that must see the data in the reference program's order: the Mersenne
// Twister MT19937 with 32-bit words, seeded as np.random.seed(n) does.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace mixtape {

class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed);

  std::uint32_t next();

  // np.random.permutation(count).
  std::vector<std::uint32_t> permutation(std::uint32_t count);

 private:
  static constexpr std::size_t kWords = 624;
  void refill();
  std::uint32_t bounded(std::uint32_t max);
  std::array<std::uint32_t, kWords> state_;
  std::size_t position_ = kWords;
};

}  // namespace mixtape
