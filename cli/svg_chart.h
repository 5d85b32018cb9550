// Charts for reports: plain SVG without a script, whose colours come from the page's style sheet (cli/html_page.h).
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

// Values with standard errors, from 0 on, one below the other.
struct Bar {
  std::string name, style;
  double value = 0.0, error = 0.0;
};
std::string bar_chart(const std::vector<Bar>& bars);

// A square for each entry that is set, the darker the larger; `text` is shown where a pointer rests on it.
struct Cell {
  double value = 0.0;
  std::string text;
};
struct HeatMap {
  std::vector<std::string> rows;  // names
  std::vector<std::vector<std::optional<Cell>>> cells;
  std::string columns;  // what they are: "layer"
  double most = 1.0;    // the value of the darkest
};
std::string heat_chart(const HeatMap& map);

// Named points with standard errors of y.
struct Mark {
  std::string name;
  double x = 0.0, y = 0.0, error = 0.0;
};
std::string mark_chart(const Axes& axes, const std::vector<Mark>& marks);

}  // namespace mixtape::cli
