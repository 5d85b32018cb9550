#include "mixtape/io/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/mapped_file.h"

namespace mixtape {
namespace {

constexpr std::size_t kMaxJsonDepth = 64;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Watches a parser: how deep it is, and, for strict reading, one set of keys for each object that is open. A pass of its
// own: the parser that takes a function looks through all members of an object whenever one of them ends.
class Watcher final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Watcher(const std::string& where, bool unique_keys) : where_(where), unique_keys_(unique_keys) {}

  bool null() override { return check(); }
  bool boolean(bool) override { return check(); }
  bool number_integer(number_integer_t) override { return check(); }
  bool number_unsigned(number_unsigned_t) override { return check(); }
  bool number_float(number_float_t, const string_t&) override { return check(); }
  bool string(string_t&) override { return check(); }
  bool binary(binary_t&) override { return check(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_array() override { return end(); }
  bool start_object(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool key(string_t& name) override {
    if (unique_keys_ && !keys_.back().insert(name).second)
      fail(ErrorCode::format, where_, ": duplicate key ", nlohmann::json(name).dump());
    return check();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool check() const {
    if (keys_.size() > kMaxJsonDepth)
      fail(ErrorCode::format, where_, ": JSON nests deeper than ", kMaxJsonDepth, " levels");
    return true;
  }
  bool begin() {
    keys_.emplace_back();
    return check();
  }
  bool end() {
    keys_.pop_back();
    return true;
  }

  const std::string& where_;
  bool unique_keys_;
  std::vector<std::unordered_set<std::string>> keys_;  // of open objects; empty ones of open arrays
};

nlohmann::json parse(std::string_view text, const std::string& where, bool unique_keys) {
  const std::size_t nul = text.find('\0');  // the parser would take it for the end
  if (nul != std::string_view::npos) fail(ErrorCode::format, where, ": byte ", nul, " of the JSON is NUL");
  Watcher watcher(where, unique_keys);
  try {
    nlohmann::json::sax_parse(text, &watcher);  // what it finds wrong, the parser says
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::format, where, ": invalid JSON or UTF-8: ", json_fault(error));
  }
}

// The end of the string that begins at `text`[begin], a quotation mark.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// Python's names of numbers that JSON can't hold, in quotation marks.
std::string quote_special_numbers(std::string_view text) {
  static constexpr std::string_view kNames[] = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return out.assign(text);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text[at] == '"' ? end_of_string(text, at) : at + 1;
    const auto* name = std::find_if(std::begin(kNames), std::end(kNames), [&](std::string_view known) {
      return text.substr(at).starts_with(known);
    });
    const bool special = name != std::end(kNames);
    if (special) end = at + name->size();
    out.append(special ? "\"" : "").append(text.substr(at, end - at)).append(special ? "\"" : "");
    at = end;
  }
  return out;
}

std::string read_stream(int fd, const std::string& where) {
  std::string bytes;
  char block[1 << 16];
  while (true) {
    const ssize_t size = ::read(fd, block, sizeof block);
    if (size == 0) return bytes;
    if (size > 0) {
      bytes.append(block, static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      fail(ErrorCode::io, where, ": cannot read: ", std::strerror(errno));
    }
  }
}

// Devices but terminals may never end, as /dev/zero; what reads from nothing has /dev/null.
bool may_end(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISBLK(info.st_mode)) return false;
  return !S_ISCHR(info.st_mode) || ::isatty(fd) == 1 || info.st_rdev == makedev(1, 3);
}

// Pipes, terminals and other devices can't be mapped.
bool is_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

std::string with(std::string text, std::string_view part, std::string_view instead) {
  const std::size_t at = text.find(part);
  return at == text.npos ? text : text.replace(at, part.size(), instead);
}

}  // namespace

std::string json_fault(const std::exception& error) {
  const std::string text = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
  const std::size_t tag = text.find("] ");
  return with(with(text.substr(tag == text.npos ? 0 : tag + 2), "parse error at ", ""),
              "last read:", "found");
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  using nlohmann::ordered_json;
  if (text.find('\0') != std::string_view::npos) fail(ErrorCode::format, where, ": a NUL byte");
  try {
    return ordered_json::parse(text, [&](int depth, ordered_json::parse_event_t, ordered_json&) {
      if (depth > static_cast<int>(kMaxJsonDepth))
        fail(ErrorCode::format, where, ": JSON nests deeper than ", kMaxJsonDepth, " levels");
      return true;
    });
  } catch (const ordered_json::exception& error) {
    fail(ErrorCode::format, where, ": invalid JSON: ", json_fault(error));
  }
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  return parse(text, where, true);
}

nlohmann::json parse_config_json(std::string_view text, const std::string& where) {
  return parse(quote_special_numbers(text), where, false);
}

nlohmann::json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_json(text_of(file), path.string());
}

nlohmann::json read_config_json(const std::filesystem::path& path) {
  return parse_config_json(read_text(path), path.string());
}

std::string read_text(const std::filesystem::path& path) {
  if (!is_stream(path)) return std::string(text_of(MappedFile(path)));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_to_open(path, errno);
  const std::unique_ptr<const int, void (*)(const int*)> closer(&fd, [](const int* open) { ::close(*open); });
  if (!may_end(fd))
    fail(ErrorCode::invalid_argument, path.string(), ": found a device, expected a file, pipe or terminal");
  return read_stream(fd, path.string());
}

}  // namespace mixtape
