#include "mixtape/backend/cuda/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

#include "mixtape/backend/cuda/shared_library.h"
#include "mixtape/core/error.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cuda {
namespace {

using Comm = struct CommTag*;
struct UniqueId {
  char bytes[128];
};

// Numbers of the NCCL reference.
constexpr int kNcclSuccess = 0, kNcclFloat32 = 7, kNcclSum = 0;

struct NcclTable {
  int (*GetVersion)(int*);
  const char* (*GetErrorString)(int);
  int (*CommInitAll)(Comm*, int, const int*);
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(Comm*, int, UniqueId, int);
  int (*GroupStart)();
  int (*GroupEnd)();
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
    load(t.GetUniqueId, "ncclGetUniqueId");
    load(t.CommInitRank, "ncclCommInitRank");
    load(t.GroupStart, "ncclGroupStart");
    load(t.GroupEnd, "ncclGroupEnd");
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
      : cards_(std::move(cards)), comms_(cards_.size()) {}
  ~NcclSums() override {
    for (std::size_t i = 0; i < cards_.size() && !is_aborted_; ++i) {
      if (comms_[i] == nullptr) continue;
      driver().CtxSetCurrent(cards_[i]->context);
      nccl().CommDestroy(comms_[i]);
    }
    driver().CtxSetCurrent(cards_[0]->context);
  }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;

  std::string name() const override { return "NCCL " + nccl_version(); }

  void join() override {
    std::vector<int> indices;
    for (const auto& card : cards_) indices.push_back(card->index);
    const int status = nccl().CommInitAll(comms_.data(), static_cast<int>(indices.size()), indices.data());
    cards_[0]->enter();
    if (status != kNcclSuccess) refuse(status);
  }

  std::vector<std::byte> invitation() override {
    UniqueId id{};
    const int status = nccl().GetUniqueId(&id);
    if (status != kNcclSuccess) refuse(status);
    const auto bytes = std::as_bytes(std::span(id.bytes));
    return {bytes.begin(), bytes.end()};
  }

  // Waits for the cards of the other processes, which NCCL finds by itself.
  void join(std::span<const std::byte> invitation, std::int64_t first_rank, std::int64_t size) override {
    UniqueId id{};
    require(invitation.size() == sizeof id, "cuda: NCCL's invitation has ", invitation.size(),
            " bytes, expected ", sizeof id);
    std::memcpy(id.bytes, invitation.data(), sizeof id);
    int status = nccl().GroupStart();
    for (std::size_t i = 0; i < cards_.size() && status == kNcclSuccess; ++i) {
      cards_[i]->enter();
      status = nccl().CommInitRank(&comms_[i], static_cast<int>(size), id,
                                   static_cast<int>(first_rank) + static_cast<int>(i));
    }
    const int end = nccl().GroupEnd();
    cards_[0]->enter();
    if (status == kNcclSuccess) status = end;
    if (status != kNcclSuccess) refuse(status);
  }

  void add_up(std::size_t index, Memory& memory, std::size_t offset, std::size_t count) override {
    const std::shared_lock in_use(calls_);
    const Card& card = *cards_[index];
    if (is_aborted_) fail(ErrorCode::device, "cuda:", card.index, ": NCCL was ended, as another card failed");
    card.enter();
    auto* data = reinterpret_cast<void*>(static_cast<CardMemory&>(memory).pointer() + offset);
    const int status =
        nccl().AllReduce(data, data, count, kNcclFloat32, kNcclSum, comms_[index], card.stream);
    if (status != kNcclSuccess)
      fail(ErrorCode::device, "cuda:", card.index, ": NCCL: ", nccl().GetErrorString(status));
  }

  // The first call of a card waits for the others': it is ended too, but what is about to come back may.
  void abort() override {
    const std::unique_lock nobody_calls(calls_, std::chrono::seconds(2));
    if (is_aborted_.exchange(true)) return;
    for (const Comm comm : comms_) {
      if (comm != nullptr) nccl().CommAbort(comm);
    }
  }

 private:
  // What NCCL made of communicators on the way is its own.
  [[noreturn]] void refuse(int status) {
    std::fill(comms_.begin(), comms_.end(), nullptr);
    fail(ErrorCode::not_supported, "cuda: NCCL ", nccl_version(),
         " doesn't start: ", nccl().GetErrorString(status));
  }

  std::vector<std::shared_ptr<Card>> cards_;
  std::vector<Comm> comms_;
  std::shared_timed_mutex calls_;
  std::atomic<bool> is_aborted_ = false;
};

}  // namespace

std::unique_ptr<PeerSums> sums_of_cards(std::vector<std::shared_ptr<Card>> cards) {
  nccl();
  return std::make_unique<NcclSums>(std::move(cards));
}

}  // namespace mixtape::cuda
