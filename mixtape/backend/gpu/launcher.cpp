#include "mixtape/backend/gpu/launcher.h"

#include <algorithm>
#include <limits>

namespace mixtape::gpu {
namespace {

using Table = std::unordered_map<std::string, Launcher>;

Table& launchers() {
  static Table launchers;
  return launchers;
}

}  // namespace

Argument::Argument(const Buffer& buffer) {
  if (!buffer) return;
  memory = &buffer.memory();
  offset = buffer.byte_offset();
  bytes = buffer.bytes();
}

Argument Argument::part(std::size_t at, std::size_t count) const {
  require(at + count <= bytes, "gpu: part [", at, ",", at + count, ") of an argument of ", bytes, " bytes");
  return {memory, offset + at, count};
}

Gemm with_strides(Gemm g) {
  if (g.row_a == 0) g.row_a = g.trans_a ? g.m : g.k;
  if (g.row_b == 0) g.row_b = g.trans_b ? g.k : g.n;
  if (g.row_c == 0) g.row_c = g.n;
  if (g.step_a == 0) g.step_a = (g.trans_a ? g.k : g.m) * g.row_a;
  if (g.step_b == 0) g.step_b = (g.trans_b ? g.n : g.k) * g.row_b;
  if (g.step_c == 0) g.step_c = g.m * g.row_c;
  return g;
}

Argument Call::index_errors(std::int64_t limit, bool is_signed) const {
  return queue.error_word(errors, [=, kernel = dispatch.kernel](ErrorSlot& slot, std::uint64_t found) {
    const auto bits = static_cast<std::uint32_t>(found);
    const std::int64_t value = is_signed ? std::int64_t{static_cast<std::int32_t>(bits)} : std::int64_t{bits};
    slot.report_index(kernel, static_cast<std::int64_t>(found >> 32), value, limit);
  });
}

void Call::launch_same(Grid grid, Grid block, std::uint32_t shared_bytes) const {
  std::vector<Argument> arguments(dispatch.reads.begin(), dispatch.reads.end());
  arguments.insert(arguments.end(), dispatch.writes.begin(), dispatch.writes.end());
  queue.launch({dispatch.kernel, grid, block, dispatch.params, std::move(arguments), shared_bytes});
}

bool register_launcher(const std::string& name, Launcher launcher) {
  return launchers().emplace(name, std::move(launcher)).second;
}

bool has_launcher(const std::string& name) { return launchers().contains(name); }

void run(const Call& call) {
  const Dispatch& d = call.dispatch;
  const auto found = launchers().find(d.kernel);
  if (found == launchers().end()) return call.launch_same(d.grid, d.block, d.shared_bytes);
  found->second(call);
}

Grid grid_of(std::int64_t blocks) {
  require(blocks <= std::numeric_limits<std::int32_t>::max(), "gpu: a grid of ", blocks,
          " blocks is too large");
  return {static_cast<std::uint32_t>(std::max<std::int64_t>(blocks, 1)), 1, 1};
}

Grid grid_for(std::int64_t elements, std::int64_t per_thread) {
  return grid_of(ceil_div(elements, 256 * per_thread));
}

}  // namespace mixtape::gpu
