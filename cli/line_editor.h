// Lines that are typed on a terminal: edited as shells let one, with those before them. Standard input and output.
#pragma once

#include <string>
#include <vector>

#include "cli/edited_line.h"

namespace mixtape::cli {

enum class Typed {
  line,     // ended by Enter
  dropped,  // by Ctrl-C
  end       // Ctrl-D on an empty line, or the terminal is gone
};

class LineEditor {
 public:
  // Whether both are a terminal that can place its cursor.
  static bool is_possible();

  // What is typed behind `prompt`, one column a byte. What is pasted may have line breaks; without them a line, however
  // long. `line` is what was typed until then where it is dropped.
  Typed read(const std::string& prompt, std::string& line);
  // For the arrow keys; not twice in a row, and no empty one.
  void remember(const std::string& line);

 private:
  // False where the line is at its end, and `typed_` says how.
  bool obey(const std::string& key);
  void paste();
  void suspend();
  void draw();

  // The bytes of one key, or of one letter's part; empty at the end of the input.
  std::string read_key();
  // -1 at the end of the input, or where none comes within the milliseconds; -1 of those: waits.
  int read_byte(int milliseconds);
  bool has_more(int milliseconds);

  std::vector<std::string> earlier_;
  EditedLine line_;
  std::string prompt_, read_;  // read_: from the terminal, and not looked at yet
  Typed typed_ = Typed::line;
  std::size_t row_ = 0;  // of the cursor on the screen, from the prompt's on
};

// As it was before a line was read, whatever thread asks: the program is about to end.
void restore_terminal();

}  // namespace mixtape::cli
