#include "mixtape/runtime/group_member.h"

#include <algorithm>

#include "mixtape/runtime/process_sums.h"

namespace mixtape {
namespace {

// Elements of the buffer that gradients are gathered in, 64 MB: few sums of many instead of many of few.
constexpr std::int64_t kBucket = std::int64_t{1} << 24;

}  // namespace

void GroupMember::all_reduce_sum(std::span<double> values) {
  board_.values[index_].assign(values.begin(), values.end());
  board_.meeting.meet();
  for (const auto& others : board_.values) {
    require(others.size() == values.size(), "sum: members give ", values.size(), " and ", others.size(),
            " values, expected as many");
  }
  if (index_ == 0 && processes_) board_.total = sum_over(*processes_, board_.values);
  if (processes_) board_.meeting.meet();
  const std::span<const std::vector<double>> terms =
      processes_ ? std::span(&board_.total, 1) : std::span(board_.values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.0;
    for (const auto& term : terms) values[i] += term[i];
  }
  board_.meeting.meet();
}

void GroupMember::all_reduce_sum(CommandEncoder& encoder, const std::vector<Buffer>& buffers) {
  if (size() == 1) return;
  std::int64_t total = 0;
  for (const Buffer& b : buffers) {
    require(b && b.dtype() == DType::f32, "sum: a buffer is ", b, ", expected f32");
    total += b.numel();
  }
  if (peers_) meet();  // no card waits for one whose member has failed
  const Buffer bucket = encoder.device().alloc_uninitialized(DType::f32, {std::min(total, kBucket)});
  std::vector<Buffer> parts;  // of buffers: what is in the bucket, in order
  std::int64_t filled = 0;
  for (const Buffer& b : buffers) {
    for (std::int64_t begin = 0; begin < b.numel();) {
      const std::int64_t n = std::min(b.numel() - begin, kBucket - filled);
      parts.push_back(b.reshape({b.numel()}).slice(begin, begin + n));
      begin += n;
      filled += n;
      if (filled < kBucket) continue;
      reduce(encoder, parts, bucket);
      parts.clear();
      filled = 0;
    }
  }
  if (filled > 0) reduce(encoder, parts, bucket.slice(0, filled));
}

void GroupMember::reduce(CommandEncoder& encoder, const std::vector<Buffer>& parts, const Buffer& bucket) {
  const auto for_each_place = [&](const auto& action) {
    std::int64_t at = 0;
    for (const Buffer& part : parts) {
      action(part, bucket.slice(at, at + part.numel()));
      at += part.numel();
    }
  };
  for_each_place([&](const Buffer& part, const Buffer& place) { encoder.copy(part, place); });
  if (peers_) {
    encoder.commit();
    peers_->add_up(index_, bucket.memory(), bucket.byte_offset(), static_cast<std::size_t>(bucket.numel()));
  } else {
    encoder.commit_and_wait();
    add_up_on_host(bucket);
  }
  for_each_place([&](const Buffer& part, const Buffer& place) { encoder.copy(place, part); });
}

void GroupMember::add_up_on_host(const Buffer& bucket) {
  auto& parts = board_.parts;
  parts[index_] = bucket.to_vector<float>();
  board_.meeting.meet();
  const std::size_t n = parts[index_].size();
  for (const auto& part : parts)
    require(part.size() == n, "sum: members give ", n, " and ", part.size(), " elements, expected as many");
  if (processes_) {
    board_.meeting.meet();  // nobody reads sizes any more
    if (index_ == 0) parts[0] = sum_over(*processes_, parts);
  } else {
    add_up_parts();
  }
  board_.meeting.meet();
  bucket.copy_from(std::span<const float>(parts[0]));
  board_.meeting.meet();
}

// Each member of this process, the only one, adds up its share of the elements, in the order of the ranks, into the
// first one's.
void GroupMember::add_up_parts() {
  auto& parts = board_.parts;
  const std::size_t n = parts[0].size();
  for (std::size_t i = n * index_ / parts.size(); i < n * (index_ + 1) / parts.size(); ++i) {
    for (std::size_t m = 1; m < parts.size(); ++m) parts[0][i] += parts[m][i];
  }
}

}  // namespace mixtape
