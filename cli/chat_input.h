// What is said in a chat: on a terminal through a line editor, elsewhere lines as they come.
#pragma once

#include <optional>
#include <string>

#include "cli/line_editor.h"

namespace mixtape::cli {

class ChatInput {
 public:
  ChatInput();
  bool is_terminal() const { return is_terminal_; }

  // A line, and those that it is continued by; false at the end of the input. Ctrl-C drops what was typed, or where
  // nothing was says how to leave, and then ends the program. Throws io where the input can't be read.
  bool read(std::string& message);

 private:
  bool read_edited(std::string& message);
  bool read_plain(std::string& message);

  bool is_terminal_;
  std::optional<LineEditor> editor_;  // on a terminal that can place its cursor
};

}  // namespace mixtape::cli
