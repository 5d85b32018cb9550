#include "mixtape/calib/logit_blocks.h"

namespace mixtape {

std::int64_t logit_rows(std::int64_t vocab_size, const Device& device) {
  const std::int64_t elements = device.caps().logit_elements;
  return std::clamp<std::int64_t>(elements / std::max<std::int64_t>(vocab_size, 1), 64, 4096);
}

Buffer hidden_rows(const CausalLm& model, const Buffer& ids) {
  return model.hidden(ids).value().reshape({ids.numel(), model.config().hidden_size});
}

Buffer hidden_rows(const CausalLm& model, const Buffer& ids, std::int64_t first, Tape& tape) {
  const Buffer all = hidden_rows(model, ids);
  if (first == 0) return all;
  const std::int64_t rows = ids.shape()[0], columns = ids.shape()[1], kept = columns - first;
  const Buffer part = tape.alloc(all.dtype(), {rows * kept, all.shape()[1]});
  for (std::int64_t r = 0; r < rows; ++r) {
    tape.encoder().copy(all.slice(r * columns + first, (r + 1) * columns),
                        part.slice(r * kept, (r + 1) * kept));
  }
  return part;
}

}  // namespace mixtape
