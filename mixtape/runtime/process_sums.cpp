#include "mixtape/runtime/process_sums.h"

#include <cstring>

namespace mixtape {
namespace {

template <class T>
Bytes bytes_of(const std::vector<std::vector<T>>& members) {
  Bytes bytes;
  for (const std::vector<T>& values : members) {
    const auto part = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

// Adds each of the members' values, which follow each other in `bytes`. (Not aligned for T.)
template <class T>
void add(std::vector<T>& sum, const Bytes& bytes) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += sum.size() * sizeof(T)) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + begin + i * sizeof(T), sizeof value);
      sum[i] += value;
    }
  }
}

template <class T>
std::vector<T> sum_of(Processes& processes, const std::vector<std::vector<T>>& own) {
  std::vector<Bytes> all = processes.gather(Exchange::sum, bytes_of(own));
  Bytes sum_bytes;
  if (processes.is_first()) {
    std::vector<T> sum = own[0];
    const std::size_t size = sum.size() * sizeof(T);
    for (std::size_t p = 0; p < all.size(); ++p) {
      const bool fits = size == 0 ? all[p].empty() : all[p].size() % size == 0;
      require(fits, "sum: members of ", processes.name_of(static_cast<std::int64_t>(p)), " give ",
              all[p].size(), " bytes, expected a multiple of ", size);
    }
    all[0].erase(all[0].begin(), all[0].begin() + static_cast<std::ptrdiff_t>(size));
    for (const Bytes& bytes : all) add(sum, bytes);
    sum_bytes = bytes_of<T>({sum});
  }
  processes.broadcast(Exchange::sum, sum_bytes);
  const std::size_t size = own[0].size() * sizeof(T);
  require(sum_bytes.size() == size, "sum: members of rank 0 give ", sum_bytes.size(), " bytes, those of ",
          processes.name_of(processes.rank()), " ", size, ", expected as many");
  std::vector<T> sum(own[0].size());
  if (size > 0) std::memcpy(sum.data(), sum_bytes.data(), size);
  return sum;
}

}  // namespace

std::vector<double> sum_over(Processes& processes, const std::vector<std::vector<double>>& own) {
  return sum_of(processes, own);
}

std::vector<float> sum_over(Processes& processes, const std::vector<std::vector<float>>& own) {
  return sum_of(processes, own);
}

}  // namespace mixtape
