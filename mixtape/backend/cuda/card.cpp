#include "mixtape/backend/cuda/card.h"

#include <array>

#include "mixtape/backend/cuda/cublaslt.h"
#include "mixtape/backend/gpu/modules.h"
#include "mixtape/core/error.h"

namespace mixtape::cuda {
namespace {

int attribute(DeviceHandle device, int which) {
  int value = 0;
  check(driver().DeviceGetAttribute(&value, which, device), "reading an attribute");
  return value;
}

// Larger blocks always go back to the driver.
constexpr std::size_t kLargestKept = std::size_t{256} << 20;

std::size_t block_bytes(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

// While work is recorded the card's stream must not be asked for memory; it was idle when that began.
Stream stream_for_memory(const Card& card) { return card.recording ? card.memory_stream : card.stream; }

// With the card's memory_mutex held.
void give_back(Card& card, std::size_t bytes, DevicePointer block) {
  if (bytes <= kLargestKept || card.recording) return card.kept.keep(bytes, block);
  driver().CtxSetCurrent(card.context);
  driver().MemFreeAsync(block, card.stream);
}

// To the pool, which makes blocks of other sizes of them.
void release_to_pool(Card& card, Stream stream) {
  card.kept.release_all([&](std::size_t, DevicePointer block) { driver().MemFreeAsync(block, stream); });
}

void release_kept(Card& card) {
  const Stream stream = stream_for_memory(card);
  release_to_pool(card, stream);
  driver().StreamSynchronize(stream);
  driver().MemPoolTrimTo(card.pool, 0);
}

// A step's memory comes back to the next one, which asks for the same sizes. Where sizes change from use to use, what was
// kept would pile up: with `bytes` more than a quarter above all that was ever live at once.
bool holds_much(const Card& card, std::size_t bytes) {
  const std::size_t peak = card.stats.peak_bytes;
  return card.stats.live_bytes + card.kept.bytes() + bytes > peak + peak / 4 + kLargestKept;
}

DevicePointer ask_driver(Card& card, std::size_t bytes) {
  const Driver& d = driver();
  card.enter();
  const Stream stream = stream_for_memory(card);
  if (!card.recording && holds_much(card, bytes)) release_to_pool(card, stream);
  DevicePointer block = 0;
  Result result = d.MemAllocFromPoolAsync(&block, bytes, card.pool, stream);
  if (result == kOutOfMemory) {
    release_kept(card);
    result = d.MemAllocFromPoolAsync(&block, bytes, card.pool, stream);
  }
  if (result == kOutOfMemory) {
    std::size_t free = 0, total = 0;
    d.MemGetInfo(&free, &total);
    fail(ErrorCode::out_of_memory, "cuda:", card.index, ": cannot allocate ", bytes, " bytes; ",
         card.stats.live_bytes, " bytes are live, ", free, " of ", total, " are free");
  }
  check(result, "allocating");
  if (card.recording) check(d.StreamSynchronize(stream), "allocating");
  return block;
}

}  // namespace

DevicePointer Blocks::take(std::size_t bytes) {
  const auto blocks = by_size_.find(bytes);
  if (blocks == by_size_.end() || blocks->second.empty()) return 0;
  const DevicePointer block = blocks->second.back();
  blocks->second.pop_back();
  bytes_ -= bytes;
  return block;
}

RecordedBlocks::~RecordedBlocks() {
  const std::lock_guard lock(card->memory_mutex);
  blocks.release_all([&](std::size_t bytes, DevicePointer block) { give_back(*card, bytes, block); });
}

Card::Card(int which) : index(which) {
  const Driver& d = driver();
  int count = 0;
  if (d.DeviceGetCount(&count) != kSuccess || which >= count)
    fail(ErrorCode::not_supported, "cuda: card ", which, " is not there, found ", count);
  check(d.DeviceGet(&device, which), "opening the card");
  std::array<char, 256> name{};
  check(d.DeviceGetName(name.data(), static_cast<int>(name.size()), device), "reading the card's name");
  const int major = attribute(device, kAttributeMajor), minor = attribute(device, kAttributeMinor);
  if (major * 10 + minor < 75) {
    fail(ErrorCode::not_supported, "cuda: ", name.data(), " has compute capability ", major, ".", minor,
         ", expected 7.5 or more");
  }
  if (attribute(device, kAttributePools) == 0)
    fail(ErrorCode::not_supported, "cuda: ", name.data(), " has no memory pools");
  if (gpu::module_kernels().empty())
    fail(ErrorCode::not_supported, "cuda: this library was built without nvcc, it has no GPU kernels");
  capability = major * 10 + minor;
  // Less what kernels declare themselves, up to 2 KB.
  most_shared_bytes = static_cast<std::uint32_t>(std::max(attribute(device, kAttributeShared) - 2048, 0));
  check(d.DevicePrimaryCtxRetain(&context, device), "taking the card's context");
  enter();
  std::size_t free = 0;
  check(d.MemGetInfo(&free, &bytes), "reading the card's memory");
  description = str(name.data(), ", ", bytes >> 20, " MB, compute capability ", major, ".", minor, ", ",
                    gpu::kernels_on(capability), MatrixProducts::is_there() ? "" : ", slow without cuBLASLt");
  check(d.StreamCreate(&stream, kStreamNonBlocking), "making a stream");
  check(d.StreamCreate(&memory_stream, kStreamNonBlocking), "making a stream");
  check(d.DeviceGetDefaultMemPool(&pool, device), "finding the memory pool");
  std::uint64_t keep = ~std::uint64_t{0};
  check(d.MemPoolSetAttribute(pool, kPoolReleaseThreshold, &keep), "setting up the memory pool");
}

CardMemory::CardMemory(std::shared_ptr<Card> card, std::size_t bytes)
    : card_(std::move(card)), bytes_(bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(card_->memory_mutex);
  home_ = card_->recording;
  if (home_) pointer_ = home_->blocks.take(block_bytes(bytes));
  if (pointer_ == 0) pointer_ = card_->kept.take(block_bytes(bytes));
  if (pointer_ == 0) pointer_ = ask_driver(*card_, block_bytes(bytes));
  card_->stats.live_bytes += bytes;
  card_->stats.peak_bytes = std::max(card_->stats.peak_bytes, card_->stats.live_bytes);
}

CardMemory::~CardMemory() {
  if (pointer_ == 0) return;
  const std::lock_guard lock(card_->memory_mutex);
  card_->stats.live_bytes -= bytes_;
  if (home_) {
    home_->blocks.keep(block_bytes(bytes_), pointer_);
  } else {
    give_back(*card_, block_bytes(bytes_), pointer_);
  }
}

}  // namespace mixtape::cuda
