#include "cli/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "cli/html_page.h"

namespace mixtape::cli {
namespace {

constexpr double kWidth = 640.0, kHeight = 300.0;  // of charts with two axes
constexpr double kLeast = 78.0, kRight = 20.0, kTop = 34.0,
                 kBottom = 56.0;  // margins, the left one at the least
constexpr double kDigit = 12.0;   // a digit's width on a phone, where the style sheet has the largest letters

std::string svg(double width, double height, const std::string& body) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n{}</svg>\n", width, height, body);
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* style = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y,
                     anchor, style, html_text(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
                     x2, y2, style);
}

struct Range {
  double low = HUGE_VAL, high = -HUGE_VAL;
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  void widen(double below, double above) {
    const double width = high - low;
    low -= below * width;
    high += above * width;
  }
  bool is_empty() const { return low > high; }
};

// 1, 2 or 5 times a power of ten, about a fifth of the range.
double step_of(const Range& r) {
  const double rough = std::max(r.high - r.low, 1e-12) / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  return power * (lead <= 1.0 ? 1.0 : lead <= 2.0 ? 2.0 : lead <= 5.0 ? 5.0 : 10.0);
}

std::vector<Tick> round_ticks(const Range& r) {
  std::vector<Tick> ticks;
  const double step = step_of(r);
  for (double k = std::ceil(r.low / step - 1e-9); k * step <= r.high + 1e-9 * step; ++k)
    ticks.push_back({k * step, fmt::format("{:.6g}", k * step + 0.0)});
  return ticks;
}

// Of a logarithmic axis, whose range is that of the exponents.
std::vector<Tick> power_ticks(const Range& r) {
  std::vector<Tick> ticks;
  const bool is_narrow = r.high - r.low < 2.0;
  for (double e = std::floor(r.low); e <= r.high; ++e) {
    for (const double lead : {1.0, 2.0, 5.0}) {
      const double at = e + std::log10(lead);
      if ((lead == 1.0 || is_narrow) && at >= r.low - 1e-9 && at <= r.high + 1e-9)
        ticks.push_back({at, fmt::format("{:.6g}", lead * std::pow(10.0, e))});
    }
  }
  return ticks;
}

// A frame with two axes, into which values are mapped.
class Plot {
 public:
  // `margin`: room around the points, as a share of their range.
  Plot(const Axes& axes, const std::vector<Point>& points, double margin = 0.0) : axes_(axes) {
    for (const Point& p : points) {
      if (!is_shown(p)) continue;
      x_.add(p.x);
      y_.add(height_of(p.y));
    }
    if (x_.is_empty()) return;
    if (!axes.is_log_y) y_.add(0.0);
    if (y_.high - y_.low < 1e-12) y_.high = y_.low + 1.0;
    if (x_.high - x_.low < 1e-12) x_.high = x_.low + 1.0;
    x_.widen(margin, margin);
    y_.widen(axes.is_log_y ? std::max(margin, 0.05) : y_.low < 0.0 ? 0.03 : 0.0, std::max(margin, 0.03));
    y_ticks_ = axes.is_log_y ? power_ticks(y_) : round_ticks(y_);
    for (const Tick& t : y_ticks_) left_ = std::max(left_, width_of(t) + 10.0);
  }

  bool is_empty() const { return x_.is_empty(); }
  bool is_shown(const Point& p) const {
    return std::isfinite(p.x) && std::isfinite(p.y) && (!axes_.is_log_y || p.y > 0.0);
  }
  double x(double v) const { return left_ + (v - x_.low) / (x_.high - x_.low) * (kWidth - left_ - kRight); }
  double y(double v) const {
    return kHeight - kBottom - (height_of(v) - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  std::string frame() const {
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    std::string out = line(left_, bottom, right, bottom, "axis") + line(left_, kTop, left_, bottom, "axis");
    for (const Tick& t : axes_.x_ticks.empty() ? round_ticks(x_) : axes_.x_ticks)
      out +=
          text_at(std::min(x(t.at), kWidth - width_of(t) / 2.0), bottom + 20.0, "middle", t.label, "faint");
    for (const Tick& t : y_ticks_) {
      const double at = y(axes_.is_log_y ? std::pow(10.0, t.at) : t.at);
      out += line(left_, at, right, at, "axis") + text_at(left_ - 6.0, at + 4.0, "end", t.label, "faint");
    }
    return out + text_at((left_ + right) / 2.0, kHeight - 10.0, "middle", axes_.x) +
           text_at(4.0, 18.0, "start", axes_.y);
  }

 private:
  double height_of(double v) const { return axes_.is_log_y ? std::log10(v) : v; }
  static double width_of(const Tick& t) { return kDigit * static_cast<double>(t.label.size()); }

  const Axes& axes_;
  Range x_, y_;
  std::vector<Tick> y_ticks_;
  double left_ = kLeast;  // room for the widest label
};

std::string drawn(const Plot& plot, const Curve& curve) {
  std::string points, dots;
  for (const Point& p : curve.points) {
    if (!plot.is_shown(p)) continue;
    points += fmt::format("{:.1f},{:.1f} ", plot.x(p.x), plot.y(p.y));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"{}\"/>\n", plot.x(p.x),
                        plot.y(p.y), curve.is_line ? 3 : 1.5, curve.style);
  }
  if (!curve.is_line) return dots;
  return fmt::format("<polyline points=\"{}\" class=\"{}\"/>\n", points, curve.style) +
         (curve.points.size() <= 40 ? dots : "");
}

// What the styles stand for, above a chart.
std::string legend(const std::vector<Curve>& curves) {
  std::string out;
  for (const Curve& c : curves) {
    if (c.name.empty()) continue;
    out += fmt::format(
        "<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><circle cx=\"5\" cy=\"5\" r=\"4\" "
        "class=\"{}\"/></svg>{}</span>\n",
        c.style, html_text(c.name));
  }
  return out.empty() ? "" : "<div class=\"legend\">\n" + out + "</div>\n";
}

std::string rect(double x, double y, double width, double height, const std::string& attributes,
                 const std::string& title = "") {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" {}>{}</rect>\n", x,
                     y, width, height, attributes,
                     title.empty() ? "" : fmt::format("<title>{}</title>", html_text(title)));
}

// Of a value's error; on a logarithmic axis no lower than the axis.
std::string whisker(const Plot& plot, double x, double value, double error) {
  const double low = plot.is_shown({x, value - error}) ? plot.y(value - error) : kHeight - kBottom;
  const double at = plot.x(x), end = std::clamp(low, kTop, kHeight - kBottom);
  return line(at, end, at, std::max(plot.y(value + error), kTop / 2.0), "error");
}

}  // namespace

std::string curve_chart(const Axes& axes, const std::vector<Curve>& curves) {
  std::vector<Point> all;
  for (const Curve& c : curves) all.insert(all.end(), c.points.begin(), c.points.end());
  const Plot plot(axes, all);
  if (plot.is_empty()) return "";
  std::string body = plot.frame();
  for (const Curve& c : curves) body += drawn(plot, c);
  return legend(curves) + svg(kWidth, kHeight, body);
}

std::string bar_chart(const std::vector<Bar>& bars) {
  constexpr double kLength = 100.0, kThick = 12.0;
  double most = 0.0;
  for (const Bar& b : bars) most = std::max(most, b.value + b.error);
  if (most <= 0.0 || !std::isfinite(most)) return "";
  const auto at = [&](double value) { return std::clamp(value / most, 0.0, 1.0) * kLength; };
  std::string out = "<div class=\"bars\">\n";
  for (const Bar& b : bars) {
    const bool has_error = b.error > 0.0;
    out += fmt::format(
        "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\"><svg viewBox=\"0 0 {} {}\" "
        "preserveAspectRatio=\"none\" aria-hidden=\"true\">\n",
        html_text(b.name), kLength, kThick);
    out += rect(0.0, 1.0, at(b.value), kThick - 2.0, fmt::format("class=\"{}\"", b.style));
    if (has_error)
      out += line(at(b.value - b.error), kThick / 2.0, at(b.value + b.error), kThick / 2.0, "error");
    const int digits = digits_of(most);
    out += fmt::format("</svg></span><span class=\"value\">{:.{}f}{}</span></div>\n", b.value, digits,
                       has_error ? fmt::format(" +-{:.{}f}", b.error, digits) : "");
  }
  return out + "</div>\n";
}

std::string column_chart(const Axes& axes, const std::vector<Bar>& bars, const std::vector<Curve>& styles) {
  std::vector<Point> ends;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& b = bars[i];
    if (!std::isfinite(b.value) || !std::isfinite(b.error)) return "";
    ends.push_back({static_cast<double>(i) - 0.5, b.value - b.error});
    ends.push_back({static_cast<double>(i) + 0.5, b.value + b.error});
  }
  if (std::all_of(bars.begin(), bars.end(), [](const Bar& b) { return b.value == 0.0; })) return "";
  Axes named = axes;
  const std::size_t step = std::max<std::size_t>(1, (bars.size() + 7) / 8);
  for (std::size_t i = 0, numbers = 0; i < bars.size(); ++i) {
    const bool is_number = !bars[i].name.empty() && std::isdigit(static_cast<unsigned char>(bars[i].name[0]));
    if (is_number && numbers++ % step == 0) named.x_ticks.push_back({static_cast<double>(i), bars[i].name});
  }
  const Plot plot(named, ends);
  std::string body = plot.frame();
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& b = bars[i];
    const double x = static_cast<double>(i), left = plot.x(x - 0.4), zero = plot.y(0.0),
                 end = plot.y(b.value);
    body += rect(left, std::min(zero, end), plot.x(x + 0.4) - left, std::abs(zero - end),
                 fmt::format("class=\"{}\"", b.style),
                 fmt::format("{} {}: {:.3g} +-{:.1g}", axes.x, b.name, b.value, b.error));
    if (b.error > 0.0) body += whisker(plot, x, b.value, b.error);
  }
  std::vector<Curve> used;
  for (const Curve& c : styles) {
    if (std::any_of(bars.begin(), bars.end(), [&](const Bar& b) { return b.style == c.style; }))
      used.push_back(c);
  }
  return legend(used) + svg(kWidth, kHeight, body);
}

int digits_of(double value) {
  if (!(value > 0.0)) return 5;
  return static_cast<int>(std::clamp(3.0 - std::floor(std::log10(value)), 5.0, 9.0));
}

std::string heat_chart(const HeatMap& map) {
  std::size_t columns = 0;
  for (const auto& row : map.cells) columns = std::max(columns, row.size());
  if (columns == 0) return "";
  const auto colour = [](const Cell& c) {
    return fmt::format("class=\"{}\" fill-opacity=\"{:.3f}\"", c.style, std::clamp(c.strength, 0.04, 1.0));
  };
  std::string out = "<div class=\"legend\">\n";
  for (const Cell& c : map.legend)
    out += fmt::format("<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\">{}</svg>{}</span>\n",
                       rect(0.0, 0.0, 10.0, 10.0, colour(c)), html_text(c.text));
  out += "</div>\n<div class=\"heat\">\n";
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    out += fmt::format(
        "<div class=\"cells\"><span class=\"name\">{}</span><svg viewBox=\"0 0 {} 1\" "
        "preserveAspectRatio=\"none\" role=\"img\">\n",
        html_text(map.rows[r]), columns);
    for (std::size_t c = 0; c < map.cells[r].size(); ++c) {
      if (const std::optional<Cell>& cell = map.cells[r][c])
        out += rect(static_cast<double>(c), 0.0, 1.0, 1.0, colour(*cell), cell->text);
    }
    out += "</svg></div>\n";
  }
  return out + fmt::format(
                   "<div class=\"cells\"><span class=\"name\">{}</span><span class=\"ends\"><span>0</span>"
                   "<span>{}</span></span></div>\n</div>\n",
                   html_text(map.columns), columns > 1 ? std::to_string(columns - 1) : "");
}

std::string mark_chart(const Axes& axes, const std::vector<Mark>& marks) {
  std::vector<Point> ends;
  Curve line_through{"", "plain", {}};
  for (const Mark& m : marks) {
    for (const double y : {m.y, m.y + m.error, m.y - m.error}) ends.push_back({m.x, y});
    if (m.is_on_line) line_through.points.push_back({m.x, m.y});
  }
  const Plot plot(axes, ends, 0.1);
  if (plot.is_empty()) return "";
  std::sort(line_through.points.begin(), line_through.points.end(),
            [](const Point& a, const Point& b) { return a.x < b.x; });
  std::string body = plot.frame() + drawn(plot, line_through);
  std::vector<Point> labels;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const Mark& m = marks[i];
    if (!plot.is_shown({m.x, m.y})) continue;
    const double x = plot.x(m.x), y = plot.y(m.y);
    body += whisker(plot, m.x, m.y, m.error);
    body +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"{}\"><title>{}</title></circle>\n",
                    x, y, m.is_on_line ? "after" : "before", html_text(m.name));
    // Beside its mark, where no other number stands: numbers that are near each other alternate.
    Point at{x + 9.0, y - 7.0};
    const auto is_taken = [&](const Point& p) {
      return std::any_of(labels.begin(), labels.end(), [&](const Point& other) {
        return std::abs(other.x - p.x) < 20.0 && std::abs(other.y - p.y) < 16.0;
      });
    };
    for (const Point& other :
         {Point{x - 21.0, y - 7.0}, Point{x + 9.0, y + 17.0}, Point{x - 21.0, y + 17.0}}) {
      if (is_taken(at)) at = other;
    }
    labels.push_back(at);
    body += text_at(at.x, at.y, "start", std::to_string(i + 1));
  }
  return legend({{"beaten by no other", "after", {}}, {"beaten in both", "before", {}}}) +
         svg(kWidth, kHeight, body);
}

}  // namespace mixtape::cli
