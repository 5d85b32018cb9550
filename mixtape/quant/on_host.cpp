#include "mixtape/quant/on_host.h"

namespace mixtape {

Buffer on_host(const Buffer& b) {
  if (!b || b.memory().host_data() != nullptr) return b;
  const Buffer copy = Device::cpu().alloc_uninitialized(b.dtype(), b.shape());
  b.read_bytes(copy.host_bytes());
  return copy;
}

}  // namespace mixtape
