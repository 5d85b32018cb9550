#include "mixtape/calib/hidden_rows.h"

#include <algorithm>
#include <numeric>

namespace mixtape {

HiddenRows::HiddenRows(const CausalLm& model, Tape& tape, std::span<const TokenRow> rows) : tape_(tape) {
  const NoGrad guard(tape);
  for (const TokenRow& row : rows) {
    const Buffer x = model.embed(make_batch(tape.device(), {&row, 1}).ids).value();  // [1, S, D]
    rows_.push_back(x.reshape({x.shape()[1], x.shape()[2]}));
  }
  tape.encoder().commit_and_wait();
}

bool HiddenRows::pass(const std::function<Var(const Var& x)>& layer, std::int64_t batch_size,
                      const RunHooks& hooks) {
  const NoGrad guard(tape_);
  for (std::size_t begin = 0; begin < size(); begin += static_cast<std::size_t>(batch_size)) {
    if (hooks.stops()) return false;
    std::vector<std::size_t> rows(std::min(static_cast<std::size_t>(batch_size), size() - begin));
    std::iota(rows.begin(), rows.end(), begin);
    const Buffer y = layer(tape_.constant(batch(rows))).value();  // [B, S, D]
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i) * y.shape()[1];
      const Buffer& row = rows_[rows[i]];
      tape_.encoder().copy(y.reshape({y.shape().rows(), y.shape().cols()}).slice(at, at + row.shape()[0]),
                           row);
    }
    tape_.encoder().commit_and_wait();
  }
  return true;
}

std::int64_t HiddenRows::longest(std::span<const std::size_t> rows) const {
  std::int64_t length = 0;
  for (const std::size_t r : rows) length = std::max(length, rows_[r].shape()[0]);
  return length;
}

Buffer HiddenRows::batch(std::span<const std::size_t> rows) const {
  const std::int64_t length = longest(rows), width = rows_[rows[0]].shape()[1];
  const Buffer x = tape_.alloc(rows_[rows[0]].dtype(), {std::ssize(rows) * length, width});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Buffer& row = rows_[rows[i]];
    const std::int64_t begin = static_cast<std::int64_t>(i) * length, end = begin + row.shape()[0];
    tape_.encoder().copy(row, x.slice(begin, end));
    if (end < begin + length) tape_.encoder().fill(x.slice(end, begin + length), 0.0f);
  }
  return x.reshape({std::ssize(rows), length, width});
}

std::vector<float> HiddenRows::weights(std::span<const std::size_t> rows) const {
  const std::int64_t length = longest(rows);
  std::vector<float> weights;
  for (const std::size_t r : rows) {
    weights.insert(weights.end(), static_cast<std::size_t>(rows_[r].shape()[0]), 1.0f);
    weights.insert(weights.end(), static_cast<std::size_t>(length - rows_[r].shape()[0]), 0.0f);
  }
  return weights;
}

}  // namespace mixtape
