#include "cli/verbose.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "mixtape/runtime/trace.h"

namespace mixtape::cli {
namespace {

std::string list(const std::vector<Buffer>& buffers) {
  std::string text;
  for (const Buffer& b : buffers) text += str(text.empty() ? "" : " ", b);
  return text;
}

// softmax_forward_f32  f32[4,8] -> f32[4,8]  12.5 us
void print(const DispatchTrace& t) {
  const std::string time = t.seconds > 0.0 ? fmt::format("{:.1f} us", t.seconds * 1e6) : "recorded";
  fmt::print(stderr, "{}  {} -> {}  {}\n", t.dispatch.kernel, list(t.dispatch.reads), list(t.dispatch.writes),
             time);
  for (const std::string& note : t.notes) fmt::print(stderr, "    {}\n", note);
}

}  // namespace

void print_dispatches_if_asked() {
  const char* asked = std::getenv("MIXTAPE_VERBOSE");
  if (asked != nullptr && std::string_view(asked) == "1") set_trace_sink(print);
}

}  // namespace mixtape::cli
