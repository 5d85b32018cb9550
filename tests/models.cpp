// Prints docs/models.md: what is known of each model type, from its registered architecture, and what is refused, found
// by trying: each setting is put into the config.json of a tiny model, which is read and written in both forms.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_config_writer.h"
#include "mixtape/io/gguf_values.h"
#include "mixtape/io/model_config.h"
#include "mixtape/testing/tiny_model_json.h"

namespace mixtape {
namespace {

using nlohmann::json;

const std::string kWhere = "config.json";

bool reads(const Architecture& a, std::string_view key) {
  return std::find(a.reads.begin(), a.reads.end(), key) != a.reads.end();
}

// Every form takes this one. Types that read a key get the value that both other programs compute.
json accepted(const Architecture& a) {
  json config = json::parse(testing::tiny_model_json(a.model_type));
  config["max_position_embeddings"] = 64;
  if (config.contains("num_experts")) config["norm_topk_prob"] = true;
  const json values = {{"query_pre_attn_scalar", 8},
                       {"sliding_window_pattern", 2},
                       {"linear_num_key_heads", 2},
                       {"linear_value_head_dim", 4}};
  for (const auto& [key, value] : values.items()) {
    if (reads(a, key)) config[key] = value;
  }
  return config;
}

// Settings that are tried with every type, beside those that change some type's model and not another's.
std::vector<json> settings(const Architecture& a) {
  const json factors = {1, 1, 1, 1};
  std::vector<json> all = {
      {{"hidden_act", "gelu"}},
      {{"layer_types", {"sliding_attention", "full_attention"}}},
      {{"partial_rotary_factor", 0.5}},
      {{"head_dim", 12}},
      {{"tie_word_embeddings", true}},
      {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}},
      {{"rope_scaling",
        {{"rope_type", "llama3"},
         {"factor", 8},
         {"low_freq_factor", 1},
         {"high_freq_factor", 4},
         {"original_max_position_embeddings", 16}}}},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 16}}}},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}}}},
      {{"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}}}},
      {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4}}}},
      {{"rope_scaling", {{"rope_type", "default"}, {"a_new_setting", 1}}}},
      {{"quantization_config", {{"quant_method", "gptq"}}}},
      {{"a_new_key", 1}},
  };
  for (const std::string_view key : refused_flags()) all.push_back({{std::string(key), true}});
  for (const std::string_view key : refused_keys()) all.push_back({{std::string(key), 8}});
  if (reads(a, "swiglu_limit")) {
    all.push_back({{"swiglu_limit", 6}});
    all.push_back({{"swiglu_alpha", 1.5}});
    all.push_back({{"attention_bias", false}});
  }
  if (reads(a, "no_rope_layers")) all.push_back({{"no_rope_layers", {0, 1}}});
  if (reads(a, "query_pre_attn_scalar")) all.push_back({{"query_pre_attn_scalar", 4}});
  if (reads(a, "linear_num_key_heads")) {
    all.push_back({{"linear_num_key_heads", 1}});
    all.push_back({{"linear_value_head_dim", 6}});
    all.push_back({{"layer_types", {"full_attention", "linear_attention"}}});
  }
  if (accepted(a).contains("num_experts")) {
    all.push_back({{"norm_topk_prob", false}});
    all.push_back({{"mlp_only_layers", {0}}});
  }
  return all;
}

// What an error says, without where and of which type; "" for none.
std::string message_of(const Architecture& a, const std::function<void()>& attempt) {
  std::string text;
  try {
    attempt();
  } catch (const Error& error) {
    text = error.what();
  }
  const std::string where = kWhere + ": ";
  if (const std::size_t at = text.find(where); at != std::string::npos) text = text.substr(at + where.size());
  for (const std::string before : {" in ", " of "}) {
    const std::size_t at = text.find(before + a.model_type);
    if (at != std::string::npos) text.replace(at, before.size() + a.model_type.size(), before + "this type");
  }
  return text;
}

struct Outcome {
  std::string reading, mlx, gguf;  // what is said; "": it is taken
  auto operator<=>(const Outcome&) const = default;
  bool is_taken() const { return reading.empty() && mlx.empty() && gguf.empty(); }
};
using Outcomes = std::map<std::string, Outcome>;  // by setting

Outcome outcome_of(const Architecture& a, const json& config) {
  Outcome found;
  found.reading = message_of(a, [&] { ModelConfig::parse(config, kWhere); });
  if (!found.reading.empty()) return found;
  found.mlx = message_of(a, [&] { to_mlx_config(config, json::object(), kWhere); });
  if (find_gguf_architecture_of(a.model_type) == nullptr) return found;
  GgufMetadata metadata;
  found.gguf = message_of(a, [&] { add_gguf_config(config, kWhere, metadata); });
  return found;
}

Outcomes outcomes_of(const Architecture& a) {
  const json base = accepted(a);
  const Outcome untouched = outcome_of(a, base);
  if (!untouched.is_taken()) {
    fail(ErrorCode::invalid_argument, a.model_type, ": the tiny model is refused: ", untouched.reading,
         untouched.mlx, untouched.gguf);
  }
  Outcomes all;
  for (const json& setting : settings(a)) {
    json config = base;
    config.update(setting);
    const std::string text = setting.dump();
    all[text.substr(1, text.size() - 2)] = outcome_of(a, config);
  }
  return all;
}

// Of settings that every type was tried with, what most types say, where they refuse something.
Outcomes usual_outcomes(const std::map<std::string, Outcomes>& types) {
  std::map<std::string, std::map<Outcome, std::size_t>> counts;
  std::map<std::string, std::size_t> tried;
  for (const auto& [type, outcomes] : types) {
    for (const auto& [setting, outcome] : outcomes) {
      ++counts[setting][outcome];
      ++tried[setting];
    }
  }
  Outcomes usual;
  for (const auto& [setting, count] : counts) {
    const auto most = std::max_element(count.begin(), count.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (tried[setting] == types.size() && !most->first.is_taken()) usual[setting] = most->first;
  }
  return usual;
}

// What is said of a type beside what is usual.
Outcomes unusual(const Outcomes& all, const Outcomes& usual, bool has_gguf) {
  Outcomes rows;
  for (const auto& [setting, outcome] : all) {
    const auto found = usual.find(setting);
    Outcome expected = found == usual.end() ? Outcome() : found->second;
    if (!has_gguf) expected.gguf.clear();
    if (outcome != expected) rows[setting] = outcome;
  }
  return rows;
}

// Those of `parts` that hold, with commas.
std::string listed(const std::vector<std::pair<bool, std::string>>& parts) {
  std::string text;
  for (const auto& [holds, part] : parts) {
    if (holds) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

std::string described(const MixerSpec& mixer) {
  return std::visit(Match{[](const AttentionSpec& a) {
                            const std::string more = listed({{a.qkv_bias, "biases"},
                                                             {a.qk_norms && !a.joint_norms, "norms on heads"},
                                                             {a.joint_norms, "norms on q and k"},
                                                             {a.fused, "one matrix for q, k and v"},
                                                             {a.output_gate, "gated output"},
                                                             {a.sinks, "sinks"},
                                                             {a.window > 0, "a window"},
                                                             {a.rope > 0, "rotary frequencies of its own"}});
                            return "attention" + (more.empty() ? more : " (" + more + ")");
                          },
                          [](const DeltaNetSpec& d) {
                            return std::string("gated delta net") + (d.fused ? "" : " (projections apart)");
                          }},
                    mixer);
}

std::string described(const MlpSpec& mlp) {
  return std::visit(
      Match{[](const DenseMlpSpec& m) {
              const std::string more = listed({{m.activation == Activation::gelu_tanh, "GELU by tanh"},
                                               {m.fused, "one matrix for gate and up"}});
              return "dense" + (more.empty() ? more : " (" + more + ")");
            },
            [](const SparseMlpSpec& m) {
              const std::string more = listed({{m.bias, "biases"}, {m.swiglu_limit > 0.0, "clamped SwiGLU"}});
              return std::string("experts") + (m.shared_width > 0 ? " with a shared one" : "") +
                     (more.empty() ? more : " (" + more + ")");
            }},
      mlp);
}

std::string described(NormPlaces places) {
  return places == NormPlaces::before ? "before" : places == NormPlaces::after ? "after" : "before and after";
}

// Of a table's row, every kind once, in the order of layers.
template <class Part>
std::string kinds(const ModelConfig& config, const Part& part) {
  std::vector<std::pair<bool, std::string>> found;
  for (const LayerSpec& layer : config.layers) {
    const std::pair<bool, std::string> kind{true, described(layer.*part)};
    if (std::find(found.begin(), found.end(), kind) == found.end()) found.push_back(kind);
  }
  return listed(found);
}

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

std::string row(const Architecture& a) {
  const GgufArchitecture* written = find_gguf_architecture_of(a.model_type);
  const ModelConfig config = ModelConfig::parse(accepted(a), kWhere);
  const std::string part = a.multimodal.empty() ? "" : ", text of " + code(a.multimodal);
  return "| " + code(a.model_type) + part + " | " + (a.gguf.empty() ? "-" : code(a.gguf)) + " | " +
         (written ? code(written->name) : "-") + " | " + kinds(config, &LayerSpec::mixer) + " | " +
         kinds(config, &LayerSpec::mlp) + " | " + described(config.layers[0].norms) +
         (config.norm_offset > 0.0 ? ", 1 + w" : "") + " |\n";
}

std::string table(const Outcomes& rows, bool has_gguf) {
  std::string text = "| setting | read | MLX | GGUF |\n|---|---|---|---|\n";
  for (const auto& [setting, outcome] : rows) {
    const Outcome& o = outcome;
    const auto written = [&](const std::string& message) {
      return !message.empty() ? message : std::string(o.reading.empty() ? "yes" : "");
    };
    text += "| " + code(setting) + " | " + (o.reading.empty() ? "yes" : o.reading) + " | " + written(o.mlx) +
            " | " + (has_gguf ? written(o.gguf) : "-") + " |\n";
  }
  return text;
}

std::string own_keys(const Architecture& a) {
  std::vector<std::pair<bool, std::string>> keys;
  for (const std::string_view key : std::set<std::string_view>(a.reads.begin(), a.reads.end()))
    keys.emplace_back(true, code(key));
  const std::string unknown = a.passes_over_unknown ? "Keys that are not known are told of and passed over."
                                                    : "Keys that are not known are refused.";
  std::string text = keys.empty() ? unknown : "Own keys: " + listed(keys) + ". " + unknown;
  if (a.interleaves_experts) text += " Experts that are stored in MXFP4 are read as floats.";
  if (a.others_round_yarn) {
    text +=
        " mlx-lm and llama.cpp have whole pairs between yarn's bounds in all files of this type; one whose "
        "`truncate` "
        "is false is written all the same, and its logits differ there.";
  }
  return text;
}

constexpr const char* kHead = R"(# Models

Generated by `tests/models.cpp` from the files of `mixtape/io/architectures/`, and by trying; edit those.

Every type is read from Hugging Face and MLX directories and written as an MLX directory. The GGUF columns name `general.architecture` of files that are read and written.

| model_type | GGUF read | GGUF written | mixers | MLP | norms |
|---|---|---|---|---|---|
)";

constexpr const char* kRefused = R"(
## What is refused, and why

Before any work, by name. Each setting was put into the config.json of a tiny model; what the program says where it is read, and, where it is taken, when it is written as an MLX directory or a GGUF file. First what most types say, then, of each type, where it differs; what is in neither table is taken.

By most types:

)";

const std::string kPeers = R"(
## Beside other programs

Small random models of each type in f32 (`bench/results/models.csv`, made by `bench/peers/models.py`). Logits, loss and the worst of all gradients are compared with transformers, log-probabilities with mlx-lm on a directory of 8 bits and with llama.cpp on a file in F32: the largest difference, as a share of the largest value, of the loss as it is. DWQ: the share of plain rounding's KL at 3 bits that 60 steps take away. Where a peer has no setting for the type's own one, a window's or yarn's say, that is left out.

| model_type | logits | loss | gradients | mlx-lm | llama.cpp | DWQ |
|---|---|---|---|---|---|---|
)";

// The rows of the table above; columns type,HF in,MLX in,GGUF in,MLX out,GGUF out and what follows.
std::string peers() {
  std::ifstream file("bench/results/models.csv");
  require(file.good(), "bench/results/models.csv: cannot be read, expected to run in the sources' root");
  std::string text, line;
  const auto number = [](const std::string& cell) {
    if (cell == "-") return cell;
    char shown[32];
    std::snprintf(shown, sizeof shown, "%.1e", std::stod(cell));
    return std::string(shown);
  };
  while (std::getline(file, line)) {
    if (line.starts_with('#') || line.starts_with("type,")) continue;
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, ',');) cells.push_back(cell);
    require(cells.size() == 14, "bench/results/models.csv: a row has ", cells.size(),
            " columns, expected 14");
    text += "| `" + cells[0] + "` |";
    for (std::size_t i = 6; i < 11; ++i) text += " " + number(cells[i]) + " |";
    text += " " + str(std::lround(100.0 * std::stod(cells[13])), " % |\n");
  }
  return text;
}

int print() {
  std::map<std::string, Outcomes> types;
  for (const Architecture* a : architectures()) types[a->model_type] = outcomes_of(*a);
  const Outcomes usual = usual_outcomes(types);
  std::string text = kHead;
  for (const Architecture* a : architectures()) text += row(*a);
  text += kPeers + peers() + kRefused + table(usual, true);
  for (const Architecture* a : architectures()) {
    const bool has_gguf = find_gguf_architecture_of(a->model_type) != nullptr;
    const Outcomes rows = unusual(types.at(a->model_type), usual, has_gguf);
    text += "\n### " + a->model_type + "\n\n" + own_keys(*a) + "\n";
    if (!rows.empty()) text += "\n" + table(rows, has_gguf);
  }
  return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}

}  // namespace
}  // namespace mixtape

int main() {
  try {
    return mixtape::print();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "models: %s\n", error.what());
    return 1;
  }
}
