#include "mixtape/io/rope_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/io/config_reader.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr const char* kOriginalLength = "original_max_position_embeddings";
constexpr RopeType kRopeTypes[] = {RopeType::plain, RopeType::linear,   RopeType::llama3,
                                   RopeType::yarn,  RopeType::longrope, RopeType::dynamic};

RopeType rope_type_of(const ConfigReader& in) {
  if (!in.has("rope_type")) {
    if (in.has("factor")) in.bad("rope settings have a factor but no rope_type");
    return RopeType::plain;
  }
  const std::string type = in.text("rope_type");
  if (type == "su") return RopeType::longrope;  // its older name
  for (const RopeType t : kRopeTypes) {
    if (type == name(t)) return t;
  }
  in.unsupported("rope type '", type, "'");
}

// Adds `from`'s entries; the same setting may be spelled in several places but not differently.
void merge_rope(json& into, const json& from, const ConfigReader& in) {
  for (const auto& [key, value] : from.items()) {
    if (value.is_null()) continue;
    const std::string setting = key == "type" ? "rope_type" : key;
    if (into.contains(setting) && into[setting] != value) {
      in.bad("rope setting ", setting, " is both ", into[setting].dump(), " and ", value.dump());
    }
    into[setting] = value;
  }
}

void refuse_unknown_settings(const json& settings, const ConfigReader& in) {
  static const std::set<std::string> known = {
      "attention_factor", "beta_fast",       "beta_slow",    "factor",        "high_freq_factor",
      "long_factor",      "low_freq_factor", "mscale",       kOriginalLength, "mscale_all_dim",
      "rope_theta",       "rope_type",       "short_factor", "type",          "partial_rotary_factor",
      "truncate"};
  for (const auto& [key, value] : settings.items()) {
    if (!value.is_null() && !known.contains(key))
      in.unsupported("rope setting '", key, "' may change the model and");
  }
}

// All rotary settings under their newer names, wherever the file keeps them.
json merged_rope(const ConfigReader& in) {
  json merged = json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* nested = in.find(key);
    if (nested == nullptr) continue;
    if (!nested->is_object()) in.bad(key, " is ", nested->dump(), ", expected an object");
    refuse_unknown_settings(*nested, in);
    merge_rope(merged, *nested, in);
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor", kOriginalLength}) {
    if (const json* value = in.find(key)) merge_rope(merged, json{{key, *value}}, in);
  }
  return merged;
}

void read_llama3(const ConfigReader& in, RopeConfig& rope) {
  rope.low_freq_factor = in.positive("low_freq_factor");
  rope.high_freq_factor = in.positive("high_freq_factor");
  rope.original_max_position_embeddings = in.size(kOriginalLength);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    in.bad("high_freq_factor is ", rope.high_freq_factor, ", expected more than low_freq_factor ",
           rope.low_freq_factor);
  }
}

std::int64_t read_original(const ConfigReader& in, std::int64_t positions) {
  return positions > 0 ? in.size(kOriginalLength, positions) : in.size(kOriginalLength);
}

// The ratio of two multiples of the usual logarithm, where both are there and not 0.
double default_of_yarn(const ConfigReader& in, double factor) {
  const auto is_set = [&](const char* key) { return in.has(key) && in.at(key) != 0; };
  if (!is_set("mscale") || !is_set("mscale_all_dim")) return yarn_attention_factor(factor);
  const double usual = yarn_attention_factor(factor) - 1.0;
  return (1.0 + in.positive("mscale") * usual) / (1.0 + in.positive("mscale_all_dim") * usual);
}

void read_yarn(const ConfigReader& in, std::int64_t positions, RopeConfig& rope) {
  rope.original_max_position_embeddings = read_original(in, positions);
  rope.beta_fast = in.positive("beta_fast", rope.beta_fast);
  rope.beta_slow = in.positive("beta_slow", rope.beta_slow);
  rope.truncate = in.boolean("truncate", true);
  if (rope.beta_fast < rope.beta_slow)
    in.bad("beta_fast is ", rope.beta_fast, ", expected beta_slow ", rope.beta_slow, " or more");
  if (rope.theta <= 1.0) in.bad("rope_theta is ", rope.theta, ", expected more than 1");
  const bool says = in.has("attention_factor");
  rope.attention_factor = says ? in.positive("attention_factor") : default_of_yarn(in, rope.factor);
}

std::vector<double> read_divisors(const ConfigReader& in, const char* key) {
  const json& list = in.at(key);
  if (!list.is_array()) in.bad(key, " is ", list.dump(), ", expected a list of numbers");
  std::vector<double> divisors;
  for (const json& value : list) {
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0.0 && std::isfinite(number)))
      in.bad(key, " holds ", value.dump(), ", expected numbers above 0");
    divisors.push_back(number);
  }
  return divisors;
}

void read_longrope(const ConfigReader& in, std::int64_t positions, RopeConfig& rope) {
  rope.original_max_position_embeddings = read_original(in, positions);
  rope.short_factor = read_divisors(in, "short_factor");
  rope.long_factor = read_divisors(in, "long_factor");
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  if (original < 2.0) in.bad(kOriginalLength, " is 1, expected 2 or more");
  if (in.has("attention_factor")) {
    rope.attention_factor = in.positive("attention_factor");
    return;
  }
  if (!in.has("factor") && positions == 0) {
    in.bad(
        "has neither attention_factor, factor nor max_position_embeddings, expected one of them for "
        "longrope");
  }
  const double length = in.has("factor") ? in.positive("factor") * original : static_cast<double>(positions);
  rope.attention_factor = longrope_attention_factor(length, original);
}

// Settings of an original length had another meaning in older files.
void read_dynamic(const ConfigReader& in, std::int64_t positions, RopeConfig& rope) {
  if (positions == 0) in.bad("lacks max_position_embeddings, expected it for dynamic");
  if (in.size(kOriginalLength, positions) != positions)
    in.unsupported(kOriginalLength, " of dynamic that is not max_position_embeddings");
  rope.original_max_position_embeddings = positions;
}

// mlx-lm takes yarn's attention factor as a multiple of the usual logarithm.
void add_yarn(const RopeConfig& rope, json& scaling) {
  scaling["beta_fast"] = rope.beta_fast;
  scaling["beta_slow"] = rope.beta_slow;
  scaling["attention_factor"] = rope.attention_factor;
  if (!rope.truncate) scaling["truncate"] = false;
  const double usual = yarn_attention_factor(rope.factor);
  if (rope.attention_factor != usual && usual > 1.0)
    scaling["mscale"] = (rope.attention_factor - 1.0) / (usual - 1.0);
}

}  // namespace

const char* name(RopeType type) {
  switch (type) {
    case RopeType::plain:
      return "default";
    case RopeType::linear:
      return "linear";
    case RopeType::llama3:
      return "llama3";
    case RopeType::yarn:
      return "yarn";
    case RopeType::longrope:
      return "longrope";
    case RopeType::dynamic:
      return "dynamic";
  }
  return "unknown";
}

bool RopeConfig::allows(std::int64_t length) const {
  return type != RopeType::dynamic || length <= original_max_position_embeddings;
}

void RopeConfig::check_length(std::int64_t length) const {
  if (allows(length)) return;
  fail(ErrorCode::not_supported, "model: a sequence of ", length, " tokens, with rope type dynamic expected ",
       original_max_position_embeddings, " (max_position_embeddings) or fewer");
}

RopeConfig read_rope(const ConfigReader& config, double theta) {
  const json merged = merged_rope(config);
  const ConfigReader in(merged, config.where());
  const std::int64_t positions = config.size("max_position_embeddings", 0);
  RopeConfig rope;
  rope.type = rope_type_of(in);
  rope.theta = in.positive("rope_theta", theta);
  rope.partial_rotary_factor = in.positive("partial_rotary_factor", 1.0);
  if (rope.type != RopeType::plain && rope.type != RopeType::longrope) rope.factor = in.positive("factor");
  if (rope.type == RopeType::llama3) read_llama3(in, rope);
  if (rope.type == RopeType::yarn) read_yarn(in, positions, rope);
  if (rope.type == RopeType::longrope) read_longrope(in, positions, rope);
  if (rope.type == RopeType::dynamic) read_dynamic(in, positions, rope);
  return rope;
}

void check_rope(const ConfigReader& config, const RopeConfig& rope, std::int64_t head_dim) {
  const std::int64_t dims = rope.rotary_dims(head_dim);
  if (rope.partial_rotary_factor > 1.0 || dims < 2 || dims % 2 != 0) {
    config.bad("partial_rotary_factor is ", rope.partial_rotary_factor, ", of head_dim ", head_dim,
               " it rotates ", dims, ", expected an even number from 2 to head_dim");
  }
  if (rope.type != RopeType::longrope) return;
  const auto check = [&](const char* key, const std::vector<double>& divisors) {
    if (std::ssize(divisors) == dims / 2) return;
    config.bad(key, " holds ", divisors.size(), " numbers, expected ", dims / 2,
               ", one for each pair of dimensions");
  };
  check("short_factor", rope.short_factor);
  check("long_factor", rope.long_factor);
}

json rope_scaling_of(const RopeConfig& rope) {
  if (rope.type == RopeType::plain) return nullptr;
  json scaling = {{"type", name(rope.type)}, {"rope_type", name(rope.type)}};
  if (rope.type != RopeType::longrope) scaling["factor"] = rope.factor;
  if (rope.type == RopeType::linear || rope.type == RopeType::dynamic) return scaling;
  scaling[kOriginalLength] = rope.original_max_position_embeddings;
  if (rope.type == RopeType::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  } else if (rope.type == RopeType::yarn) {
    add_yarn(rope, scaling);
  } else {
    scaling["short_factor"] = rope.short_factor;
    scaling["long_factor"] = rope.long_factor;
    scaling["attention_factor"] = rope.attention_factor;
  }
  return scaling;
}

}  // namespace mixtape
