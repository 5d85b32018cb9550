// Where the time of some work goes: each dispatch by itself, waited for.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mixtape/runtime/trace.h"

namespace mixtape {

// Adds up every dispatch of the process while it lives, by kernel and shapes.
class DispatchTimes {
 public:
  DispatchTimes() {
    set_trace_sink([this](const DispatchTrace& t) {
      std::string name = t.dispatch.kernel;
      for (const Buffer& b : t.dispatch.reads) name += str(" ", b);
      Entry& entry = entries_[name];
      entry.seconds += t.seconds;
      ++entry.count;
    });
  }
  ~DispatchTimes() { set_trace_sink(nullptr); }
  DispatchTimes(const DispatchTimes&) = delete;
  DispatchTimes& operator=(const DispatchTimes&) = delete;

  // The slowest first; all of it, then `most` lines.
  void print(std::size_t most) const {
    std::vector<std::pair<std::string, Entry>> all(entries_.begin(), entries_.end());
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    double total = 0.0;
    for (const auto& [name, entry] : all) total += entry.seconds;
    std::printf("%.2f ms in dispatches, each waited for\n", total * 1e3);
    for (std::size_t i = 0; i < std::min(most, all.size()); ++i) {
      const auto& [name, entry] = all[i];
      std::printf("%5.1f %% %8.1f us x %4d  %s\n", 100.0 * entry.seconds / total,
                  entry.seconds / entry.count * 1e6, entry.count, name.c_str());
    }
  }

 private:
  struct Entry {
    double seconds = 0.0;
    int count = 0;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace mixtape
