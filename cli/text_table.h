// Tables and facts on standard output: as wide as they are laid out, on a narrower terminal one value below the other.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mixtape::cli {

struct TableColumn {
  std::string name;
  int width;  // with the space before it
};

// Prints row by row. The first column stands at the left, all others at the right of theirs. On a terminal that is
// narrower than all columns the first cell is a line, and below it each value has one with its column's name.
class TextTable {
 public:
  explicit TextTable(std::vector<TableColumn> columns);
  void print_header() const;  // where the names stand beside the values, the first column's alone
  // One cell for each column; empty ones say nothing.
  void print_row(const std::vector<std::string>& cells) const;

 private:
  void print_line(const std::vector<std::string>& cells) const;

  std::vector<TableColumn> columns_;
  bool is_narrow_;
};

// A line; on a terminal that is narrower as many as its words take, those after the first begin at column `indent`.
void print_words(const std::string& line, std::size_t indent = 0);

// Such a line of a name, 12 columns, and what `text` makes of the values; without a name it goes on below another one.
template <class... Values>
void print_fact(std::string_view name, fmt::format_string<Values...> text, Values&&... values) {
  constexpr std::size_t kText = 13;
  print_words(fmt::format("{:<{}} ", name, kText - 1) + fmt::format(text, std::forward<Values>(values)...),
              kText);
}

}  // namespace mixtape::cli
