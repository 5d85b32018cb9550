// Progress of long work: one line that is rewritten on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mixtape::cli {

class Progress {
 public:
  // `unit` is what is counted: "tokens", "tensors".
  Progress(std::string what, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` stands behind the figures: a loss, say.
  void update(std::int64_t done, std::int64_t total, const std::string& note = "");
  // A line of its own, above the progress line.
  void line(const std::string& text);

 private:
  void show(std::int64_t done, std::int64_t total, const std::string& note);
  std::string what_, unit_;
  std::chrono::steady_clock::time_point start_, shown_;
  bool is_terminal_;
  bool line_open_ = false;
  int tenths_shown_ = 0;
};

// "1m 05s", "12s"
std::string format_seconds(double seconds);
// "1.9 GB"
std::string format_bytes(double bytes);
// The most memory that this process has held, in bytes.
std::uint64_t peak_resident_bytes();

}  // namespace mixtape::cli
