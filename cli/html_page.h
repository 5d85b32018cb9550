// One HTML file that needs no other: readable on a phone, in the dark and on paper.
#pragma once

#include <string>
#include <vector>

namespace mixtape::cli {

// Text as it stands in HTML, of any bytes: what is no UTF-8 is shown as it is by printable().
std::string html_text(const std::string& text);

class HtmlPage {
 public:
  HtmlPage(const std::string& title, const std::string& subtitle);

  void heading(const std::string& text);
  void paragraph(const std::string& text);
  // A paragraph that nobody may miss.
  void notice(const std::string& text);
  // Of cli/svg_chart.h, with a sentence below it; nothing where it is empty.
  void chart(const std::string& chart, const std::string& caption);
  // The first row names the columns.
  void table(const std::vector<std::vector<std::string>>& rows, const std::string& heading = "");
  // What is HTML already.
  void raw(const std::string& html) { body_ += html; }

  std::string text() const;

 private:
  std::string title_, body_;
};

}  // namespace mixtape::cli
