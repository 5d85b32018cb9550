// Charts for reports: HTML and SVG without a script, whose colours and sizes come from the page's style sheet
// (cli/html_page.h). What has a name in words is HTML, so that it can wrap on a phone.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mixtape::cli {

struct Point {
  double x = 0.0, y = 0.0;
};

// `style`: a class of the page, "before", "after", "plain".
struct Curve {
  std::string name, style;
  std::vector<Point> points;
  bool is_line = true;  // else dots
};

struct Tick {
  double at = 0.0;
  std::string label;
};

struct Axes {
  std::string x, y;
  std::vector<Tick> x_ticks = {};  // empty: round numbers
  bool is_log_y = false;           // values of y above 0
};

// Points that are not finite, or on a logarithmic axis not above 0, are left out. Empty where none is left.
std::string curve_chart(const Axes& axes, const std::vector<Curve>& curves);

// Values with standard errors; a style is that of a curve.
struct Bar {
  std::string name, style;
  double value = 0.0, error = 0.0;
};
// From 0 on, one below the other; what lies below 0 has no length.
std::string bar_chart(const std::vector<Bar>& bars);
// Side by side, up and down from 0, below what the styles stand for; the name of every few that is a number stands
// beneath. Empty where all are 0 or one is not finite.
std::string column_chart(const Axes& axes, const std::vector<Bar>& bars, const std::vector<Curve>& styles);

// Digits behind the point that tell values of this size apart, 5 to 9.
int digits_of(double value);

// A square for each entry that is set; `text` is shown where a pointer rests on it.
struct Cell {
  double strength = 1.0;  // of its colour, 0 to 1
  std::string style = "after", text = {};
};
struct HeatMap {
  std::vector<std::string> rows;  // names
  std::vector<std::vector<std::optional<Cell>>> cells;
  std::string columns;       // what they are: "layer"
  std::vector<Cell> legend;  // texts that say what the colours mean
};
std::string heat_chart(const HeatMap& map);

// Points with standard errors of y, numbered from 1 on in this order.
struct Mark {
  std::string name;
  double x = 0.0, y = 0.0, error = 0.0;
  bool is_on_line = false;  // which leads through these, from left to right
};
std::string mark_chart(const Axes& axes, const std::vector<Mark>& marks);

}  // namespace mixtape::cli
