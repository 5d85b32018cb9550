#include "cli/chat_input.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "cli/signals.h"
#include "cli/terminal.h"
#include "mixtape/core/error.h"

namespace mixtape::cli {
namespace {

constexpr const char* kHowToLeave = "[Ctrl-C again, Ctrl-D or /exit ends the chat]";
constexpr const char* kHowToLeaveAndPrompt = "\n[Ctrl-C again, Ctrl-D or /exit ends the chat]\n> ";

const char* prompt_of(const std::string& text) { return text.empty() ? "> " : ". "; }

// Whether the message goes on in another line.
bool add_line(std::string& message, std::string line) {
  const bool goes_on = line.ends_with('\\');
  if (goes_on) line.back() = '\n';
  message += line;
  return goes_on;
}

// A terminal that hands over whole lines drops what comes behind so many bytes of one, and says nothing.
bool is_cut(const std::string& text) {
  constexpr std::size_t kTerminalLine = 4095;
  const std::size_t last = text.size() - (text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1);
  if (last < kTerminalLine) return false;
  note(fmt::format(
      "not sent: this terminal gives {} bytes of a line at most; end parts of it with \\, or send "
      "it through a pipe",
      kTerminalLine));
  return true;
}

}  // namespace

ChatInput::ChatInput() : is_terminal_(::isatty(STDIN_FILENO) != 0) {
  if (LineEditor::is_possible()) editor_.emplace();
}

bool ChatInput::read(std::string& message) {
  if (editor_) return read_edited(message);
  do {
    if (!read_plain(message)) return false;
  } while (is_terminal_ && is_cut(message));
  return true;
}

bool ChatInput::read_edited(std::string& message) {
  bool is_told = false;
  message.clear();
  for (std::string line;;) {
    const Typed typed = editor_->read(prompt_of(message), line);
    if (typed == Typed::end) return !message.empty();
    if (typed == Typed::line) {
      if (add_line(message, line)) continue;
      editor_->remember(message);
      return true;
    }
    const bool is_empty = message.empty() && line.empty();
    if (is_empty && is_told) end_by_signal();
    if (is_empty) note(kHowToLeave);
    is_told = is_empty;
    message.clear();
  }
}

bool ChatInput::read_plain(std::string& message) {
  const InterruptScope interrupts(is_terminal_ ? kHowToLeaveAndPrompt : nullptr);
  message.clear();
  for (bool goes_on = true; goes_on;) {
    if (is_terminal_) {
      fmt::print("{}", prompt_of(message));
      std::fflush(stdout);
    }
    std::string line;
    if (!std::getline(std::cin, line)) {
      if (std::ferror(stdin) != 0) fail(ErrorCode::io, "standard input: cannot read: ", std::strerror(errno));
      if (is_terminal_) fmt::print("\n");
      return !message.empty();
    }
    if (line.ends_with('\r')) line.pop_back();
    goes_on = add_line(message, line);
  }
  return true;
}

}  // namespace mixtape::cli
