#include "mixtape/backend/gpu/sort.h"

#include <algorithm>
#include <bit>

#include "mixtape/backend/gpu/sort_params.h"

namespace mixtape::gpu {

SortedKeys sort_keys(const Call& call, const Argument& keys, std::int64_t count, std::int64_t limit,
                     bool keys_are_signed, const Argument& begins) {
  const auto words = [&](std::int64_t n) {
    return call.queue.scratch(static_cast<std::size_t>(n) * sizeof(std::uint32_t));
  };
  const auto all_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(limit)));
  const int passes = static_cast<int>(ceil_div(all_bits, kSortBits));
  const std::int64_t threads = std::min<std::int64_t>(ceil_div(count, 32 * kSortRounds) * 32, kSortThreads);
  SortParams p{};
  p.count = count;
  p.limit = limit;
  p.tiles = ceil_div(count, threads * kSortRounds);
  p.bits = static_cast<int>(ceil_div(all_bits, passes));
  p.is_first = 1;
  p.is_only = passes == 1;
  p.keys_are_signed = keys_are_signed;
  const std::int64_t digits = std::int64_t{1} << p.bits;
  const auto counts = words(digits * p.tiles), totals = words(digits);
  const Argument errors = call.index_errors(limit, keys_are_signed);
  const Grid tiles = grid_of(p.tiles), block = {static_cast<std::uint32_t>(threads), 1, 1};
  SortedKeys from, to;
  for (int pass = 0; pass < passes; ++pass, p.shift += p.bits, p.is_first = 0) {
    const Argument in = pass == 0 ? keys : Argument(*from.keys);
    const Argument in_places = pass == 0 ? Argument() : Argument(*from.places);
    to = {words(count), words(count)};
    call.launch("sort_count", tiles, block, p, {in, *counts, errors});
    if (p.tiles > kFewTiles) call.launch("sort_scan", grid_of(digits), kBlock256, p, {*counts, *totals});
    call.launch(
        "sort_scatter", tiles, block, p,
        {in, in_places, *counts, *totals, *to.keys, *to.places, p.is_only != 0 ? begins : Argument()});
    from = to;
  }
  if (p.is_only == 0) call.launch("sort_begins", grid_for(limit + 1), kBlock256, p, {*to.keys, begins});
  return to;
}

}  // namespace mixtape::gpu
