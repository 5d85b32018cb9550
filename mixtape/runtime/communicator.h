// Sums over the members of a run that several devices share. Each member trains the same parameters on its share of
// the rows; gradients, losses and counts are added up, so that all of them take the same step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int64_t size() const = 0;  // members
  virtual std::int64_t rank() const = 0;  // this one's number, from 0
  // Every member calls them in the same order, with as many values, or f32 buffers of the same shapes. What each of
  // them then holds is the sum over all members, added in an order that follows from the members and the sizes alone:
  // the same bits everywhere and on every run. Throw the error of a member that failed, and interrupted where one has
  // ended. Sums of buffers may be only encoded.
  virtual void all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;

  double sum_of(double value) {
    all_reduce_sum(std::span(&value, 1));
    return value;
  }
  // Comes back once all have come.
  void meet() { all_reduce_sum(std::span<double>()); }
  // Member 0's text, to all.
  std::string text_of_first(const std::string& text) {
    const std::string mine = rank() == 0 ? text : "";
    std::vector<double> codes(static_cast<std::size_t>(sum_of(static_cast<double>(mine.size()))));
    for (std::size_t i = 0; i < mine.size(); ++i) codes[i] = static_cast<unsigned char>(mine[i]);
    all_reduce_sum(codes);
    std::string first;
    for (const double code : codes) first += static_cast<char>(static_cast<unsigned char>(code));
    return first;
  }
  // Whether this member's value is the mean over all: false for one of them at least where they differ.
  bool agrees(std::uint32_t value) { return sum_of(value) == static_cast<double>(size()) * value; }
};

// One member: every sum is there already.
class SingleProcess final : public Communicator {
 public:
  std::int64_t size() const override { return 1; }
  std::int64_t rank() const override { return 0; }
  void all_reduce_sum(CommandEncoder&, const std::vector<Buffer>&) override {}
  void all_reduce_sum(std::span<double>) override {}
};

// The part of `all` that is this member's: neighbours, in the order of the ranks, their numbers as equal as can be.
template <class T>
std::span<const T> share_of(std::span<const T> all, const Communicator& communicator) {
  const auto size = static_cast<std::size_t>(communicator.size()),
             rank = static_cast<std::size_t>(communicator.rank());
  const std::size_t begin = all.size() * rank / size, end = all.size() * (rank + 1) / size;
  return all.subspan(begin, end - begin);
}

}  // namespace mixtape
