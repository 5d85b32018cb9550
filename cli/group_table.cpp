#include "cli/group_table.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/evaluation_table.h"
#include "cli/json_report.h"
#include "cli/quote.h"
#include "cli/text_table.h"

namespace mixtape::cli {
namespace {

// fn(group, first row, row after the last)
template <class Fn>
void for_each_group(const std::vector<RowGroup>& groups, const Fn& fn) {
  std::size_t begin = 0;
  for (const RowGroup& group : groups) {
    fn(group, begin, begin + group.rows);
    begin += group.rows;
  }
}

std::string kl_text(const Evaluation& e) { return with_error(e.kl->mean, e.kl->mean_error, 5); }

}  // namespace

void print_groups(const std::vector<RowGroup>& groups, const Evaluation& before, const Evaluation* after) {
  if (groups.size() < 2) return;
  std::vector<TableColumn> columns = {{"report rows of", 16}, {"rows", 5}, {"ppl", 9}, {"KL before", 18}};
  if (after) columns.insert(columns.end(), {{"KL after", 18}, {"KL cut", 13}});
  const TextTable table(columns);
  fmt::print("\n");
  table.print_header();
  for_each_group(groups, [&](const RowGroup& group, std::size_t begin, std::size_t end) {
    const std::string name = printable(std::filesystem::path(group.name).filename());
    const Evaluation b = of_rows(before, begin, end);
    std::vector<std::string> cells = {name.size() > 15 ? name.substr(0, 12) + "..." : name,
                                      std::to_string(group.rows), fmt::format("{:.3f}", b.teacher_perplexity),
                                      kl_text(b)};
    if (after) {
      const Evaluation a = of_rows(*after, begin, end);
      const KlCut cut = kl_cut(b, a);
      cells.insert(cells.end(),
                   {kl_text(a), fmt::format("{:.1f} % +-{:.1f}", 100.0 * cut.share, 100.0 * cut.error)});
    }
    table.print_row(cells);
  });
}

void print_group_perplexities(const std::vector<RowGroup>& groups, const Evaluation& e) {
  if (groups.size() < 2) return;
  for_each_group(groups, [&](const RowGroup& group, std::size_t begin, std::size_t end) {
    const Evaluation part = of_rows(e, begin, end);
    fmt::print("  {}: {}\n", printable(group.name), with_error(part.perplexity, part.perplexity_error, 3));
  });
}

nlohmann::json group_figures(const std::vector<RowGroup>& groups, const Evaluation& before,
                             const Evaluation* after) {
  nlohmann::json list = nlohmann::json::array();
  for_each_group(groups, [&](const RowGroup& group, std::size_t begin, std::size_t end) {
    const Evaluation b = of_rows(before, begin, end);
    nlohmann::json json = {{"name", group.name}, {"rows", group.rows}, {"initial", to_json(b)}};
    if (after) {
      const Evaluation a = of_rows(*after, begin, end);
      const KlCut cut = kl_cut(b, a);
      json["result"] = to_json(a);
      json["kl_cut"] = to_json(Estimate{cut.share, cut.error});
    }
    list.push_back(json);
  });
  return list;
}

}  // namespace mixtape::cli
