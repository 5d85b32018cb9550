#include "mixtape/backend/cuda/nccl.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

#include "mixtape/backend/cuda/shared_library.h"
#include "mixtape/core/error.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cuda {
namespace {

using Comm = struct CommTag*;

// Numbers of the NCCL reference.
constexpr int kNcclSuccess = 0, kNcclFloat32 = 7, kNcclSum = 0;

struct NcclTable {
  int (*GetVersion)(int*);
  const char* (*GetErrorString)(int);
  int (*CommInitAll)(Comm*, int, const int*);
  int (*CommDestroy)(Comm);
  int (*CommAbort)(Comm);
  int (*AllReduce)(const void*, void*, std::size_t, int, int, Comm, Stream);
};

// Read by NCCL when it starts. A ring adds in the order of its cards, which depends on the machine and the count alone;
// multicast (NVLS) would add in the switch, which all programs of a host share. And no card reaches into another's memory
// of the stream-ordered pool, where gradients are.
void set_environment() {
  setenv("NCCL_ALGO", "Ring", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
}

const NcclTable& nccl() {
  static const NcclTable loaded = [] {
    set_environment();
    static const SharedLibrary library({"libnccl.so.2"});
    if (!library) fail(ErrorCode::not_supported, "cuda: no NCCL (", library.error(), ")");
    NcclTable t{};
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (function == nullptr) fail(ErrorCode::not_supported, "cuda: NCCL has no function ", name);
    };
    load(t.GetVersion, "ncclGetVersion");
    load(t.GetErrorString, "ncclGetErrorString");
    load(t.CommInitAll, "ncclCommInitAll");
    load(t.CommDestroy, "ncclCommDestroy");
    load(t.CommAbort, "ncclCommAbort");
    load(t.AllReduce, "ncclAllReduce");
    return t;
  }();
  return loaded;
}

// 22809 is 2.28.9.
std::string nccl_version() {
  int version = 0;
  nccl().GetVersion(&version);
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

[[maybe_unused]] const bool nccl_registered = register_library({"NCCL", nccl_version});

class NcclSums final : public PeerSums {
 public:
  explicit NcclSums(std::vector<std::shared_ptr<Card>> cards)
      : cards_(std::move(cards)), comms_(cards_.size()) {
    std::vector<int> indices;
    for (const auto& card : cards_) indices.push_back(card->index);
    const int status = nccl().CommInitAll(comms_.data(), static_cast<int>(indices.size()), indices.data());
    cards_[0]->enter();
    if (status != kNcclSuccess) {
      fail(ErrorCode::not_supported, "cuda: NCCL ", nccl_version(),
           " doesn't start: ", nccl().GetErrorString(status));
    }
  }
  ~NcclSums() override {
    for (std::size_t i = 0; i < cards_.size() && !is_aborted_; ++i) {
      driver().CtxSetCurrent(cards_[i]->context);
      nccl().CommDestroy(comms_[i]);
    }
    driver().CtxSetCurrent(cards_[0]->context);
  }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;

  std::string name() const override { return "NCCL " + nccl_version(); }

  void add_up(std::size_t rank, Memory& memory, std::size_t offset, std::size_t count) override {
    const std::shared_lock in_use(calls_);
    const Card& card = *cards_[rank];
    if (is_aborted_) fail(ErrorCode::device, "cuda:", card.index, ": NCCL was ended, as another card failed");
    card.enter();
    auto* data = reinterpret_cast<void*>(static_cast<CardMemory&>(memory).pointer() + offset);
    const int status = nccl().AllReduce(data, data, count, kNcclFloat32, kNcclSum, comms_[rank], card.stream);
    if (status != kNcclSuccess)
      fail(ErrorCode::device, "cuda:", card.index, ": NCCL: ", nccl().GetErrorString(status));
  }

  // The first call of a card waits for the others': it is ended too, but what is about to come back may.
  void abort() override {
    const std::unique_lock nobody_calls(calls_, std::chrono::seconds(2));
    if (is_aborted_.exchange(true)) return;
    for (const Comm comm : comms_) nccl().CommAbort(comm);
  }

 private:
  std::vector<std::shared_ptr<Card>> cards_;
  std::vector<Comm> comms_;
  std::shared_timed_mutex calls_;
  std::atomic<bool> is_aborted_ = false;
};

}  // namespace

std::unique_ptr<PeerSums> join_cards(std::vector<std::shared_ptr<Card>> cards) {
  return std::make_unique<NcclSums>(std::move(cards));
}

}  // namespace mixtape::cuda
