#include "cli/calibration_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "cli/evaluation_table.h"
#include "cli/html_page.h"
#include "cli/part_table.h"
#include "cli/progress.h"
#include "cli/quantize_options.h"
#include "cli/svg_chart.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape::cli {
namespace {

std::vector<std::string> figures_row(const std::string& name, const Evaluation& e) {
  return {name,
          with_error(e.perplexity, e.perplexity_error, 3),
          with_error(e.kl->mean, e.kl->mean_error, 5),
          fmt::format("{:.5f}", e.kl->median),
          fmt::format("{:.4f}", e.kl->p99),
          with_error(100.0 * e.top1_agreement, 100.0 * e.top1_error, 2) + " %"};
}

// When the run was stopped, and of when the written model is.
std::string told_stop(const CalibrationReport& r) {
  const TrainReport& t = r.training;
  const std::string& stage = r.stages.back().method;
  const auto kept =
      std::find_if(r.stages.rbegin(), r.stages.rend(), [](const StageReport& s) { return s.kept; });
  if (!t.stopped_early)
    return fmt::format(
        "This run was stopped before its end: after all steps, while its result was evaluated. The written "
        "model is that of '{}'.",
        kept->method);
  return fmt::format(
      "This run was stopped before its end: in '{}', after step {}. The written model is the best one until "
      "then, that of {}; its result was not evaluated.",
      stage, t.steps_done, t.best_step > 0 ? fmt::format("step {}", t.best_step) : "before the first step");
}

void add_summary(HtmlPage& page, const CalibrationReport& r) {
  if (r.stopped_early) page.notice(told_stop(r));
  if (r.result) {
    const KlCut cut = kl_cut(r.initial, *r.result);
    page.paragraph(
        fmt::format("The distance to the original (KL) fell by {:.1f} % (+-{:.1f}) on {} positions that "
                    "no stage has seen.",
                    100.0 * cut.share, 100.0 * cut.error, r.result->positions));
  }
  std::vector<std::vector<std::string>> rows = {
      {"", "perplexity", "KL mean", "KL median", "KL p99", "same top token"},
      {"original", with_error(r.initial.teacher_perplexity, r.initial.teacher_perplexity_error, 3)}};
  rows.push_back(figures_row("plain rounding", r.initial));
  if (r.result) rows.push_back(figures_row("calibrated", *r.result));
  page.table(rows);
  page.paragraph(
      "KL is the mean over positions of KL(original || copy), full vocabulary, temperature 1. +- is the "
      "standard error.");
}

void add_stages(HtmlPage& page, const CalibrationReport& r) {
  std::vector<Bar> bars;
  for (const StageReport& s : r.stages) {
    if (s.kl)
      bars.push_back({s.method + (s.kept ? "" : ", not kept"), s.kept ? "after" : "plain", s.kl->mean,
                      s.kl->mean_error});
  }
  if (bars.empty()) return;
  bars.front().style = "before";
  page.heading("What each stage came to");
  page.chart(bar_chart(bars), "KL on the validation rows, which decide whether a stage is kept.");
}

void add_training(HtmlPage& page, const TrainReport& t) {
  if (t.losses.empty()) return;
  Curve losses{"loss of a step", "plain", {}, false}, validation{"validation", "after", {}};
  for (std::size_t i = 0; i < t.losses.size(); ++i)
    losses.points.push_back({static_cast<double>(i + 1), t.losses[i]});
  for (const ValidationPoint& v : t.validation)
    validation.points.push_back({static_cast<double>(v.step), v.loss});
  page.heading("Training");
  page.chart(curve_chart({.x = "step", .y = "loss"}, {losses, validation}),
             fmt::format("{}, {} tokens; the best state is that of step {}.", counted(t.steps_done, "step"),
                         t.tokens_seen, t.best_step));
}

// KL at shares of the positions, from the easiest to the hardest.
Curve percentiles(const char* name, const char* style, std::vector<float> kl,
                  const std::vector<double>& shares) {
  std::sort(kl.begin(), kl.end());
  Curve curve{name, style, {}};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto at = static_cast<std::size_t>(shares[i] / 100.0 * static_cast<double>(kl.size() - 1));
    curve.points.push_back({static_cast<double>(i), static_cast<double>(kl[at])});
  }
  return curve;
}

void add_distribution(HtmlPage& page, const CalibrationReport& r) {
  const std::vector<double> shares = {5, 10, 25, 50, 75, 90, 95, 99, 99.9};
  if (r.initial.by_position.kl.empty()) return;
  Axes axes{.x = "percentile of the positions", .y = "KL", .x_ticks = {}, .is_log_y = true};
  for (std::size_t i = 0; i < shares.size(); ++i)
    axes.x_ticks.push_back({static_cast<double>(i), fmt::format("{:g}", shares[i])});
  std::vector<Curve> curves = {percentiles("plain rounding", "before", r.initial.by_position.kl, shares)};
  if (r.result) curves.push_back(percentiles("calibrated", "after", r.result->by_position.kl, shares));
  page.heading("How the distance is spread");
  page.chart(curve_chart(axes, curves), "The hardest positions are on the right.");
}

void add_sources(HtmlPage& page, const CalibrationReport& r, const std::vector<RowGroup>& groups) {
  if (groups.size() < 2) return;
  std::vector<std::vector<std::string>> rows = {{"text", "rows", "plain rounding, KL", "calibrated, KL"}};
  std::size_t begin = 0;
  for (const RowGroup& g : groups) {
    const auto kl = [&](const Evaluation& e) {
      const Evaluation part = of_rows(e, begin, begin + g.rows);
      return with_error(part.kl->mean, part.kl->mean_error, 5);
    };
    if (g.rows > 0)
      rows.push_back({g.name, std::to_string(g.rows), kl(r.initial), r.result ? kl(*r.result) : ""});
    begin += g.rows;
  }
  page.heading("By text");
  page.table(rows);
}

void put(HeatMap& map, const std::string& row, std::size_t column, Cell cell) {
  auto found = std::find(map.rows.begin(), map.rows.end(), row);
  if (found == map.rows.end()) {
    map.rows.push_back(row);
    map.cells.emplace_back();
    found = map.rows.end() - 1;
  }
  auto& cells = map.cells[static_cast<std::size_t>(found - map.rows.begin())];
  if (cells.size() <= column) cells.resize(column + 1);
  cells[column] = std::move(cell);
}

// Bits in one colour, the stronger the more; float in the other.
Cell cell_of(const StoredAs& stored, const std::string& text) {
  if (!stored) return {1.0, "before", text};
  return {static_cast<double>(stored->bits) / 8.0, "after", text};
}

void add_bits(HtmlPage& page, const QuantizationPlan& plan) {
  HeatMap map{.rows = {}, .cells = {}, .columns = "layer", .legend = {}};
  std::map<std::string, std::pair<StoredAs, int>> formats;
  std::vector<std::vector<std::string>> others = {{"outside the layers", "stored as"}};
  for (const PlannedModule& m : plan.modules) {
    if (m.kind == TensorKind::vector) continue;
    const std::string name = stored_name(m.stored);
    auto& [format, count] = formats[name];
    format = m.stored;
    ++count;
    if (const auto layer = layer_of(m.path)) {
      put(map, name_in_layer(m.path), static_cast<std::size_t>(*layer),
          cell_of(m.stored, m.path + ": " + name));
    } else {
      others.push_back({m.path, name});
    }
  }
  for (const auto& [name, format] : formats)
    map.legend.push_back(cell_of(format.first, fmt::format("{}: {} matrices", name, format.second)));
  page.heading("Bits of each matrix");
  page.chart(heat_chart(map), "Each square is a matrix of a layer.");
  if (others.size() > 1) page.table(others);
}

// The worst parts of a list and all the others, whose shares are 100 % together.
void add_part_table(HtmlPage& page, const std::string& heading, std::vector<PartLoss> parts,
                    const CalibrationPage& p) {
  constexpr std::size_t kMost = 3;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const PartLoss& a, const PartLoss& b) { return a.kl.value > b.kl.value; });
  std::vector<std::vector<std::string>> rows = {
      {"part", "KL alone", "share", "takes", "for the next wider format"}};
  int left = 1000;  // thousandths of the list
  for (std::size_t i = 0; i < std::min(kMost, parts.size()); ++i) {
    const auto more = wider(parts[i].part, p.plan, p.storage);
    const auto share = static_cast<int>(std::lround(1000.0 * share_of(parts[i], parts)));
    left -= share;
    rows.push_back(
        {parts[i].part.name, with_error(parts[i].kl.value, parts[i].kl.error, digits_of(p.parts->kl.value)),
         fmt::format("{:.1f} %", share / 10.0),
         more ? "+" + format_bytes(static_cast<double>(more->bytes)) : "", more ? more->option : ""});
  }
  if (parts.size() > kMost && left < 1000)
    rows.push_back({fmt::format("{} more", parts.size() - kMost), "", fmt::format("{:.1f} %", left / 10.0)});
  page.table(rows, heading);
}

// Layers by their numbers, matrices by their names in the layer.
std::string label_of(const StudentPart& part) {
  return is_layer(part) ? std::to_string(*layer_of(part.name + ".")) : name_in_layer(part.name);
}

// What is no layer stands where it works, at the begin or the end.
std::string place_chart(const std::vector<PartLoss>& places, const PartLoss* worst) {
  std::vector<Bar> bars;
  for (const PartLoss& p : places) {
    const char* style = !is_layer(p.part) ? "plain" : &p == worst ? "before" : "after";
    bars.push_back({label_of(p.part), style, p.kl.value, p.kl.error});
  }
  return column_chart(
      {.x = "layer", .y = "KL of the part alone"}, bars,
      {{"layer", "after", {}}, {"worst layer", "before", {}}, {"embedding, output layer", "plain", {}}});
}

std::string part_chart(const std::vector<PartLoss>& parts) {
  std::vector<Bar> bars;
  for (const PartLoss& p : parts) bars.push_back({label_of(p.part), "after", p.kl.value, p.kl.error});
  return bar_chart(bars);
}

void add_parts(HtmlPage& page, const CalibrationPage& p) {
  page.heading("Where the loss sits");
  if (p.parts == nullptr) {
    page.paragraph(
        "Not measured: the run was stopped, or the output layer is stored in another way than the embedding "
        "that it "
        "is.");
    return;
  }
  const KlByPart& found = *p.parts;
  const PartLoss* worst = worst_of(found.places, is_layer);
  page.paragraph(
      fmt::format("The KL that each part of the copy causes alone, put into the original: on {} positions of "
                  "the validation "
                  "rows, where all parts together cause {}. Matrices that learned together make up for each "
                  "other's errors, so "
                  "that alone they cost more.",
                  found.positions, with_error(found.kl.value, found.kl.error, digits_of(found.kl.value))));
  page.chart(place_chart(found.places, worst), "By layer, all its matrices together.");
  page.chart(part_chart(found.kinds), "By kind, in all layers together.");
  if (worst != nullptr && found.modules.size() > 1)
    page.chart(part_chart(found.modules), "The matrices of " + worst->part.name + ".");
  add_part_table(page, "By layer", found.places, p);
  add_part_table(page, "By kind", found.kinds, p);
  if (worst != nullptr && found.modules.size() > 1)
    add_part_table(page, "The matrices of " + worst->part.name, found.modules, p);
}

void add_experts(HtmlPage& page, const TrainReport& t) {
  std::vector<double> tokens;
  for (const auto& [layer, seen] : t.expert_tokens) {
    for (const std::int64_t n : seen) tokens.push_back(static_cast<double>(n));
  }
  if (tokens.empty()) return;
  std::sort(tokens.rbegin(), tokens.rend());
  Curve curve{"", "after", {}};
  const std::size_t step = std::max<std::size_t>(1, tokens.size() / 400);
  for (std::size_t i = 0; i < tokens.size(); i += step)
    curve.points.push_back({static_cast<double>(i), tokens[i]});
  const auto unseen = std::count(tokens.begin(), tokens.end(), 0.0);
  page.heading("Experts");
  page.chart(curve_chart({.x = "experts, from the busiest on", .y = "tokens seen in training"}, {curve}),
             fmt::format("{} experts in {}; {} saw no token.", tokens.size(),
                         counted(t.expert_tokens.size(), "layer"), unseen));
}

// The report's positions with the largest KL, at most two of a row.
struct Worst {
  std::size_t position, row, target;  // `target`: the token's place in its row
};
std::vector<Worst> worst_positions(const PositionFigures& f) {
  constexpr std::size_t kMost = 12, kOfARow = 2;
  std::vector<std::size_t> order(f.kl.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::size_t considered = std::min<std::size_t>(order.size(), 1000);
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(considered), order.end(),
      [&](std::size_t a, std::size_t b) { return f.kl[a] != f.kl[b] ? f.kl[a] > f.kl[b] : a < b; });
  std::vector<Worst> found;
  std::map<std::size_t, std::size_t> taken;  // of a row
  for (std::size_t i = 0; i < considered && found.size() < kMost; ++i) {
    const auto row = static_cast<std::size_t>(
        std::upper_bound(f.row_ends.begin(), f.row_ends.end(), order[i]) - f.row_ends.begin());
    if (taken[row]++ >= kOfARow) continue;
    found.push_back({order[i], row, order[i] - (row == 0 ? 0 : f.row_ends[row - 1]) + 1});
  }
  return found;
}

void add_examples(HtmlPage& page, const CalibrationPage& p) {
  constexpr std::size_t kContext = 30;  // tokens
  const Evaluation& e = p.report.result ? *p.report.result : p.report.initial;
  const PositionFigures& f = e.by_position;
  if (f.kl.empty() || f.row_ends.size() != p.data.report.size()) return;
  std::string examples;
  for (const Worst& w : worst_positions(f)) {
    const TokenRow& row = p.data.report[w.row];
    if (w.target >= row.size()) return;
    const std::size_t begin = w.target > kContext ? w.target - kContext : 0;
    const std::span<const std::uint32_t> all(row);
    const auto text = [&](std::size_t from, std::size_t to) {
      return html_text(p.tokenizer.decode(all.subspan(from, to - from), false));
    };
    const auto percent = [](float nll) {
      return fmt::format("{:.1f} %", 100.0 * std::exp(-static_cast<double>(nll)));
    };
    examples += fmt::format(
        "<div class=\"example\"><span class=\"faint\">KL {:.3g}; original {}, copy {}</span>\n"
        "<pre>{}<mark>{}</mark></pre></div>\n",
        f.kl[w.position], percent(f.teacher_nll[w.position]), percent(f.nll[w.position]),
        text(begin, w.target), text(w.target, w.target + 1));
  }
  page.heading("Where original and copy differ most");
  page.paragraph("The text's own next token is marked; original and copy say how probable each holds it.");
  page.raw(examples);
}

}  // namespace

std::string CalibrationPage::html() const {
  HtmlPage page(out, fmt::format("{} at {:.3f} bits per weight, calibrated by mixtape {}", model,
                                 bits_per_weight, version));
  add_summary(page, report);
  add_stages(page, report);
  add_training(page, report.training);
  add_distribution(page, report);
  add_sources(page, report, data.report_groups);
  add_parts(page, *this);
  add_bits(page, plan);
  add_experts(page, report.training);
  add_examples(page, *this);
  return page.text();
}

}  // namespace mixtape::cli
