#include "mixtape/calib/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mixtape/core/random.h"

namespace mixtape {
namespace {

// Probabilities of the softmax, unnormalised: exp((x - max) / temperature).
std::vector<double> weights_of(const float* logits, std::int64_t count, double temperature) {
  const double max = static_cast<double>(*std::max_element(logits, logits + count));
  std::vector<double> weights(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - max) / temperature);
  }
  return weights;
}

// Zeroes all but the most probable entries that together reach the share top_p.
void cut_tail(std::vector<double>& weights, double top_p) {
  std::vector<std::uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
  const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0.0;
  for (const std::uint32_t i : order) {
    if (reached >= wanted) weights[i] = 0.0;
    reached += weights[i];
  }
}

bool contains(const std::vector<std::uint32_t>& ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

Buffer id_buffer(const Device& device, const std::vector<TokenRow>& rows) {
  std::vector<std::uint32_t> ids;
  for (const TokenRow& row : rows) ids.insert(ids.end(), row.begin(), row.end());
  const auto batch = static_cast<std::int64_t>(rows.size());
  return Buffer::from(device, {batch, static_cast<std::int64_t>(rows[0].size())}, ids);
}

}  // namespace

std::uint32_t pick(const float* logits, std::int64_t count, const SampleOptions& options, double u) {
  if (options.temperature <= 0.0) {
    return static_cast<std::uint32_t>(std::max_element(logits, logits + count) - logits);
  }
  std::vector<double> weights = weights_of(logits, count, options.temperature);
  if (options.top_p < 1.0) cut_tail(weights, options.top_p);
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0) continue;
    last = i;
    left -= weights[i];
    if (left < 0.0) break;
  }
  return last;
}

std::vector<TokenRow> sample(const CausalLm& model, Tape& tape, const std::vector<TokenRow>& prompts,
                             std::int64_t count, const SampleOptions& options,
                             const std::function<void(std::size_t row, std::uint32_t id)>& on_token) {
  require(!prompts.empty() && !prompts[0].empty(), "sample: a prompt is empty, expected one token or more");
  for (const TokenRow& row : prompts) {
    require(row.size() == prompts[0].size(), "sample: prompts have ", prompts[0].size(), " and ", row.size(),
            " tokens, expected one length");
  }
  const NoGrad guard(tape);
  const std::int64_t batch = static_cast<std::int64_t>(prompts.size()), vocab = model.config().vocab_size;
  KeyValueCache cache;
  ForwardOptions forward;
  forward.cache = &cache;
  std::vector<TokenRow> rows = prompts, next = prompts;
  std::vector<bool> stopped(rows.size(), false);
  for (std::int64_t i = 0; i < count; ++i) {
    const Var hidden = model.hidden(id_buffer(tape.device(), next), forward);
    const Shape flat{batch * hidden.shape()[1], hidden.shape()[2]};
    const Buffer all = hidden.value().reshape(flat);
    const Buffer last = tape.alloc(all.dtype(), {batch, flat[1]});
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t at = (b + 1) * hidden.shape()[1] - 1;
      tape.encoder().copy(all.slice(at, at + 1), last.slice(b, b + 1));
    }
    const Var logits = model.logits(tape.constant(last));
    tape.encoder().commit_and_wait();
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const double u = uniform(options.seed, (static_cast<std::uint64_t>(b) << 32) + rows[b].size());
      const std::uint32_t id = pick(values.data() + b * static_cast<std::size_t>(vocab), vocab, options, u);
      next[b] = {id};
      if (stopped[b]) continue;
      rows[b].push_back(id);
      if (on_token) on_token(b, id);
      stopped[b] = contains(options.stop, id);
    }
    if (std::all_of(stopped.begin(), stopped.end(), [](bool s) { return s; })) break;
  }
  return rows;
}

std::vector<TokenRow> sample_rows(
    const CausalLm& model, Tape& tape, std::uint32_t begin, std::int64_t rows, std::int64_t length,
    std::int64_t batch, std::uint64_t seed,
    const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  std::vector<TokenRow> all;
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t now = std::min(batch, rows - done);
    SampleOptions options;
    options.seed = seed + static_cast<std::uint64_t>(done);
    std::int64_t tokens = 0;
    const auto count_token = [&](std::size_t, std::uint32_t) {
      if (progress && ++tokens % now == 0) progress(done * length + tokens, rows * length);
    };
    for (TokenRow& row :
         sample(model, tape, std::vector<TokenRow>(static_cast<std::size_t>(now), TokenRow{begin}), length,
                options, count_token)) {
      all.push_back(std::move(row));
    }
    done += now;
  }
  return all;
}

}  // namespace mixtape
