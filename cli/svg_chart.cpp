#include "cli/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/html_page.h"

namespace mixtape::cli {
namespace {

constexpr double kWidth = 640.0, kHeight = 300.0;  // of charts with two axes
constexpr double kLeft = 62.0, kRight = 16.0, kTop = 30.0, kBottom = 44.0;

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
    if (!axes.is_log_y) y_.low = std::min(y_.low, 0.0);
    if (y_.high - y_.low < 1e-12) y_.high = y_.low + 1.0;
    if (x_.high - x_.low < 1e-12) x_.high = x_.low + 1.0;
    x_.widen(margin, margin);
    y_.widen(axes.is_log_y ? std::max(margin, 0.05) : 0.0, std::max(margin, 0.03));
  }

  bool is_empty() const { return x_.is_empty(); }
  bool is_shown(const Point& p) const {
    return std::isfinite(p.x) && std::isfinite(p.y) && (!axes_.is_log_y || p.y > 0.0);
  }
  double x(double v) const { return kLeft + (v - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double y(double v) const {
    return kHeight - kBottom - (height_of(v) - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  std::string frame() const {
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    std::string out = line(kLeft, bottom, right, bottom, "axis") + line(kLeft, kTop, kLeft, bottom, "axis");
    for (const Tick& t : axes_.x_ticks.empty() ? round_ticks(x_) : axes_.x_ticks)
      out += text_at(x(t.at), bottom + 16.0, "middle", t.label, "faint");
    for (const Tick& t : axes_.is_log_y ? power_ticks(y_) : round_ticks(y_)) {
      const double at = y(axes_.is_log_y ? std::pow(10.0, t.at) : t.at);
      out += line(kLeft, at, right, at, "axis") + text_at(kLeft - 6.0, at + 4.0, "end", t.label, "faint");
    }
    return out + text_at((kLeft + right) / 2.0, kHeight - 8.0, "middle", axes_.x) +
           text_at(4.0, 14.0, "start", axes_.y);
  }

 private:
  double height_of(double v) const { return axes_.is_log_y ? std::log10(v) : v; }

  const Axes& axes_;
  Range x_, y_;
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

std::string legend(const std::vector<Curve>& curves) {
  std::string out;
  double right = kWidth - kRight;
  for (auto c = curves.rbegin(); c != curves.rend(); ++c) {
    if (c->name.empty()) continue;
    out += text_at(right, 14.0, "end", c->name);
    right -= 7.0 * static_cast<double>(c->name.size()) + 8.0;
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"10\" r=\"4\" class=\"{}\"/>\n", right, c->style);
    right -= 16.0;
  }
  return out;
}

std::string whisker(double x1, double x2, double y) {
  return line(x1, y, x2, y, "plain") + line(x1, y - 4, x1, y + 4, "plain") +
         line(x2, y - 4, x2, y + 4, "plain");
}

}  // namespace

std::string curve_chart(const Axes& axes, const std::vector<Curve>& curves) {
  std::vector<Point> all;
  for (const Curve& c : curves) all.insert(all.end(), c.points.begin(), c.points.end());
  const Plot plot(axes, all);
  if (plot.is_empty()) return "";
  std::string body = plot.frame();
  for (const Curve& c : curves) body += drawn(plot, c);
  return svg(kWidth, kHeight, body + legend(curves));
}

std::string bar_chart(const std::vector<Bar>& bars) {
  constexpr double kNames = 210.0, kValues = 150.0, kRow = 28.0;
  double most = 0.0;
  for (const Bar& b : bars) most = std::max(most, b.value + b.error);
  if (most <= 0.0 || !std::isfinite(most)) return "";
  const double scale = (kWidth - kNames - kValues) / most;
  std::string body;
  double y = 6.0;
  for (const Bar& b : bars) {
    const double middle = y + kRow / 2.0 - 3.0, end = kNames + b.value * scale, spread = b.error * scale;
    body += text_at(kNames - 8.0, middle + 4.0, "end", b.name);
    body += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" class=\"{}\"/>\n",
                        kNames, y + 2.0, std::max(b.value * scale, 0.0), b.style);
    if (b.error > 0.0) body += whisker(end - spread, end + spread, middle);
    body += text_at(
        end + spread + 8.0, middle + 4.0, "start",
        b.error > 0.0 ? fmt::format("{:.5f} +-{:.5f}", b.value, b.error) : fmt::format("{:.5f}", b.value));
    y += kRow;
  }
  return svg(kWidth, y + 4.0, body);
}

std::string heat_chart(const HeatMap& map) {
  constexpr double kNames = 170.0, kRow = 20.0, kHead = 22.0;
  std::size_t columns = 0;
  for (const auto& row : map.cells) columns = std::max(columns, row.size());
  if (columns == 0) return "";
  const double width = std::clamp((kWidth - kNames) / static_cast<double>(columns), 8.0, 60.0);
  std::string body = text_at(kNames, 14.0, "start", map.columns, "faint");
  for (std::size_t c = 0; c < columns; c += std::max<std::size_t>(1, (columns + 7) / 8))
    body += text_at(kNames + (static_cast<double>(c) + 0.5) * width + 40.0 * (c == 0), 14.0, "middle",
                    c == 0 ? "" : std::to_string(c), "faint");
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = kHead + kRow * static_cast<double>(r);
    body += text_at(kNames - 8.0, y + 14.0, "end", map.rows[r]);
    for (std::size_t c = 0; c < map.cells[r].size(); ++c) {
      const std::optional<Cell>& cell = map.cells[r][c];
      if (!cell) continue;
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"cell\" "
          "fill-opacity=\"{:.3f}\"><title>{}</title></rect>\n",
          kNames + static_cast<double>(c) * width, y, width - 1.0, kRow - 1.0,
          std::clamp(cell->value / map.most, 0.04, 1.0), html_text(cell->text));
    }
  }
  return svg(std::max(kWidth, kNames + width * static_cast<double>(columns)),
             kHead + kRow * static_cast<double>(map.rows.size()) + 4.0, body);
}

std::string mark_chart(const Axes& axes, const std::vector<Mark>& marks) {
  std::vector<Point> all;
  for (const Mark& m : marks) all.push_back({m.x, m.y});
  const Plot plot(axes, all, 0.1);
  if (plot.is_empty()) return "";
  std::string body = plot.frame();
  for (const Mark& m : marks) {
    if (!plot.is_shown({m.x, m.y})) continue;
    const double x = plot.x(m.x), y = plot.y(m.y), low = std::max(m.y - m.error, 1e-12);
    const bool is_right = x > kWidth * 0.7;
    body += line(x, plot.y(low), x, plot.y(m.y + m.error), "plain");
    body += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"after\"><title>{}</title></circle>\n", x, y,
        html_text(m.name));
    body += text_at(x + (is_right ? -9.0 : 9.0), y - 6.0, is_right ? "end" : "start", m.name);
  }
  return svg(kWidth, kHeight, body);
}

}  // namespace mixtape::cli
