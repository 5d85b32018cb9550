#include "fuzz/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace mixtape::fuzz {
namespace {

constexpr std::uint64_t kMaxData = 256 << 10;

// The largest second offset of any tensor.
std::uint64_t data_bytes(std::string_view header) {
  const auto json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  std::uint64_t bytes = 0;
  if (!json.is_object()) return bytes;
  for (const auto& entry : json) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const auto& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_unsigned()) continue;
    bytes = std::max(bytes, offsets[1].get<std::uint64_t>());
  }
  return std::min(bytes, kMaxData);
}

}  // namespace

void show(const Error& error) {
  static const bool wanted = std::getenv("MIXTAPE_FUZZ_SHOW") != nullptr;
  if (wanted) std::cerr << name(error.code()) << ": " << error.what() << '\n';
}

std::map<std::string, std::string> sections_of(std::string_view input) {
  std::map<std::string, std::string> sections;
  std::string name;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size() - 1) + 1;
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(end);
    if (line.starts_with("@@ ")) {
      name = line.substr(3, line.find_last_not_of('\n') - 2);
    } else {
      sections[name] += line;
    }
  }
  return sections;
}

std::string safetensors_with(std::string_view header) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  const std::uint64_t bytes = data_bytes(header);
  for (std::uint64_t i = 0; i < bytes; ++i) file += static_cast<char>(i * 37 % 251);
  return file;
}

Files::Files() : path_("/dev/shm/mixtape-fuzz-" + std::to_string(::getpid())) {
  std::filesystem::create_directories(path_);
}

Files::~Files() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Files::clear() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove_all(entry);
}

std::filesystem::path Files::write(const std::string& name, std::string_view contents) const {
  std::ofstream(path_ / name, std::ios::binary) << contents;
  return path_ / name;
}

}  // namespace mixtape::fuzz
