// Rows of a gradient grouped by id on the device, for launchers; the kernels' side is segments_gpu.h.
#pragma once

#include "mixtape/backend/gpu/sort.h"
#include "mixtape/ops/embedding/embedding_params.h"

namespace mixtape::gpu {

struct Segments {
  gpu::SortedKeys sorted;
  std::shared_ptr<Memory> begins;  // u32 [rows + 1]
  std::shared_ptr<Memory> sums;    // f32 [count / kSegmentBlock, hidden], null where that is empty

  Argument places() const { return *sorted.places; }
  Argument full_sums() const { return sums ? Argument(*sums) : Argument(); }
};

// Sorts the ids, reports those out of range, which are in no segment, and sums the full blocks of dy.
Segments group_rows(const Call& call, const Buffer& ids, const Buffer& dy, const EmbeddingParams& params);

}  // namespace mixtape::gpu
