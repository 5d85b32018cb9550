// Strict JSON: a duplicate key, ill-formed UTF-8, a NUL byte or nesting deeper than 64 is an error.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mixtape {

// Messages begin with `where`. Throws format.
nlohmann::json parse_json(std::string_view text, const std::string& where);

// Parses a whole file; throws io if it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path);

// The bytes of a file; throws io, naming the path.
std::string read_text(const std::filesystem::path& path);

}  // namespace mixtape
