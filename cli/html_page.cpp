#include "cli/html_page.h"

#include <fmt/core.h>

#include "cli/quote.h"

namespace mixtape::cli {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --faint: #5f646c; --line: #d8dade; --before: #c4632b;
  --after: #1f6fb2; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15171a; --ink: #e6e7e9; --faint: #9aa0a8; --line: #3a3e44; --before: #e8935f; --after: #6bb1ea; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1rem; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { break-after: avoid; font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.notice { border-left: 4px solid var(--before); font-weight: 600; padding-left: .6rem; }
.faint, figcaption { color: var(--faint); font-size: .9rem; }
figure { break-inside: avoid; margin: 1rem 0; }
svg { display: block; height: auto; width: 100%; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .faint { fill: var(--faint); font-size: 12px; }
svg .axis { stroke: var(--line); }
svg .error { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.before { fill: var(--before); }
.after { fill: var(--after); }
.plain { fill: var(--faint); }
polyline { fill: none; stroke-width: 2; }
polyline.before { fill: none; stroke: var(--before); }
polyline.after { fill: none; stroke: var(--after); }
polyline.plain { fill: none; stroke: var(--faint); }
.legend { display: flex; flex-wrap: wrap; font-size: .9rem; gap: .25rem 1rem; margin: .25rem 0; }
.legend span { align-items: center; display: flex; gap: .35rem; }
.legend svg { height: .75rem; width: .75rem; }
.bar, .cells { align-items: center; display: grid; gap: 0 .75rem; }
.bar { grid-template-columns: 13rem 1fr 10.5rem; margin: .2rem 0; }
.cells { grid-template-columns: 13rem 1fr; }
.bar svg { height: 1.1rem; }
.cells svg { height: 1.25rem; }
.cells rect { stroke: var(--paper); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.name { font-size: .9rem; overflow-wrap: anywhere; }
.value { font-size: .9rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
.ends { color: var(--faint); display: flex; font-size: .8rem; justify-content: space-between; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; padding-top: .75rem; text-align: left; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  white-space: nowrap; }
th, td:last-child { overflow-wrap: anywhere; white-space: normal; }
tr, .example { break-inside: avoid; }
pre, code { font: .85rem/1.45 ui-monospace, monospace; }
pre { border-left: 3px solid var(--line); margin: .15rem 0 1rem; overflow-wrap: anywhere; padding-left: .6rem;
  white-space: pre-wrap; }
mark { background: var(--before); color: var(--paper); padding: 0 .15em; print-color-adjust: exact; }
@media (max-width: 36rem) {
  svg text, svg .faint { font-size: 20px; }
  .bar { grid-template-columns: 1fr auto; }
  .track { grid-column: 1 / -1; grid-row: 2; }
  .cells { grid-template-columns: 1fr; }
  table, caption, tbody, tr, td { display: block; }
  tr:first-child { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: .35rem 0; }
  td { border: 0; overflow-wrap: anywhere; padding: .05rem 0; white-space: normal; }
  td:first-child { font-weight: 600; }
  td[data-name] { display: flex; gap: 1rem; justify-content: space-between; }
  td[data-name]::before { color: var(--faint); content: attr(data-name); flex: none; }
}
@media print {
  :root { color-scheme: light; --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; --before: #c4632b; --after: #1f6fb2; }
  body { font-size: 11pt; max-width: none; }
  .wide { overflow-x: visible; }
  table { font-size: 8.5pt; }
}
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

void HtmlPage::notice(const std::string& text) {
  body_ += fmt::format("<p class=\"notice\">{}</p>\n", html_text(text));
}

void HtmlPage::chart(const std::string& chart, const std::string& caption) {
  if (chart.empty()) return;
  body_ += fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", chart, html_text(caption));
}

void HtmlPage::table(const std::vector<std::vector<std::string>>& rows, const std::string& heading) {
  body_ += "<div class=\"wide\"><table>\n";
  if (!heading.empty()) body_ += fmt::format("<caption>{}</caption>\n", html_text(heading));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* tag = i == 0 ? "th" : "td";
    body_ += "<tr>";
    for (std::size_t c = 0; c < rows[0].size(); ++c) {
      const std::string text = c < rows[i].size() ? html_text(rows[i][c]) : "";
      const bool is_named = i > 0 && c > 0 && !text.empty();  // shown beside it on a phone
      body_ += fmt::format("<{0}{1}>{2}</{0}>", tag,
                           is_named ? fmt::format(" data-name=\"{}\"", html_text(rows[0][c])) : "", text);
    }
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
