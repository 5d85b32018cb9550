// A text while it is typed: where the cursor stands, and the texts before it. Knows no terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape::cli {

// The cursor moves by what a reader sees as one letter (grapheme clusters), and stands at a byte's offset.
class EditedLine {
 public:
  // `earlier`: the oldest first.
  explicit EditedLine(std::vector<std::string> earlier = {});

  const std::string& text() const { return texts_[at_]; }
  std::size_t cursor() const { return cursor_; }
  void insert(std::string_view bytes);

  void left();
  void right();
  void word_left();
  void word_right();
  void home() { cursor_ = 0; }
  void end() { cursor_ = text().size(); }
  // Other texts; what was typed in one stays there.
  void earlier();
  void later();

  void erase_left();
  void erase_right();
  void erase_word_left();
  void erase_to_home();
  void erase_to_end();

 private:
  std::size_t letter_before(std::size_t end) const;
  std::size_t letter_behind(std::size_t begin) const;
  void erase(std::size_t begin, std::size_t end);

  std::vector<std::string> texts_;
  std::size_t at_, cursor_ = 0;
};

// Rows of a terminal that show a text, and where in them its cursor stands.
struct ScreenRows {
  std::vector<std::string> rows;
  std::vector<std::size_t> widths;  // of the rows, columns
  std::size_t row = 0, column = 0;
};
// In at most `width` columns, 8 or more. Controls and what is no UTF-8 are shown as printable() does, tabs as spaces.
ScreenRows screen_rows(const std::string& prompt, const EditedLine& line, std::size_t width);
// At most `height` of them: those that end with the cursor's, where they are too many before it.
void keep_rows(ScreenRows& screen, std::size_t height);
// How many a terminal shows above the cursor's, that has come to have `columns` and folds what is wider.
std::size_t rows_above(const ScreenRows& screen, std::size_t columns);

}  // namespace mixtape::cli
