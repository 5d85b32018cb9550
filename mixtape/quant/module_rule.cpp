#include "mixtape/quant/module_rule.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "mixtape/core/error.h"
#include "mixtape/core/glob.h"
#include "mixtape/quant/weight_format.h"

namespace mixtape {
namespace {

constexpr const char* kForm = ", expected GLOB=BITS, GLOB=BITS:GROUP, GLOB=float or GLOB=q4_k";

// Nothing for what is no whole number.
std::optional<std::int32_t> number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

struct Candidate {
  std::string path;
  bool is_router;
};

std::vector<Candidate> candidates_of(const std::vector<ModelTensor>& tensors, bool tied) {
  std::vector<Candidate> all;
  for (const ModelTensor& t : tensors) {
    if (t.kind != TensorKind::vector) all.push_back({module_path(t.name), t.kind == TensorKind::router});
  }
  if (tied) all.push_back({"lm_head", false});
  return all;
}

}  // namespace

ModuleRule ModuleRule::parse(const std::string& text, const std::string& where) {
  const std::size_t equals = text.rfind('=');
  require(equals != text.npos && equals > 0, where, " is '", text, "'", kForm);
  ModuleRule rule{.pattern = text.substr(0, equals)};
  const std::string value = text.substr(equals + 1);
  rule.block = block_type_of(value);
  if (value == "float" || rule.block != BlockType::none) return rule;
  const std::size_t colon = value.find(':');
  const auto bits = number(std::string_view(value).substr(0, colon));
  const auto group = colon == value.npos ? 64 : number(std::string_view(value).substr(colon + 1));
  require(bits && group, where, " is '", text, "'", kForm);
  WeightFormat(*bits, *group).check(where + " '" + text + "'");
  rule.bits = *bits;
  if (colon != value.npos) rule.group_size = *group;
  return rule;
}

std::vector<std::string> matched_modules(const ModuleRule& rule, const std::vector<ModelTensor>& tensors,
                                         bool tied, const std::string& model) {
  const std::vector<Candidate> all = candidates_of(tensors, tied);
  const auto distance = [&](const Candidate& c) { return glob_distance(rule.pattern, c.path); };
  std::vector<std::string> matrices, routers;
  for (const Candidate& c : all) {
    if (distance(c) == 0) (c.is_router ? routers : matrices).push_back(c.path);
  }
  if (!matrices.empty()) return matrices;
  if (!routers.empty()) return routers;
  require(!all.empty(), "bits for '", rule.pattern, "': ", model, " has no matrix");
  // A last part alone, as "down_proj", is near to what it is the end of.
  const auto changes = [&](const Candidate& c) {
    return std::min(distance(c), 1 + glob_distance("*." + rule.pattern, c.path));
  };
  const auto nearest = std::min_element(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    return changes(a) < changes(b);
  });
  fail(ErrorCode::invalid_argument, "bits for '", rule.pattern, "': matches no matrix of ", model,
       ", the nearest is '", nearest->path, "'");
}

}  // namespace mixtape
