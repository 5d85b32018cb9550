// Work for a device, in order: what is encoded sees everything that was encoded before.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mixtape/runtime/buffer.h"
#include "mixtape/runtime/device.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {

// Whether a gradient output is overwritten or added to.
enum class Accumulate : std::uint32_t { no = 0, yes = 1 };

using Grid = std::array<std::uint32_t, 3>;

struct Dispatch {
  std::string kernel;
  std::vector<std::byte> params;
  std::vector<Buffer> reads;
  std::vector<Buffer> writes;
  Grid grid = {1, 1, 1};   // blocks; host kernels ignore geometry
  Grid block = {1, 1, 1};  // threads per block
  std::uint32_t shared_bytes = 0;
  // Set where there is no row, pair or element to work on (an empty batch): no kernel runs; outputs become 0,
  // but for those that are added to. Where all outputs are empty no kernel runs either.
  bool is_empty = false;
  std::uint32_t adds = 0;  // bit i: writes[i] is added to
};

// The bytes of a plain parameter struct.
template <class P>
std::vector<std::byte> params_bytes(const P& params) {
  static_assert(std::is_trivially_copyable_v<P>);
  const auto* first = reinterpret_cast<const std::byte*>(&params);
  return {first, first + sizeof(P)};
}

// What a gradient rule must find as its op left it: memory that was written after `recorded` and up to
// `began` is not to be read, other than the upstream gradient that the caller gave.
struct StaleReads {
  const std::string& op;
  std::uint64_t recorded, began;  // by the write clock
  const Memory* upstream;
};

// Not thread-safe: one encoder per thread. Several encoders may use one device at a time.
class CommandEncoder {
 public:
  explicit CommandEncoder(const Device& device) : device_(device) {}
  CommandEncoder(const CommandEncoder&) = delete;
  CommandEncoder& operator=(const CommandEncoder&) = delete;

  const Device& device() const { return device_; }

  // Throws not_supported for an unknown kernel; invalid_argument for a null or foreign buffer, and where a
  // written buffer shares a part of its memory with another one of the dispatch; also where no kernel runs.
  void encode(const Dispatch& dispatch);

  // dst = src; same dtype and element count.
  void copy(const Buffer& src, const Buffer& dst);
  // Every element becomes `value`, rounded to the dtype. Value dtypes and zero for the others.
  void fill(const Buffer& dst, float value);
  // dst += src in f32, rounded once; same value dtype and element count. They may be one buffer.
  void accumulate(const Buffer& src, const Buffer& dst);

  // While set, encode throws invalid_argument for a read that is stale. Gives back what was set before.
  const StaleReads* refuse_stale(const StaleReads* stale) { return std::exchange(stale_, stale); }

  // Records what `work` encodes, without doing it; run() of the result does it, each time on what the buffers
  // then hold. Errors surface at this encoder's wait. Within `work` nothing may wait, and no buffer may be
  // read or written by the host. Buffers that `work` allocates keep their place: their contents are those of
  // the last run. Throws not_supported where the device records nothing (Backend::can_record).
  std::shared_ptr<Replay> record(const std::function<void()>& work);

  // Hands what was encoded to the device.
  void commit() { device_.backend().submit(); }
  // Throws what the device reported: index_out_of_range names kernel, lowest position and value.
  void wait();
  void commit_and_wait();

 private:
  void check(const Buffer& buffer, const std::string& kernel) const;
  void encode_empty(const Dispatch& dispatch);
  void check_fresh(const Buffer& buffer) const;
  Device device_;
  const StaleReads* stale_ = nullptr;
  std::shared_ptr<ErrorSlot> errors_ = std::make_shared<ErrorSlot>();
};

}  // namespace mixtape
