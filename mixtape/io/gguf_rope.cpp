#include "mixtape/io/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "mixtape/io/architecture.h"
#include "mixtape/io/gguf_blocks.h"
#include "mixtape/io/gguf_keys.h"
#include "mixtape/io/gguf_values.h"
#include "mixtape/io/model_config.h"

namespace mixtape {
namespace {

using gguf_key::kContext;
using gguf_key::kTheta;
using nlohmann::json;

// How many dimensions of a head are rotated, which config.json has as a part of them.
constexpr std::string_view kRotaryDims = "rope.dimension_count";
constexpr std::string_view kSections = "rope.dimension_sections";  // of positions that are alike in text
// Of scaling, which config.json has as an object.
constexpr std::string_view kScalingType = "rope.scaling.type", kScalingFactor = "rope.scaling.factor",
                           kScalingOriginal = "rope.scaling.original_context_length",
                           kScalingAttention = "rope.scaling.attn_factor",
                           kYarnBetaFast = "rope.scaling.yarn_beta_fast",
                           kYarnBetaSlow = "rope.scaling.yarn_beta_slow", kScaleLinear = "rope.scale_linear",
                           kScalingFinetuned = "rope.scaling.finetuned";
constexpr const char *kRopeFreqs = "rope_freqs.weight", *kRopeShort = "rope_factors_short.weight",
                     *kRopeLong = "rope_factors_long.weight";
constexpr double kYarnFast = 32, kYarnSlow = 1;  // llama.cpp's only bounds of yarn
constexpr std::int64_t kMaxOriginal = 1 << 30;

// The least number that RopeConfig::rotary_dims makes `dims` of.
double rotated_part(std::int64_t dims, std::int64_t head_dim) {
  RopeConfig rope;
  rope.partial_rotary_factor = static_cast<double>(dims) / static_cast<double>(head_dim);
  if (rope.rotary_dims(head_dim) == dims) return rope.partial_rotary_factor;
  return std::nextafter(rope.partial_rotary_factor, 1.0);
}

std::int64_t rotary_dims(const GgufKeys& keys, const GgufArchitecture* written, std::int64_t head_dim) {
  const std::int64_t found = keys.positive(kRotaryDims, head_dim);
  if (found != head_dim && (written == nullptr || !written->has_partial_rope))
    keys.fail_value(kRotaryDims, found, str("the head size ", head_dim));
  if (found > head_dim || found % 2 != 0)
    keys.fail_value(kRotaryDims, found, str("an even number up to the head size ", head_dim));
  return found;
}

std::vector<float> read_divisors(const GgufKeys& keys, const char* name, std::int64_t pairs) {
  const GgufTensor* tensor = keys.file.find_tensor(name);
  if (tensor == nullptr) fail(ErrorCode::format, keys.file.where(), ": lacks tensor '", name, "'");
  if (tensor->shape != Shape{pairs} || tensor->type != GgufType::f32) {
    fail(ErrorCode::format, keys.file.where(), ": tensor '", name, "' is ", tensor->type, " ", tensor->shape,
         ", expected F32 ", Shape{pairs});
  }
  std::vector<float> divisors(static_cast<std::size_t>(pairs));
  decode_gguf_blocks(tensor->type, tensor->bytes, divisors);
  return divisors;
}

// What the llama3 rule divides the frequency of pair i by, in f64.
double llama3_divisor(double theta, std::int64_t dim, std::int64_t i, double factor, double original_length) {
  constexpr double kLow = 1, kHigh = 4;
  const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  const double turns = original_length * frequency / (2 * std::numbers::pi);
  const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
  return 1 / ((1 - smooth) / factor + smooth);
}

// rope_freqs.weight holds only the divisors: accepted when the llama3 rule gives the same ones.
json llama3_scaling(const GgufKeys& keys, double theta, std::int64_t dim) {
  const std::vector<float> divisors = read_divisors(keys, kRopeFreqs, dim / 2);
  const double factor = static_cast<double>(divisors.back());
  const std::int64_t length = keys.positive(kScalingOriginal, 8192, kMaxOriginal);
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double wanted = llama3_divisor(theta, dim, i, factor, static_cast<double>(length));
    const double found = static_cast<double>(divisors[static_cast<std::size_t>(i)]);
    if (!(std::abs(found - wanted) <= 1e-5 * wanted)) {
      fail(ErrorCode::not_supported, keys.file.where(), ": rope_freqs.weight[", i, "] is ", found,
           ", expected ", wanted, ": only the llama3 rule with frequency factors 1 and 4 is supported");
    }
  }
  if (factor == 1) return nullptr;
  return {{"rope_type", "llama3"},  {"type", "llama3"},        {"factor", factor},
          {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", length}};
}

std::int64_t original_length(const GgufKeys& keys) {
  return keys.positive(kScalingOriginal, keys.positive(kContext.key, 0, kMaxOriginal), kMaxOriginal);
}

// llama.cpp multiplies yarn's usual attention factor by the file's.
json yarn_scaling(const GgufKeys& keys) {
  const auto check = [&](std::string_view key, double wanted) {
    if (keys.has(key) && keys.number(key) != wanted)
      fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full(key), "' is ", keys.number(key),
           ", which llama.cpp does not read: expected ", wanted);
  };
  check(kYarnBetaFast, kYarnFast);
  check(kYarnBetaSlow, kYarnSlow);
  const double factor = keys.number(kScalingFactor);
  json scaling = {{"rope_type", "yarn"},
                  {"type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings", original_length(keys)}};
  if (keys.has(kScalingAttention))
    scaling["attention_factor"] = yarn_attention_factor(factor) * keys.number(kScalingAttention);
  return scaling;
}

json longrope_scaling(const GgufKeys& keys, std::int64_t dim) {
  const auto list = [&](const char* name) {
    json numbers = json::array();
    for (const float v : read_divisors(keys, name, dim / 2)) numbers.push_back(shortest_decimal(v));
    return numbers;
  };
  return {{"rope_type", "longrope"},
          {"type", "longrope"},
          {"original_max_position_embeddings", original_length(keys)},
          {"short_factor", list(kRopeShort)},
          {"long_factor", list(kRopeLong)},
          {"attention_factor", keys.has(kScalingAttention) ? keys.number(kScalingAttention) : 1.0}};
}

// linear where only an older file's key says so, longrope where only its tensors do.
std::string scaling_type(const GgufKeys& keys, const GgufArchitecture* written) {
  std::string type(keys.has(kScalingType) ? keys.file.string(keys.full(kScalingType)) : "");
  if (type.empty() && keys.has(kScaleLinear)) type = "linear";
  if (type.empty() && (keys.has_tensor(kRopeLong) || keys.has_tensor(kRopeShort))) type = "longrope";
  if (type.empty()) type = "none";
  const bool has_factors = written != nullptr && written->has_rope_factors;
  if (type != "none" && type != "linear" && type != "yarn" && !(type == "longrope" && has_factors)) {
    fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full(kScalingType), "' is '", type,
         "', expected none, linear or yarn", has_factors ? ", or longrope" : "");
  }
  return type;
}

void refuse_attention_factor(const GgufKeys& keys) {
  if (!keys.has(kScalingAttention) || keys.number(kScalingAttention) == 1.0) return;
  fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full(kScalingAttention), "' is ",
       keys.number(kScalingAttention), ", expected 1 without yarn or longrope");
}

json rope_scaling(const GgufKeys& keys, const GgufArchitecture* written, double theta, std::int64_t dim) {
  const std::string type = scaling_type(keys, written);
  if (type != "longrope" && (keys.has_tensor(kRopeShort) || keys.has_tensor(kRopeLong)))
    fail(ErrorCode::not_supported, keys.file.where(), ": ", kRopeLong, " together with ", type, " scaling");
  if (keys.has_tensor(kRopeFreqs) && type != "none")
    fail(ErrorCode::not_supported, keys.file.where(), ": rope_freqs.weight together with ", type, " scaling");
  if (type == "yarn") return yarn_scaling(keys);
  if (type == "longrope") return longrope_scaling(keys, dim);
  refuse_attention_factor(keys);
  if (keys.has_tensor(kRopeFreqs)) return llama3_scaling(keys, theta, dim);
  if (type == "none") return nullptr;
  return {{"rope_type", "linear"},
          {"type", "linear"},
          {"factor", keys.number(keys.has(kScalingType) ? kScalingFactor : kScaleLinear)}};
}

void refuse_for_llama_cpp(const ModelConfig& config, const GgufArchitecture& written,
                          const std::string& where) {
  const RopeConfig& rope = config.ropes.front();
  const std::string& model_type = config.architecture->model_type;
  if (rope.partial_rotary_factor != 1.0 && !written.has_partial_rope) {
    fail(ErrorCode::not_supported, where, ": partial_rotary_factor is ", rope.partial_rotary_factor,
         ", llama.cpp rotates all of head_dim in ", model_type);
  }
  const bool lacks_freqs = rope.type == RopeType::llama3 && !written.has_rope_freqs;
  const bool lacks_factors = rope.type == RopeType::longrope && !written.has_rope_factors;
  if (lacks_freqs || lacks_factors || rope.type == RopeType::dynamic) {
    fail(ErrorCode::not_supported, where, ": rope type is ", name(rope.type), ", which llama.cpp has not in ",
         model_type);
  }
  if (rope.type != RopeType::yarn) return;
  const bool rounds = rope.truncate || config.architecture->others_round_yarn;
  if (rope.beta_fast != kYarnFast || rope.beta_slow != kYarnSlow || !rounds) {
    fail(ErrorCode::not_supported, where, ": yarn has beta_fast ", rope.beta_fast, ", beta_slow ",
         rope.beta_slow, ", truncate ", rope.truncate ? "true" : "false", ", llama.cpp has ", kYarnFast, ", ",
         kYarnSlow, " and true");
  }
}

// As llama.cpp counts it.
float attention_factor(const RopeConfig& rope) {
  const double usual = rope.type == RopeType::yarn ? yarn_attention_factor(rope.factor) : 1.0;
  return static_cast<float>(rope.attention_factor / usual);
}

}  // namespace

bool is_gguf_rope_key(std::string_view key) {
  constexpr std::string_view kKeys[] = {kRotaryDims,       kScalingType,  kScalingFactor, kScalingOriginal,
                                        kScalingAttention, kYarnBetaFast, kYarnBetaSlow,  kScaleLinear,
                                        kScalingFinetuned, kTheta.key,    kSections};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

bool is_gguf_rope_tensor(std::string_view name) {
  return name == kRopeFreqs || name == kRopeShort || name == kRopeLong;
}

void read_gguf_rope(const GgufKeys& keys, const Architecture& architecture, std::int64_t head_dim,
                    json& config) {
  const GgufArchitecture* written = find_gguf_architecture_of(architecture.model_type);
  const std::int64_t dims = rotary_dims(keys, written, head_dim);
  const double theta = keys.has(kTheta.key) ? keys.number(kTheta.key) : 10000.0;
  config[kTheta.config] = theta;
  config["rope_scaling"] = rope_scaling(keys, written, theta, dims);
  if (dims != head_dim) config["partial_rotary_factor"] = rotated_part(dims, head_dim);
}

void add_gguf_rope(const ModelConfig& config, const GgufArchitecture& written, const std::string& where,
                   GgufMetadata& metadata) {
  refuse_for_llama_cpp(config, written, where);
  const RopeConfig& rope = config.ropes.front();
  const auto add = [&](std::string_view key, const auto& value) {
    metadata.add(written.name + "." + std::string(key), value);
  };
  const auto add_count = [&](std::string_view key, std::int64_t value) {
    add(key, static_cast<std::uint32_t>(value));
  };
  add_count(kRotaryDims, rope.rotary_dims(first_attention(config)->head_dim));
  add(kTheta.key, static_cast<float>(rope.theta));
  if (!written.rope_sections.empty()) add(kSections, gguf_array(written.rope_sections));
  if (rope.type == RopeType::plain) return;
  if (rope.type != RopeType::linear) add_count(kScalingOriginal, rope.original_max_position_embeddings);
  if (rope.type == RopeType::llama3) return;
  add(kScalingType, std::string(name(rope.type)));
  if (rope.type != RopeType::longrope) add(kScalingFactor, static_cast<float>(rope.factor));
  if (attention_factor(rope) == 1.0f) return;
  if (config.ropes.size() > 1) {
    fail(ErrorCode::not_supported, where, ": attention_factor of yarn is ", rope.attention_factor,
         ", llama.cpp has ", yarn_attention_factor(rope.factor), " where layers have other rotary settings");
  }
  add(kScalingAttention, attention_factor(rope));
}

std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  const auto floats = [](const std::vector<double>& v) { return std::vector<float>(v.begin(), v.end()); };
  if (rope.type == RopeType::longrope)
    return {{kRopeLong, floats(rope.long_factor)}, {kRopeShort, floats(rope.short_factor)}};
  if (rope.type != RopeType::llama3) return {};
  RopeConfig plain = rope;
  plain.type = RopeType::plain;
  const std::int64_t dim = first_attention(config)->head_dim;
  std::vector<float> divisors = rope_inverse_frequencies(plain, dim);
  const std::vector<float> scaled = rope_inverse_frequencies(rope, dim);
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return {{kRopeFreqs, divisors}};
}

}  // namespace mixtape
