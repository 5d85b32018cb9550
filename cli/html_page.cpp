#include "cli/html_page.h"

#include <fmt/core.h>

#include "cli/quote.h"

namespace mixtape::cli {
namespace {

constexpr const char* kStyle = R"(
:root { --paper: #fff; --ink: #1c1e21; --faint: #6b7078; --line: #d8dade; --before: #c4632b; --after: #1f6fb2; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15171a; --ink: #e6e7e9; --faint: #9aa0a8; --line: #3a3e44; --before: #e8935f; --after: #6bb1ea; }
}
@media print { :root { --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; } section { break-inside: avoid; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 52rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.faint, figcaption { color: var(--faint); font-size: .9rem; }
figure { margin: 1rem 0; }
svg { display: block; height: auto; min-width: 30rem; width: 100%; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); }
svg .faint { fill: var(--faint); font-size: 12px; }
.before { fill: var(--before); stroke: var(--before); }
.after { fill: var(--after); stroke: var(--after); }
.plain { fill: var(--faint); stroke: var(--faint); }
polyline.before, polyline.after, polyline.plain { fill: none; stroke-width: 2; }
.cell { fill: var(--after); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; }
pre { overflow-wrap: anywhere; white-space: pre-wrap; margin: .25rem 0; }
mark { background: var(--before); color: var(--paper); padding: 0 .15em; }
)";

}  // namespace

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

HtmlPage::HtmlPage(const std::string& title, const std::string& subtitle) : title_(html_text(title)) {
  body_ = fmt::format("<h1>{}</h1>\n<p class=\"faint\">{}</p>\n", title_, html_text(subtitle));
}

void HtmlPage::heading(const std::string& text) { body_ += fmt::format("<h2>{}</h2>\n", html_text(text)); }

void HtmlPage::paragraph(const std::string& text) { body_ += fmt::format("<p>{}</p>\n", html_text(text)); }

void HtmlPage::chart(const std::string& svg, const std::string& caption) {
  if (svg.empty()) return;
  body_ += fmt::format("<figure class=\"wide\">\n{}<figcaption>{}</figcaption>\n</figure>\n", svg,
                       html_text(caption));
}

void HtmlPage::table(const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div class=\"wide\"><table>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* tag = i == 0 ? "th" : "td";
    body_ += "<tr>";
    for (const std::string& cell : rows[i]) body_ += fmt::format("<{0}>{1}</{0}>", tag, html_text(cell));
    body_ += "</tr>\n";
  }
  body_ += "</table></div>\n";
}

std::string HtmlPage::text() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      title_, kStyle, body_);
}

}  // namespace mixtape::cli
