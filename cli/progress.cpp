#include "cli/progress.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace mixtape::cli {
namespace {

double since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      start_(std::chrono::steady_clock::now()),
      shown_(start_ - std::chrono::hours(1)),
      is_terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (line_open_) fmt::print(stderr, "\n");
}

void Progress::update(std::int64_t done, std::int64_t total, const std::string& note) {
  const bool finished = done >= total;
  if (is_terminal_) {
    if (since(shown_) < 0.1 && !finished) return;
    show(done, total, note);
    return;
  }
  const int tenths = total > 0 ? static_cast<int>(10 * done / total) : 10;
  if (tenths == tenths_shown_) return;
  tenths_shown_ = tenths;
  show(done, total, note);
}

void Progress::show(std::int64_t done, std::int64_t total, const std::string& note) {
  shown_ = std::chrono::steady_clock::now();
  const double seconds = since(start_);
  const double rate = seconds > 0.0 ? static_cast<double>(done) / seconds : 0.0;
  const double left = rate > 0.0 ? static_cast<double>(total - done) / rate : 0.0;
  const std::string text = fmt::format(
      "{}: {}/{} {}, {:.0f}/s, {} left, peak {}{}{}", what_, done, total, unit_, rate, format_seconds(left),
      format_bytes(static_cast<double>(peak_resident_bytes())), note.empty() ? "" : ", ", note);
  if (is_terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
    line_open_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void Progress::line(const std::string& text) {
  if (line_open_) fmt::print(stderr, "\r\033[K");
  line_open_ = false;
  fmt::print(stderr, "{}\n", text);
}

std::string format_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string format_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.1f} KB", bytes / 1e3);
}

std::uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace mixtape::cli
