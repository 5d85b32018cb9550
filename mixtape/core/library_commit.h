// Which source the library was built from.
#pragma once

namespace mixtape {

// "10937d8", "10937d8-dirty", or "unknown commit"; made by cmake/commit.cmake. Headers of another commit may not fit.
const char* library_commit();

}  // namespace mixtape
