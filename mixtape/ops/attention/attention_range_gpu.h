// Which keys a query sees, for GPU kernels. Positions of keys fit in an int.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/attention/attention_params.h"

namespace mixtape {

struct AttentionRange {
  int begin, end;
};

// Keys of sequence `batch` that count: all, or its length. A bad length is reported and counts as 0.
MIXTAPE_DEVICE int attention_length(const AttentionParams& p, Global<const std::int32_t> lengths,
                                    std::int64_t batch, Global<std::uint64_t> errors) {
  if (p.has_lengths == 0) return static_cast<int>(p.k_len);
  const std::int32_t length = lengths[batch];
  if (length >= 0 && length <= p.k_len) return length;
  if (flat_thread() == 0) report_index(errors, batch, static_cast<std::uint32_t>(length));
  return 0;
}

MIXTAPE_DEVICE int attention_window(const AttentionParams& p) {
  return static_cast<int>(p.sliding_window > 0 && p.sliding_window < p.k_len ? p.sliding_window : p.k_len);
}

// The keys that queries [begin, end) see together; empty where begin >= end. For one query: exactly its keys.
MIXTAPE_DEVICE AttentionRange keys_seen(const AttentionParams& p, int length, int begin, int end) {
  if (p.causal == 0) return {0, length};
  const int shift = static_cast<int>(p.k_len - p.q_len), first = shift + begin + 1 - attention_window(p);
  const int last = shift + end;
  return {first > 0 ? first : 0, last < length ? last : length};
}

// The queries that see any of the keys [begin, end).
MIXTAPE_DEVICE AttentionRange queries_that_see(const AttentionParams& p, int length, int begin, int end) {
  const int count = static_cast<int>(p.q_len);
  if (begin >= length) return {0, 0};
  if (p.causal == 0) return {0, count};
  const int shift = static_cast<int>(p.k_len - p.q_len);
  const int first = begin - shift, last = (end < length ? end : length) - 1 + attention_window(p) - shift;
  return {first > 0 ? first : 0, last < count ? last : count};
}

}  // namespace mixtape
