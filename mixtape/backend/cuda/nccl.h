// Sums over cards by NCCL, found at run time.
#pragma once

#include <memory>
#include <vector>

#include "mixtape/backend/cuda/card.h"
#include "mixtape/runtime/peer_sums.h"

namespace mixtape::cuda {

// Not joined yet. Throws not_supported with the reason where NCCL isn't there.
std::unique_ptr<PeerSums> sums_of_cards(std::vector<std::shared_ptr<Card>> cards);

}  // namespace mixtape::cuda
