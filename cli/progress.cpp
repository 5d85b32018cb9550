#include "cli/progress.h"

#include <fmt/core.h>

#include <utility>

#include "cli/log_file.h"
#include "cli/terminal.h"
#include "mixtape/core/resident_memory.h"

namespace mixtape::cli {
namespace {

constexpr double kRewritePause = 0.1,
                 kLinePause = 10.0;  // seconds between two states on a terminal, in a log

// Whether it is time for the next line; if so it counts as told.
bool is_due(std::optional<Stopwatch>& told, double pause, bool is_end) {
  if (told && told->seconds() < pause && !is_end) return false;
  told = Stopwatch();
  return true;
}

}  // namespace

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), rewrites_(can_rewrite_line()) {}

Progress::~Progress() { end_line(); }

void Progress::update(const State& state) {
  if (!done_before_) done_before_ = state.done;
  const bool is_end = state.done >= state.total;
  if (!is_quiet() && is_due(shown_, rewrites_ ? kRewritePause : kLinePause, is_end)) show(state);
  if (has_log() && is_due(logged_, kLinePause, is_end)) log_line(text(state, std::string::npos));
}

void Progress::show(const State& state) const {
  if (rewrites_) {
    rewrite_line(text(state, static_cast<std::size_t>(terminal_width()) - 1));
  } else {
    put_error(text(state, std::string::npos) + "\n");
  }
}

std::optional<double> Progress::seconds_left(const State& state, double rate) const {
  if (state.seconds_left || rate <= 0.0) return state.seconds_left;
  return static_cast<double>(state.total - state.done) / rate;
}

// What a narrow terminal has no room for is left out, the least telling figure first.
std::string Progress::text(const State& state, std::size_t width) const {
  const double seconds = start_.seconds();
  const double rate = seconds > 0.0 ? static_cast<double>(state.done - *done_before_) / seconds : 0.0;
  const std::string count = fmt::format("{}/{}", state.done, state.total);
  const std::string head = fmt::format("{}: {} {}", what_, count, unit_);
  const std::string speed = rate > 0.0 ? ", " + format_rate(rate, unit_) : "";
  const std::optional<double> left = seconds_left(state, rate);
  const std::string time = left ? fmt::format(", {} left", format_seconds(*left)) : "";
  const std::string peak = fmt::format(", peak {}", format_bytes(static_cast<double>(peak_resident_bytes())));
  const std::string behind = state.note.empty() ? "" : ", " + state.note;
  const std::string details = behind + (state.details.empty() ? "" : ", " + state.details);
  for (const std::string& line :
       {head + speed + time + peak + details, head + speed + time + details, head + time + details,
        head + speed + time + behind, head + time + behind, head + time, head}) {
    if (line.size() <= width) return line;
  }
  // As much of the stage's name as there is room for.
  const std::size_t room = width > count.size() + 2 ? width - count.size() - 2 : 0;
  return room == 0 ? count : fmt::format("{}: {}", what_.substr(0, room), count);
}

std::string format_rate(double per_second, const std::string& units) {
  if (per_second >= 1.0 || per_second <= 0.0) return fmt::format("{:.0f}/s", per_second);
  const std::string unit = units == "matrices" ? "matrix" : units.substr(0, units.size() - 1);
  return fmt::format("{:.1f} s/{}", 1.0 / per_second, unit);
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
