#include "cli/text_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "cli/terminal.h"

namespace mixtape::cli {

TextTable::TextTable(std::vector<TableColumn> columns) : columns_(std::move(columns)) {
  int width = 0;
  for (const TableColumn& c : columns_) width += c.width;
  is_narrow_ = width > output_width();
}

void TextTable::print_header() const {
  if (is_narrow_) {
    if (!columns_[0].name.empty()) fmt::print("{}:\n", columns_[0].name);
    return;
  }
  std::vector<std::string> names;
  for (const TableColumn& c : columns_) names.push_back(c.name);
  print_line(names);
}

void TextTable::print_row(const std::vector<std::string>& cells) const {
  if (!is_narrow_) return print_line(cells);
  std::size_t widest = 0;
  for (std::size_t i = 1; i < cells.size(); ++i) widest = std::max(widest, columns_[i].name.size());
  fmt::print("{}\n", cells[0]);
  for (std::size_t i = 1; i < cells.size(); ++i) {
    if (!cells[i].empty()) fmt::print("  {:<{}}  {}\n", columns_[i].name, widest, cells[i]);
  }
}

void TextTable::print_line(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += i == 0 ? fmt::format("{:<{}}", cells[i], columns_[i].width)
                   : fmt::format("{:>{}}", cells[i], columns_[i].width);
  }
  fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

void print_words(const std::string& line, std::size_t indent) {
  fmt::print("{}\n", folded(line, static_cast<std::size_t>(output_width()), indent));
}

}  // namespace mixtape::cli
