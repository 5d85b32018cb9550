// JSON files. Ill-formed UTF-8, a NUL byte or nesting deeper than 64 is always an error.
#pragma once

#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "mixtape/io/json_fwd.h"

namespace mixtape {

// Strict: a duplicate key is an error too. Messages begin with `where`. Throws format.
Json parse_json(std::string_view text, const std::string& where);

// With members in the order of the text, which chat templates show; of equal keys the last one counts. Throws format.
OrderedJson parse_ordered_json(std::string_view text, const std::string& where);

// Parses a whole file; throws invalid_argument if there is none, io if it cannot be read.
Json read_json(const std::filesystem::path& path);

// Configuration as Python writes and reads it: of equal keys the last one counts, and NaN, Infinity and -Infinity
// are allowed. These become strings of that name, so that whoever reads such a key refuses it.
Json parse_config_json(std::string_view text, const std::string& where);
Json read_config_json(const std::filesystem::path& path);

// The bytes of a file, pipe or terminal, to its end; throws as MappedFile does, invalid_argument for other devices.
std::string read_text(const std::filesystem::path& path);

// What the JSON library found wrong, without its own names for it: "line 1, column 7: syntax error while parsing ...".
std::string json_fault(const std::exception& error);

}  // namespace mixtape
