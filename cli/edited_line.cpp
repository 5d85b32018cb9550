#include "cli/edited_line.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "cli/quote.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::cli {
namespace {

// Of a code point as it is shown.
struct Shown {
  std::string text;
  std::size_t width;  // columns
};

Shown shown(std::string_view bytes, const CodePoint& c) {
  if (bytes == "\t") return {"    ", 4};
  std::string text;
  if (!c.valid) {
    for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    return {text, text.size()};
  }
  text = printable(std::string(bytes));
  if (text != bytes) return {text, text.size()};
  return {text, static_cast<std::size_t>(utf8proc_charwidth(static_cast<utf8proc_int32_t>(c.value)))};
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }

}  // namespace

EditedLine::EditedLine(std::vector<std::string> earlier) : texts_(std::move(earlier)), at_(texts_.size()) {
  texts_.emplace_back();
}

void EditedLine::insert(std::string_view bytes) {
  texts_[at_].insert(cursor_, bytes);
  cursor_ += bytes.size();
}

std::size_t EditedLine::letter_behind(std::size_t begin) const {
  const std::string_view rest = std::string_view(text()).substr(begin);
  if (rest.empty()) return begin;
  CodePoint c = first_code_point(rest);
  std::size_t size = c.size;
  for (utf8proc_int32_t state = 0; c.valid && size < rest.size(); size += c.size) {
    const CodePoint next = first_code_point(rest.substr(size));
    if (!next.valid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                                        static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    c = next;
  }
  return begin + size;
}

// Letters follow from what stands before them: counted from the row's begin.
std::size_t EditedLine::letter_before(std::size_t end) const {
  if (end == 0) return 0;
  const std::size_t line_break = end < 2 ? std::string::npos : text().rfind('\n', end - 2);
  std::size_t begin = line_break == std::string::npos ? 0 : line_break + 1;
  for (std::size_t next; (next = letter_behind(begin)) < end;) begin = next;
  return begin;
}

void EditedLine::erase(std::size_t begin, std::size_t end) {
  texts_[at_].erase(begin, end - begin);
  cursor_ = begin;
}

void EditedLine::left() { cursor_ = letter_before(cursor_); }
void EditedLine::right() { cursor_ = letter_behind(cursor_); }

void EditedLine::word_left() {
  while (cursor_ > 0 && is_space(text()[cursor_ - 1])) --cursor_;
  while (cursor_ > 0 && !is_space(text()[cursor_ - 1])) --cursor_;
}

void EditedLine::word_right() {
  while (cursor_ < text().size() && is_space(text()[cursor_])) ++cursor_;
  while (cursor_ < text().size() && !is_space(text()[cursor_])) ++cursor_;
}

void EditedLine::earlier() {
  if (at_ > 0) --at_;
  end();
}

void EditedLine::later() {
  if (at_ + 1 < texts_.size()) ++at_;
  end();
}

void EditedLine::erase_left() { erase(letter_before(cursor_), cursor_); }
void EditedLine::erase_right() { erase(cursor_, letter_behind(cursor_)); }
void EditedLine::erase_to_home() { erase(0, cursor_); }
void EditedLine::erase_to_end() { erase(cursor_, text().size()); }
void EditedLine::erase_word_left() {
  const std::size_t end = cursor_;
  word_left();
  erase(cursor_, end);
}

ScreenRows screen_rows(const std::string& prompt, const EditedLine& line, std::size_t width) {
  ScreenRows screen{{prompt}, {prompt.size()}};
  const auto begin_row = [&] {
    screen.rows.emplace_back();
    screen.widths.push_back(0);
  };
  const std::string_view text = line.text();
  for (std::size_t at = 0, size = 0; at <= text.size(); at += size) {
    const std::string_view rest = text.substr(at);
    const CodePoint c = rest.empty() ? CodePoint{0, 1, true} : first_code_point(rest);
    size = c.size;
    const bool is_break = rest.starts_with('\n');
    const Shown next = rest.empty() || is_break ? Shown{"", 0} : shown(rest.substr(0, size), c);
    if (screen.widths.back() + next.width > width) begin_row();
    if (at == line.cursor()) {
      screen.row = screen.rows.size() - 1;
      screen.column = screen.widths.back();
    }
    screen.rows.back() += next.text;
    screen.widths.back() += next.width;
    if (is_break) begin_row();
  }
  return screen;
}

void keep_rows(ScreenRows& screen, std::size_t height) {
  const std::size_t first = screen.row < height ? 0 : screen.row - height + 1;
  const std::size_t end = std::min(screen.rows.size(), first + height);
  const auto part = [&](auto& values) {
    values.resize(end);
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(first));
  };
  part(screen.rows);
  part(screen.widths);
  screen.row -= first;
}

std::size_t rows_above(const ScreenRows& screen, std::size_t columns) {
  std::size_t above = screen.column / columns;
  for (std::size_t i = 0; i < screen.row; ++i)
    above += std::max<std::size_t>(1, (screen.widths[i] + columns - 1) / columns);
  return above;
}

}  // namespace mixtape::cli
