#include "cli/line_editor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/terminal.h"

namespace mixtape::cli {
namespace {

constexpr std::string_view kPasteBegins = "\033[200~", kPasteEnds = "\033[201~";
constexpr int kKeyMs = 50;  // within which the bytes of one key come

termios usual_modes;
std::atomic<bool> is_raw = false;

// Keys come one by one, unshown, Ctrl-C and returns too; what is pasted is marked as such. Output is as ever.
void make_raw() {
  if (::tcgetattr(STDIN_FILENO, &usual_modes) != 0) return;
  termios modes = usual_modes;
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  modes.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  is_raw = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes) == 0;
  fmt::print("\033[?2004h");
}

class RawMode {
 public:
  RawMode() { make_raw(); }
  ~RawMode() { restore_terminal(); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
};

std::size_t screen_height() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

struct Binding {
  std::string_view key;
  void (EditedLine::*act)();
};
// Terminals send "\033O" for "\033[" in one of their modes: read_key() makes one of both.
constexpr Binding kBindings[] = {
    {"\033[D", &EditedLine::left},          {"\x02", &EditedLine::left},
    {"\033[C", &EditedLine::right},         {"\x06", &EditedLine::right},
    {"\033[1;5D", &EditedLine::word_left},  {"\033b", &EditedLine::word_left},
    {"\033[1;5C", &EditedLine::word_right}, {"\033f", &EditedLine::word_right},
    {"\033[1;3D", &EditedLine::word_left},  {"\033[1;3C", &EditedLine::word_right},
    {"\033[H", &EditedLine::home},          {"\033[1~", &EditedLine::home},
    {"\033[7~", &EditedLine::home},         {"\x01", &EditedLine::home},
    {"\033[F", &EditedLine::end},           {"\033[4~", &EditedLine::end},
    {"\033[8~", &EditedLine::end},          {"\x05", &EditedLine::end},
    {"\033[A", &EditedLine::earlier},       {"\x10", &EditedLine::earlier},
    {"\033[B", &EditedLine::later},         {"\x0e", &EditedLine::later},
    {"\x7f", &EditedLine::erase_left},      {"\x08", &EditedLine::erase_left},
    {"\033[3~", &EditedLine::erase_right},  {"\x04", &EditedLine::erase_right},
    {"\x17", &EditedLine::erase_word_left}, {"\033\x7f", &EditedLine::erase_word_left},
    {"\x15", &EditedLine::erase_to_home},   {"\x0b", &EditedLine::erase_to_end},
};

}  // namespace

void restore_terminal() {
  if (!is_raw.exchange(false)) return;
  constexpr std::string_view kUnmarked = "\033[?2004l";
  const auto unused = ::write(STDOUT_FILENO, kUnmarked.data(), kUnmarked.size());
  static_cast<void>(unused);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_modes);
}

bool LineEditor::is_possible() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && can_rewrite_line();
}

Typed LineEditor::read(const std::string& prompt, std::string& line) {
  const RawMode raw;
  prompt_ = prompt;
  line_ = EditedLine(earlier_);
  typed_ = Typed::line;
  row_ = 0;
  std::string key;
  do {
    if (!has_more(0)) draw();
    key = read_key();
  } while (obey(key));
  line_.end();
  draw();
  fmt::print("{}\n", typed_ == Typed::dropped ? "^C" : "");
  std::fflush(stdout);
  line = line_.text();
  return typed_;
}

void LineEditor::remember(const std::string& line) {
  if (!line.empty() && (earlier_.empty() || earlier_.back() != line)) earlier_.push_back(line);
}

bool LineEditor::obey(const std::string& key) {
  const bool is_end = key.empty() || (key == "\x04" && line_.text().empty());
  if (is_end || key == "\x03" || key == "\r" || key == "\n") {
    typed_ = is_end ? Typed::end : key == "\x03" ? Typed::dropped : Typed::line;
    return false;
  }
  const auto* bound = std::find_if(std::begin(kBindings), std::end(kBindings),
                                   [&](const Binding& binding) { return binding.key == key; });
  if (bound != std::end(kBindings)) {
    (line_.*bound->act)();
  } else if (key == kPasteBegins) {
    paste();
  } else if (key == "\x1a") {
    suspend();
  } else if (key == "\x0c") {
    fmt::print("\033[H\033[2J");
    row_ = 0;
  } else if (key == "\t" || static_cast<unsigned char>(key[0]) >= 0x20) {
    line_.insert(key);
  }
  return true;
}

// Line breaks in it, which terminals send as returns, are of the text; the last ones wait for Enter. One whose end does not
// come is ended by Ctrl-C.
void LineEditor::paste() {
  std::string text;
  while (!text.ends_with(kPasteEnds)) {
    const int byte = read_byte(-1);
    if (byte < 0) return;
    if (byte == '\x03') {
      read_.insert(0, 1, '\x03');
      return;
    }
    if (byte == '\n' && text.ends_with('\r')) text.pop_back();
    text += static_cast<char>(byte);
  }
  text.resize(text.size() - kPasteEnds.size());
  std::replace(text.begin(), text.end(), '\r', '\n');
  text.resize(text.find_last_not_of('\n') + 1);
  line_.insert(text);
}

// Ctrl-Z: the shell's terminal is as it was; back here the line stands below what it has written.
void LineEditor::suspend() {
  restore_terminal();
  std::raise(SIGTSTP);
  make_raw();
  row_ = 0;
}

// In place of the rows that stand there. More rows than the screen has show those before the cursor.
void LineEditor::draw() {
  const auto width = static_cast<std::size_t>(terminal_width()) - 1;  // see rewrite_line()
  const ScreenRows screen = screen_rows(prompt_, line_, width);
  const std::size_t height = screen_height();
  const std::size_t first = screen.row < height ? 0 : screen.row - height + 1;
  const std::size_t last = std::min(screen.rows.size(), first + height) - 1;
  std::string out = row_ > 0 ? fmt::format("\r\033[{}A\033[J", row_) : "\r\033[J";
  for (std::size_t i = first; i <= last; ++i) out += (i > first ? "\n" : "") + screen.rows[i];
  if (last > screen.row) out += fmt::format("\033[{}A", last - screen.row);
  out += "\r";
  if (screen.column > 0) out += fmt::format("\033[{}C", screen.column);
  fmt::print("{}", out);
  std::fflush(stdout);
  row_ = screen.row - first;
}

std::string LineEditor::read_key() {
  const int first = read_byte(-1);
  if (first < 0) return "";
  std::string key(1, static_cast<char>(first));
  if (first != '\033') return key;
  const int second = read_byte(kKeyMs);
  if (second < 0) return key;
  key += second == 'O' ? '[' : static_cast<char>(second);
  if (key.back() != '[') return key;
  for (int byte; (byte = read_byte(kKeyMs)) >= 0;) {
    key += static_cast<char>(byte);
    if (byte >= 0x40) break;
  }
  return key;
}

int LineEditor::read_byte(int milliseconds) {
  if (!has_more(milliseconds)) return -1;
  const auto byte = static_cast<unsigned char>(read_.front());
  read_.erase(0, 1);
  return byte;
}

bool LineEditor::has_more(int milliseconds) {
  if (!read_.empty()) return true;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  int found;
  while ((found = ::poll(&input, 1, milliseconds)) < 0 && errno == EINTR) {
  }
  if (found <= 0) return false;
  char bytes[4096];
  const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (count > 0) read_.assign(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace mixtape::cli
