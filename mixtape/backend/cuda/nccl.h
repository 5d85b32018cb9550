// Sums over cards by NCCL, found at run time.
#pragma once

#include <memory>
#include <vector>

#include "mixtape/backend/cuda/card.h"
#include "mixtape/runtime/peer_sums.h"

namespace mixtape::cuda {

// Throws not_supported with the reason: NCCL isn't there, or doesn't start on these cards.
std::unique_ptr<PeerSums> join_cards(std::vector<std::shared_ptr<Card>> cards);

}  // namespace mixtape::cuda
