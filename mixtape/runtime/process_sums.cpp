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

// Rank 0's members come first, then those of the others by rank.
template <class T>
std::vector<T> sum_for_all(Processes& processes, const std::vector<std::vector<T>>& own) {
  std::vector<T> sum = own[0];
  for (std::size_t m = 1; m < own.size(); ++m) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[m][i];
  }
  const std::size_t size = sum.size() * sizeof(T);
  const std::vector<Bytes> all = processes.gather(Exchange::sum, {});
  for (std::size_t p = 1; p < all.size(); ++p) {
    const bool fits = size == 0 ? all[p].empty() : all[p].size() % size == 0;
    require(fits, "sum: members of ", processes.name_of(static_cast<std::int64_t>(p)), " give ",
            all[p].size(), " bytes, expected a multiple of ", size);
    add(sum, all[p]);
  }
  const auto part = std::as_bytes(std::span(sum));
  Bytes bytes(part.begin(), part.end());
  processes.broadcast(Exchange::sum, bytes);
  return sum;
}

template <class T>
std::vector<T> sum_of(Processes& processes, const std::vector<std::vector<T>>& own) {
  if (processes.is_first()) return sum_for_all(processes, own);
  static_cast<void>(processes.gather(Exchange::sum, bytes_of(own)));
  Bytes bytes;
  processes.broadcast(Exchange::sum, bytes);
  std::vector<T> sum(own[0].size());
  const std::size_t size = sum.size() * sizeof(T);
  require(bytes.size() == size, "sum: members of rank 0 give ", bytes.size(), " bytes, those of ",
          processes.name_of(processes.rank()), " ", size, ", expected as many");
  if (size > 0) std::memcpy(sum.data(), bytes.data(), size);
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
