#include "cli/plan_table.h"

#include <fmt/core.h>

#include <map>

#include "cli/quantize_options.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape::cli {
namespace {

// "0-3,7" for 0, 1, 2, 3, 7.
std::string ranges(const std::vector<std::int64_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t first = layers[i];
    while (i + 1 < layers.size() && layers[i + 1] == layers[i] + 1) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (layers[i] > first) text += fmt::format("-{}", layers[i]);
  }
  return text;
}

// What stands before and behind the layer's number; nothing before it for a module of no layer.
struct Around {
  std::string before, behind;
};
Around around_layer(const std::string& path) {
  const auto layer = layer_of(path);
  if (!layer) return {"", path};
  const std::string number = fmt::format(".{}.", *layer);
  const std::size_t at = path.find(number);
  return {path.substr(0, at + 1), path.substr(at + number.size() - 1)};
}

std::string path_of(const PlanRow& row) {
  std::vector<std::int64_t> layers;
  for (const PlannedModule* m : row.modules) {
    if (const auto layer = layer_of(m->path)) layers.push_back(*layer);
  }
  const auto [before, behind] = around_layer(row.modules.front()->path);
  return before + ranges(layers) + behind;
}

}  // namespace

std::vector<PlanRow> plan_rows(const std::vector<const PlannedModule*>& modules) {
  std::vector<PlanRow> rows;
  std::map<std::string, std::size_t> known;
  for (const PlannedModule* m : modules) {
    const std::string kind = fmt::format("{} {} {} {}", around_layer(m->path).behind, str(m->shape),
                                         stored_name(m->stored), m->reason);
    const auto [found, is_new] = known.emplace(kind, rows.size());
    if (is_new) rows.emplace_back();
    rows[found->second].modules.push_back(m);
  }
  for (PlanRow& row : rows) row.path = path_of(row);
  return rows;
}

}  // namespace mixtape::cli
