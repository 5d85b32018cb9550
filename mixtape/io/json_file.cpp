#include "mixtape/io/json_file.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/mapped_file.h"

namespace mixtape {
namespace {

constexpr int kMaxDepth = 64;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Watches the parser: one set of keys for each object that is open.
class KeyChecker {
 public:
  explicit KeyChecker(const std::string& where) : where_(where) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) {
      fail(ErrorCode::format, where_, ": JSON nests deeper than ", kMaxDepth, " levels");
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      fail(ErrorCode::format, where_, ": duplicate key ", parsed.dump());
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  const std::size_t nul = text.find('\0');  // the parser would take it for the end
  if (nul != std::string_view::npos) fail(ErrorCode::format, where, ": byte ", nul, " of the JSON is NUL");
  KeyChecker checker(where);
  try {
    return nlohmann::json::parse(
        text, [&checker](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
          return checker(depth, event, parsed);
        });
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::format, where, ": invalid JSON or UTF-8: ", error.what());
  }
}

nlohmann::json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_json(text_of(file), path.string());
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  return std::string(text_of(file));
}

}  // namespace mixtape
