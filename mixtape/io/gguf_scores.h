// Scores of SentencePiece's BPE in a GGUF file, which stand for the order of merges.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mixtape {

using GgufMerge = std::pair<std::string, std::string>;  // left and right

// For each text, the better the earlier `merges` make it; 0 for what is no normal token. Throws not_supported, naming
// `where` and the tokens, for merges whose order scores can't express.
std::vector<float> gguf_scores(const std::vector<std::string>& texts, const std::vector<std::int32_t>& types,
                               const std::vector<GgufMerge>& merges, const std::string& where);

}  // namespace mixtape
