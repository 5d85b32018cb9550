#include "cli/progress.h"

#include <fmt/core.h>

#include <utility>

#include "cli/terminal.h"
#include "mixtape/core/resident_memory.h"

namespace mixtape::cli {
namespace {

constexpr double kRewritePause = 0.1,
                 kLinePause = 10.0;  // seconds between two states on a terminal, in a log

}  // namespace

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), rewrites_(can_rewrite_line()) {}

Progress::~Progress() { end_line(); }

void Progress::update(std::int64_t done, std::int64_t total, const std::string& note) {
  if (is_quiet()) return;
  if (!done_before_) done_before_ = done;
  const double pause = rewrites_ ? kRewritePause : kLinePause;
  if (!shown_ || shown_->seconds() >= pause || done >= total) show(done, total, note);
}

void Progress::show(std::int64_t done, std::int64_t total, const std::string& note) {
  shown_ = Stopwatch();
  if (rewrites_) {
    rewrite_line(text(done, total, note, static_cast<std::size_t>(terminal_width()) - 1));
  } else {
    cli::note(text(done, total, note, std::string::npos));
  }
}

// What a narrow terminal has no room for is left out, the least telling figure first.
std::string Progress::text(std::int64_t done, std::int64_t total, const std::string& note,
                           std::size_t width) const {
  const double seconds = start_.seconds();
  const double rate = seconds > 0.0 ? static_cast<double>(done - *done_before_) / seconds : 0.0;
  const std::string count = fmt::format("{}/{}", done, total);
  const std::string head = fmt::format("{}: {} {}", what_, count, unit_);
  const bool is_known = rate > 0.0;
  const std::string speed = is_known ? ", " + format_rate(rate, unit_) : "";
  const std::string time =
      is_known ? fmt::format(", {} left", format_seconds(static_cast<double>(total - done) / rate)) : "";
  const std::string peak = fmt::format(", peak {}", format_bytes(static_cast<double>(peak_resident_bytes())));
  const std::string behind = note.empty() ? "" : ", " + note;
  for (const std::string& line : {head + speed + time + peak + behind, head + speed + time + behind,
                                  head + time + behind, head + time, head}) {
    if (line.size() <= width) return line;
  }
  // As much of the stage's name as there is room for.
  const std::size_t room = width > count.size() + 2 ? width - count.size() - 2 : 0;
  return room == 0 ? count : fmt::format("{}: {}", what_.substr(0, room), count);
}

std::string format_rate(double per_second, const std::string& unit) {
  if (per_second >= 1.0 || per_second <= 0.0) return fmt::format("{:.0f}/s", per_second);
  return fmt::format("{:.1f} s/{}", 1.0 / per_second, unit.substr(0, unit.size() - 1));
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

}  // namespace mixtape::cli
