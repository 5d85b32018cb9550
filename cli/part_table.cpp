#include "cli/part_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/text_table.h"
#include "mixtape/calib/sensitivity.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape::cli {
namespace {

// The format of all of them, if it is one.
std::optional<WeightFormat> common_format(const StudentPart& part, const QuantizationPlan& plan) {
  const StoredAs first = plan.find(part.modules.front())->stored;
  const bool is_one = std::all_of(part.modules.begin(), part.modules.end(),
                                  [&](const std::string& path) { return plan.find(path)->stored == first; });
  return is_one ? first : std::nullopt;
}

std::int64_t bytes_of(const StudentPart& part, const QuantizationPlan& plan, const WeightFormat& format,
                      DType storage) {
  std::int64_t bytes = 0;
  for (const std::string& path : part.modules)
    bytes += codec_of(format).stored_bytes(plan.find(path)->shape, format, storage);
  return bytes;
}

// Of the formats that a file of the same kind may have: more bits in the same groups, or the next larger type.
std::optional<WeightFormat> next_wider(const StudentPart& part, const QuantizationPlan& plan,
                                       const WeightFormat& format, DType storage) {
  const std::int64_t cols = plan.find(part.modules.front())->shape.cols();
  std::optional<WeightFormat> next;
  for (const WeightFormat& f : candidate_formats(cols, format.is_blocks())) {
    const bool is_wider = format.is_blocks()
                              ? bytes_of(part, plan, f, storage) > bytes_of(part, plan, format, storage)
                              : f.group_size == format.group_size && f.bits > format.bits;
    if (is_wider && (!next || bytes_of(part, plan, f, storage) < bytes_of(part, plan, *next, storage)))
      next = f;
  }
  return next;
}

std::string pattern_of(const StudentPart& part) {
  if (part.name == part.modules.front()) return part.name;
  return is_layer(part) ? part.name + ".*" : "*." + part.name;
}

std::string width_of(const WeightFormat& format) {
  if (!format.is_blocks()) return std::to_string(format.bits);
  std::string name = format.name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

nlohmann::json kl_json(Estimate kl) { return {{"mean", kl.value}, {"mean_error", kl.error}}; }

nlohmann::json part_json(const PartLoss& p, const std::vector<PartLoss>& all, const QuantizationPlan& plan,
                         DType storage) {
  nlohmann::json json = {{"name", p.part.name}, {"kl", kl_json(p.kl)}, {"share", share_of(p, all)}};
  if (const auto more = wider(p.part, plan, storage))
    json["wider"] = {{"option", more->option}, {"bytes", more->bytes}};
  return json;
}

}  // namespace

std::optional<KlByPart> measured_parts(const Teacher& teacher, const Student& student,
                                       const QuantizationPlan& plan, DType storage,
                                       std::span<const TokenRow> rows, std::int64_t batch_size,
                                       bool is_written_on_stop, const RunHooks& hooks) {
  if (rows.empty() || plan.unties_embeddings) return std::nullopt;
  try {
    return measure_kl_by_part(teacher, student, plan, storage, rows, batch_size, hooks);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted || !is_written_on_stop) throw;
    return std::nullopt;
  }
}

std::optional<WiderPart> wider(const StudentPart& part, const QuantizationPlan& plan, DType storage) {
  const std::optional<WeightFormat> now = common_format(part, plan);
  const std::optional<WeightFormat> next = now ? next_wider(part, plan, *now, storage) : std::nullopt;
  if (!next) return std::nullopt;
  return WiderPart{fmt::format("--bits-for '{}={}'", pattern_of(part), width_of(*next)),
                   bytes_of(part, plan, *next, storage) - bytes_of(part, plan, *now, storage)};
}

double share_of(const PartLoss& part, const std::vector<PartLoss>& all) {
  double sum = 0.0;
  for (const PartLoss& p : all) sum += p.kl.value;
  return sum > 0.0 ? part.kl.value / sum : 0.0;
}

void print_worst(const KlByPart& found, const QuantizationPlan& plan, DType storage) {
  const PartLoss* place = worst_of(found.places);
  if (place == nullptr || found.kl.value <= 0.0) return;
  std::string text = fmt::format("{}, {:.0f} % of what the parts lose", place->part.name,
                                 100.0 * share_of(*place, found.places));
  const PartLoss* module = worst_of(found.modules);
  if (is_layer(place->part) && module != nullptr)
    text += fmt::format("; in it {}, {:.0f} %", name_in_layer(module->part.name),
                        100.0 * share_of(*module, found.modules));
  print_fact("worst", "{}", text);
  if (const auto more = wider(place->part, plan, storage))
    print_fact("", "{} takes {} more", more->option, format_bytes(static_cast<double>(more->bytes)));
}

nlohmann::json part_figures(const KlByPart& found, const QuantizationPlan& plan, DType storage) {
  nlohmann::json json = {{"positions", found.positions}, {"kl", kl_json(found.kl)}};
  for (const auto& [name, parts] : {std::pair("places", &found.places), std::pair("kinds", &found.kinds),
                                    std::pair("modules", &found.modules)}) {
    json[name] = nlohmann::json::array();
    for (const PartLoss& p : *parts) json[name].push_back(part_json(p, *parts, plan, storage));
  }
  return json;
}

}  // namespace mixtape::cli
