#include "cli/log_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "cli/model_card.h"
#include "cli/quote.h"
#include "cli/terminal.h"
#include "mixtape/core/error.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

std::atomic<std::FILE*> log_file = nullptr;  // closed by the program's end
std::string log_name;

// Behind the time of each line.
constexpr const char* kBegin = "mixtape ";
constexpr std::size_t kTimeLength = 20;

// "2026-11-30 01:50:39 ", local time.
std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[kTimeLength + 1];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S ", &parts) > 0 ? text : "";
}

// Text is never put behind what is no log: a model, a picture.
void require_log(const std::string& name) {
  std::error_code ignored;
  if (!fs::is_regular_file(name, ignored) || fs::file_size(name, ignored) == 0) return;
  std::ifstream file(name);
  std::string line;
  std::getline(file, line);
  require(line.size() > kTimeLength && line.substr(kTimeLength).starts_with(kBegin), "--log-file: ", name,
          " is no log of mixtape, expected one or a new name");
}

}  // namespace

void open_log(const std::string& name, const std::string& command) {
  std::error_code ignored;
  require(!fs::is_directory(name, ignored), "--log-file: ", name, " is a directory, expected a file");
  require_log(name);
  std::FILE* file = std::fopen(name.c_str(), "ae");
  if (file == nullptr) fail(ErrorCode::io, "--log-file: ", name, ": cannot open: ", std::strerror(errno));
  std::setvbuf(file, nullptr, _IOLBF, BUFSIZ);
  log_name = name;
  log_file = file;
  log_line(kBegin + version_record() + ": " + command);
}

bool has_log() { return log_file != nullptr; }

void log_line(const std::string& line) {
  std::FILE* file = log_file;
  if (file == nullptr) return;
  const std::string text = time_of_day() + printable(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::ferror(file) == 0) return;
  const std::string reason = std::strerror(errno);
  // Once, and no more into the log.
  if (log_file.exchange(nullptr) != nullptr)
    warn("--log-file: " + log_name + ": cannot write: " + reason + "; the log ends here, the run goes on");
}

}  // namespace mixtape::cli
