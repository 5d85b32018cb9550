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
constexpr int kKeyMs = 50;    // within which the bytes of one key come
constexpr int kLookMs = 200;  // how often the terminal's width is looked at while no key comes

termios usual_modes;
std::atomic<bool> is_raw = false, is_reading = false;
std::atomic<bool> was_away = false;  // stopped, and the shell has written below the line

void write_control(std::string_view control) {
  const auto unused = ::write(STDOUT_FILENO, control.data(), control.size());
  static_cast<void>(unused);
}

// Keys come one by one, unshown, returns too; what is pasted is marked as such. Output is as ever. While a line is read
// Ctrl-C and Ctrl-Z are keys, between lines they are signals and all others wait.
void make_raw() {
  if (!is_raw && ::tcgetattr(STDIN_FILENO, &usual_modes) != 0) return;
  termios modes = usual_modes;
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN | (is_reading ? ISIG : 0));
  modes.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  is_raw = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes) == 0;
  write_control("\033[?2004h");
}

class Reading {
 public:
  Reading() { set(true); }
  ~Reading() { set(false); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  static void set(bool reads) {
    is_reading = reads;
    make_raw();
  }
};

// Unless somebody handles it already, or it was ignored when the program started.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = handler;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  sigaction(signal, &action, nullptr);
}

// Faults, which their own thread has to handle; signals.h has those that come from outside.
void die(int signal) {
  restore_terminal();
  std::raise(signal);
}

// Ctrl-Z: meanwhile the shell's terminal is as it was.
void stop(int signal) {
  const int error = errno;
  restore_terminal();
  std::raise(signal);
  handle(signal, stop);
  make_raw();
  was_away = true;
  errno = error;
}

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
  write_control("\033[?2004l");
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_modes);
}

bool LineEditor::is_possible() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && can_rewrite_line();
}

LineEditor::LineEditor() {
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) handle(fault, die);
  handle(SIGTSTP, stop);
  make_raw();
}

LineEditor::~LineEditor() { restore_terminal(); }

Typed LineEditor::read(const std::string& prompt, std::string& line) {
  const Reading reading;
  prompt_ = prompt;
  line_ = EditedLine(earlier_);
  typed_ = Typed::line;
  shown_ = {};
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
    std::raise(SIGTSTP);
  } else if (key == "\x0c") {
    fmt::print("\033[H\033[2J");
    shown_ = {};
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

// In place of the rows that stand there. More rows than the screen has show those before the cursor.
void LineEditor::draw() {
  if (was_away.exchange(false)) shown_ = {};
  const std::size_t height = screen_height(), columns = static_cast<std::size_t>(terminal_width());
  const std::size_t above = std::min(rows_above(shown_, columns), height - 1);
  std::string out = above > 0 ? fmt::format("\r\033[{}A\033[J", above) : "\r\033[J";
  shown_ = screen_rows(prompt_, line_, columns - 1);  // see rewrite_line()
  columns_ = columns;
  keep_rows(shown_, height);
  for (std::size_t i = 0; i < shown_.rows.size(); ++i) out += (i > 0 ? "\n" : "") + shown_.rows[i];
  const std::size_t below = shown_.rows.size() - 1 - shown_.row;
  if (below > 0) out += fmt::format("\033[{}A", below);
  out += "\r";
  if (shown_.column > 0) out += fmt::format("\033[{}C", shown_.column);
  fmt::print("{}", out);
  std::fflush(stdout);
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

bool LineEditor::has_moved() const {
  return was_away || columns_ != static_cast<std::size_t>(terminal_width());
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
  const bool waits = milliseconds < 0;
  int found;
  while ((found = ::poll(&input, 1, waits ? kLookMs : milliseconds)) < 0 ? errno == EINTR
                                                                         : found == 0 && waits) {
    if (waits && has_moved()) draw();
  }
  if (found <= 0) return false;
  char bytes[4096];
  const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (count > 0) read_.assign(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace mixtape::cli
