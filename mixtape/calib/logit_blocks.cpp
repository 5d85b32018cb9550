#include "mixtape/calib/logit_blocks.h"

namespace mixtape {

std::int64_t logit_rows(std::int64_t vocab_size, const Device& device) {
  const std::int64_t elements = device.caps().logit_elements;
  return std::clamp<std::int64_t>(elements / std::max<std::int64_t>(vocab_size, 1), 64, 4096);
}

Buffer hidden_rows(const CausalLm& model, const Buffer& ids) {
  return model.hidden(ids).value().reshape({ids.numel(), model.config().hidden_size});
}

}  // namespace mixtape
