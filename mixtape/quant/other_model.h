// The refusal of a file that was made for another model.
#pragma once

#include <string>
#include <vector>

namespace mixtape {

// Throws format if there is a difference: "<where>: is <what> of another model: " and the first three.
void refuse_other_model(const std::string& where, const std::string& what,
                        const std::vector<std::string>& differences);

}  // namespace mixtape
