#include "mixtape/io/expert_names.h"

#include <charconv>
#include <string_view>

namespace mixtape {
namespace {

constexpr std::string_view kExperts = ".mlp.experts.";

bool is_projection(std::string_view rest) {
  return rest.starts_with("gate_proj.") || rest.starts_with("up_proj.") || rest.starts_with("down_proj.");
}

}  // namespace

ExpertName parse_expert_name(const std::string& name) {
  using Kind = ExpertName::Kind;
  const std::size_t at = name.find(kExperts);
  if (at == std::string::npos) return {};
  const std::string mlp = name.substr(0, at) + ".mlp.switch_mlp.";
  const std::string_view rest = std::string_view(name).substr(at + kExperts.size());
  if (rest == "gate_up_proj") return {Kind::gate_up, mlp, 0};
  if (rest == "down_proj") return {Kind::stacked, mlp + "down_proj.weight", 0};

  std::int64_t expert = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  const std::string_view tail = rest.substr(static_cast<std::size_t>(end - rest.data()));
  const bool numbered = error == std::errc() && expert >= 0 && tail.starts_with('.');
  if (!numbered || !is_projection(tail.substr(1))) return {};
  return {Kind::single, mlp + std::string(tail.substr(1)), expert};
}

}  // namespace mixtape
