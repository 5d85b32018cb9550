#include "cli/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "cli/log_file.h"
#include "cli/quote.h"

namespace mixtape::cli {
namespace {

constexpr int kLeastWidth = 20;
constexpr int kUsualWidth = 80;
constexpr const char* kClear = "\r\033[K";

std::atomic<bool> line_stands = false, quiet = false;

// The number of a stream that is closed would be that of the next file to be opened, and messages would go into the
// model. What takes the number instead fails as a closed stream does.
void hold_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int lowest_free = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    static_cast<void>(lowest_free);
  }
}

}  // namespace

void prepare_streams() {
  hold_closed_streams();
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool can_rewrite_line() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<int>(size.ws_col, kLeastWidth);
  const char* columns = std::getenv("COLUMNS");
  const int asked = columns == nullptr ? 0 : std::atoi(columns);
  return asked > 0 ? std::max(asked, kLeastWidth) : kUsualWidth;
}

int output_width() {
  winsize size{};
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return is_terminal && size.ws_col > 0 ? std::max<int>(size.ws_col, kLeastWidth)
                                        : std::numeric_limits<int>::max();
}

void be_quiet() { quiet = true; }
bool is_quiet() { return quiet; }

void put_error(const std::string& text) {
  const std::size_t unused = std::fwrite(text.data(), 1, text.size(), stderr);
  static_cast<void>(unused);
}

std::string folded(std::string text, std::size_t width, std::size_t indent) {
  std::string lines;
  while (text.size() > width) {
    std::size_t space = text.rfind(' ', width);
    if (space == text.npos || space <= indent) space = text.find(' ', std::max(width, indent) + 1);
    if (space == text.npos) break;
    lines += text.substr(0, space) + "\n";
    text = std::string(indent, ' ') + text.substr(space + 1);
  }
  return lines + text;
}

// Set before there are threads; empty: all is told.
static std::string errors_alone_of;

static void put_line(const std::string& line) {
  if (line_stands.exchange(false)) put_error(kClear);
  const std::string text = printable(line);
  put_error((can_rewrite_line() ? folded(text, static_cast<std::size_t>(terminal_width())) : text) + "\n");
  log_line(line);
}

void note(const std::string& line) {
  if (errors_alone_of.empty()) put_line(line);
}

void tell_error(const std::string& text) {
  put_line("mixtape: " + (errors_alone_of.empty() ? "" : errors_alone_of + ": ") + text);
}

void tell_errors_alone(const std::string& name) {
  errors_alone_of = name;
  be_quiet();
  std::fflush(stdout);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
}

void warn(const std::string& text) { note("mixtape: warning: " + text); }

void rewrite_line(const std::string& line) {
  // The last column stays free: some terminals wrap as soon as it is taken.
  put_error(kClear + line.substr(0, static_cast<std::size_t>(terminal_width()) - 1));
  line_stands = true;
}

void end_line() {
  if (line_stands.exchange(false)) put_error("\n");
}

}  // namespace mixtape::cli
