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

// While it lives the terminal shows no keys and hands them over one by one. Those that are typed, and what is pasted, while
// no line is read wait for the next one; only Ctrl-C and its like are signals then.
class LineEditor {
 public:
  // Whether both are a terminal that can place its cursor.
  static bool is_possible();

  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // What is typed behind `prompt`, one column a byte. What is pasted may have line breaks; without them a line, however
  // long. `line` is what was typed until then where it is dropped.
  Typed read(const std::string& prompt, std::string& line);
  // For the arrow keys; not twice in a row, and no empty one.
  void remember(const std::string& line);

 private:
  // False where the line is at its end, and `typed_` says how.
  bool obey(const std::string& key);
  void paste();
  void draw();
  // Whether the terminal has another width, or another program has written there since.
  bool has_moved() const;

  // The bytes of one key, or of one letter's part; empty at the end of the input.
  std::string read_key();
  // -1 at the end of the input, or where none comes within the milliseconds; -1 of those: waits.
  int read_byte(int milliseconds);
  bool has_more(int milliseconds);

  std::vector<std::string> earlier_;
  EditedLine line_;
  std::string prompt_, read_;  // read_: from the terminal, and not looked at yet
  Typed typed_ = Typed::line;
  ScreenRows shown_;         // on the terminal
  std::size_t columns_ = 0;  // that it had then
};

// As it was before there was a line editor, whatever thread asks, a signal's handler too: the program is about to end.
void restore_terminal();

}  // namespace mixtape::cli
