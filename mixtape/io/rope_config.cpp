#include "mixtape/io/rope_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "mixtape/io/config_reader.h"

namespace mixtape {
namespace {

using nlohmann::json;

RopeType rope_type_of(const ConfigReader& in) {
  if (!in.has("rope_type")) {
    if (in.has("factor")) in.bad("rope settings have a factor but no rope_type");
    return RopeType::plain;
  }
  const std::string type = in.text("rope_type");
  for (const auto t : {RopeType::plain, RopeType::linear, RopeType::llama3}) {
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

// All rotary settings under their newer names, wherever the file keeps them.
json merged_rope(const ConfigReader& in) {
  json merged = json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* nested = in.find(key);
    if (nested == nullptr) continue;
    if (!nested->is_object()) in.bad(key, " is ", nested->dump(), ", expected an object");
    merge_rope(merged, *nested, in);
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (const json* value = in.find(key)) merge_rope(merged, json{{key, *value}}, in);
  }
  return merged;
}

// The frequency of one pair, before it is rounded to f32.
double scaled_frequency(double frequency, const RopeConfig& rope) {
  if (rope.type == RopeType::plain) return frequency;
  if (rope.type == RopeType::linear) return frequency / rope.factor;
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < length / rope.high_freq_factor) return frequency;
  if (wavelength > length / rope.low_freq_factor) return frequency / rope.factor;
  const double s =
      (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - s) * frequency / rope.factor + s * frequency;
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
  }
  return "unknown";
}

RopeConfig read_rope(const ConfigReader& config, double theta) {
  const json merged = merged_rope(config);
  const ConfigReader in(merged, config.where());
  RopeConfig rope;
  rope.type = rope_type_of(in);
  rope.theta = in.positive("rope_theta", theta);
  rope.partial_rotary_factor = in.positive("partial_rotary_factor", 1.0);
  if (rope.type != RopeType::plain) rope.factor = in.positive("factor");
  if (rope.type != RopeType::llama3) return rope;
  rope.low_freq_factor = in.positive("low_freq_factor");
  rope.high_freq_factor = in.positive("high_freq_factor");
  rope.original_max_position_embeddings = in.size("original_max_position_embeddings");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    in.bad("high_freq_factor is ", rope.high_freq_factor, ", expected more than low_freq_factor ",
           rope.low_freq_factor);
  }
  return rope;
}

json rope_scaling_of(const RopeConfig& rope) {
  if (rope.type == RopeType::plain) return nullptr;
  json scaling = {{"type", name(rope.type)}, {"rope_type", name(rope.type)}, {"factor", rope.factor}};
  if (rope.type == RopeType::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  return scaling;
}

std::int64_t RopeConfig::rotary_dims(std::int64_t head_dim) const {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  const std::int64_t dims = rope.rotary_dims(head_dim);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    frequencies.push_back(static_cast<float>(scaled_frequency(std::pow(rope.theta, exponent), rope)));
  }
  return frequencies;
}

}  // namespace mixtape
