// JSON values are nlohmann's. A program that handles none needs no header of that library: unless it defines
// MIXTAPE_JSON the types are only declared here, and functions that take or return one can't be called.
#pragma once

#ifdef MIXTAPE_JSON
#include <nlohmann/json_fwd.hpp>

namespace mixtape {
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
}  // namespace mixtape
#else
namespace mixtape {
class Json;
class OrderedJson;
}  // namespace mixtape
#endif
