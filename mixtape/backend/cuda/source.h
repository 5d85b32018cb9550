// A user's own kernel text, compiled at run time by NVRTC where it is installed.
#pragma once

#include <string>

namespace mixtape::cuda {

// Machine code for `architecture` ("sm_90"). Throws invalid_argument with the compiler's words, or
// not_supported where NVRTC is missing.
std::string compile_source(const std::string& name, const std::string& text, const std::string& architecture);

}  // namespace mixtape::cuda
