#include "mixtape/runtime/peer_sums.h"

namespace mixtape {
namespace {

std::vector<PeerSumsFactory>& factories() {
  static std::vector<PeerSumsFactory> all;
  return all;
}

}  // namespace

bool register_peer_sums(PeerSumsFactory factory) {
  factories().push_back(std::move(factory));
  return true;
}

std::unique_ptr<PeerSums> open_peer_sums(const std::vector<Device>& devices) {
  for (const PeerSumsFactory& factory : factories()) {
    if (auto sums = factory(devices)) return sums;
  }
  return nullptr;
}

}  // namespace mixtape
