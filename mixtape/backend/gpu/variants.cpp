#include "mixtape/backend/gpu/variants.h"

#include "mixtape/runtime/trace.h"

namespace mixtape::gpu {

const RowVariant* choose(const std::string& kernel, std::span<const RowVariant> variants,
                         std::int64_t packs) {
  for (const RowVariant& v : variants) {
    if (packs <= v.most_packs) return &v;
    trace_note("not ", kernel, v.suffix, ": a row has ", packs, " packs of 16 bytes, expected at most ",
               v.most_packs);
  }
  return nullptr;
}

void trace_launch(const Launch& l) {
  trace_note("launch ", l.kernel, ", grid ", l.grid[0], " x ", l.grid[1], " x ", l.grid[2], ", block ",
             l.block[0], " x ", l.block[1], " x ", l.block[2], ", ", l.shared_bytes, " shared bytes");
}

void trace_pass_over(const std::string& kernel, const std::string& reason) {
  if (is_tracing()) add_trace_note("not " + kernel + ": " + reason);
}

}  // namespace mixtape::gpu
