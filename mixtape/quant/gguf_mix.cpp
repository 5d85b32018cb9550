#include "mixtape/quant/gguf_mix.h"

#include <algorithm>
#include <variant>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_architecture.h"

namespace mixtape {
namespace {

constexpr std::int64_t kSharedHeads = 4;     // query heads of a key and value: such matrices are small
constexpr std::int64_t kMixtralExperts = 8;  // that model's attention is small beside its experts
constexpr std::int64_t kLayersOf70B = 80;    // its keys and values are small too

// Of which layers' matrices a mix stores in another type.
enum class Where {
  none,
  all,
  first_two,
  first_four,
  first_sixteenth,
  first_eighth,
  first_eighth_by_importance,  // if there is any
  spread,                      // the first and the last eighth, and every third layer between
  shared_heads,                // all, where at least kSharedHeads query heads share a key
};

struct Choice {
  Where where = Where::none;
  BlockType there = BlockType::none, elsewhere = BlockType::none;  // none: the mix's base
};

struct MixRow {
  GgufMix mix;
  Choice values = {}, down = {}, output = {};  // v_proj, down_proj, o_proj
  bool raises_output_of_8 = false;             // o_proj to Q5_K beside 8 experts, whatever `output` says
  BlockType fused = BlockType::none;           // of q, k and v in one matrix; none: the mix's base
};

using enum BlockType;

const std::vector<MixRow>& rows() {
  static const std::vector<MixRow> all = {
      {{"q2_k", 10, q2_k}, {Where::shared_heads, q4_k, q3_k}, {Where::all, q3_k}, {Where::all, q3_k}, true},
      {{"q3_k_s", 11, q3_k}, {}, {}, {}, true},
      {{"q3_k_m", 12, q3_k},
       {Where::first_two, q5_k, q4_k},
       {Where::first_sixteenth, q5_k, q4_k},
       {Where::all, q4_k},
       true,
       q4_k},
      {{"q3_k_l", 13, q3_k}, {Where::all, q5_k}, {Where::all, q5_k}, {Where::all, q5_k}, false, q4_k},
      {{"q4_0", 2, q4_0}, {}, {Where::first_eighth_by_importance, q4_1}},
      {{"q4_1", 3, q4_1}},
      {{"q4_k_s", 14, q4_k}, {Where::first_four, q5_k}, {Where::first_eighth, q5_k}, {}, true},
      {{"q4_k_m", 15, q4_k}, {Where::spread, q6_k}, {Where::spread, q6_k}, {}, true, q5_k},
      {{"q5_0", 8, q5_0}, {}, {Where::first_eighth_by_importance, q5_1}},
      {{"q5_1", 9, q5_1}},
      {{"q5_k_s", 16, q5_k}},
      {{"q5_k_m", 17, q5_k}, {Where::spread, q6_k}, {Where::spread, q6_k}, {}, false, q6_k},
      {{"q6_k", 18, q6_k}},
      {{"q8_0", 7, q8_0}},
  };
  return all;
}

const MixRow& row_of(const std::string& name) {
  const auto found =
      std::find_if(rows().begin(), rows().end(), [&](const MixRow& r) { return r.mix.name == name; });
  require(found != rows().end(), "gguf mix: is '", name, "', expected a name such as q4_k_m");
  return *found;
}

// All layers with attention of the types that are written as GGUF are alike.
const AttentionSpec& attention_of(const ModelConfig& config) {
  const std::string& type = config.architecture->model_type;
  const AttentionSpec* attention = first_attention(config);
  if (find_gguf_architecture_of(type) == nullptr || attention == nullptr)
    fail(ErrorCode::not_supported, "models of type '", type, "'", attention ? "" : " without attention",
         " are not written as GGUF");
  return *attention;
}

// How many of the layers before `end` have attention.
std::int64_t attention_layers(const ModelConfig& config, std::int64_t end) {
  return std::count_if(config.layers.begin(), config.layers.begin() + end, [](const LayerSpec& layer) {
    return std::holds_alternative<AttentionSpec>(layer.mixer);
  });
}

// One model's matrices by one mix.
class Chooser {
 public:
  Chooser(const MixRow& row, const ModelConfig& config, bool has_importance)
      : row_(row),
        config_(config),
        layers_(std::ssize(config.layers)),
        has_importance_(has_importance),
        attention_(attention_of(config)) {
    for (const LayerSpec& layer : config.layers) {
      if (const auto* sparse = std::get_if<SparseMlpSpec>(&layer.mlp)) experts_ = sparse->experts;
    }
  }

  BlockType type(const ModelTensor& t, std::int64_t layer) const {
    const auto is = [&](const char* part) { return t.name.find(part) != t.name.npos; };
    const bool is_output =
        t.name.starts_with("lm_head") || (t.kind == TensorKind::embedding && config_.tie_word_embeddings);
    if (is_output) return output_type(t.shape.cols());
    if (is(".v_proj.")) return values_type(layer);
    if (is(".qkv_proj.") && row_.fused != BlockType::none) return row_.fused;
    if (is(".k_proj.") && experts_ == kMixtralExperts) return q8_0;
    if (is(".down_proj.")) return chosen(row_.down, layer);
    if (is(".o_proj.")) return attention_output_type(layer);
    return row_.mix.base;
  }

 private:
  // Of logits. Rows that are no whole blocks get the largest type at once.
  BlockType output_type(std::int64_t cols) const {
    const bool fits = cols % WeightFormat(row_.mix.base).unit() == 0;
    return fits && row_.mix.base != q8_0 ? q6_k : q8_0;
  }

  BlockType values_type(std::int64_t layer) const {
    if (experts_ == kMixtralExperts) return q8_0;
    const std::int64_t layers = std::ssize(config_.layers);
    const BlockType type =
        chosen(row_.values, attention_layers(config_, layer), attention_layers(config_, layers));
    return is_70b() && (type == q3_k || type == q4_k) ? q5_k : type;
  }

  BlockType attention_output_type(std::int64_t layer) const {
    if (experts_ != kMixtralExperts) return chosen(row_.output, layer);
    return row_.raises_output_of_8 ? q5_k : row_.mix.base;
  }

  BlockType chosen(const Choice& c, std::int64_t layer) const { return chosen(c, layer, layers_); }
  BlockType chosen(const Choice& c, std::int64_t layer, std::int64_t layers) const {
    const BlockType type = holds(c.where, layer, layers) ? c.there : c.elsewhere;
    return type == BlockType::none ? row_.mix.base : type;
  }

  bool holds(Where where, std::int64_t layer, std::int64_t layers) const {
    switch (where) {
      case Where::none:
        return false;
      case Where::all:
        return true;
      case Where::first_two:
        return layer < 2;
      case Where::first_four:
        return layer < 4;
      case Where::first_sixteenth:
        return layer < layers / 16;
      case Where::first_eighth:
        return layer < layers / 8;
      case Where::first_eighth_by_importance:
        return has_importance_ && layer < layers / 8;
      case Where::spread:
        return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
      case Where::shared_heads:
        return attention_.heads / attention_.kv_heads >= kSharedHeads;
    }
    return false;
  }

  bool is_70b() const { return layers_ == kLayersOf70B && attention_.heads != attention_.kv_heads; }

  const MixRow& row_;
  const ModelConfig& config_;
  std::int64_t layers_;
  bool has_importance_;
  AttentionSpec attention_;
  std::int64_t experts_ = 0;
};

}  // namespace

const std::vector<GgufMix>& gguf_mixes() {
  static const std::vector<GgufMix> mixes = [] {
    std::vector<GgufMix> all;
    for (const MixRow& row : rows()) all.push_back(row.mix);
    return all;
  }();
  return mixes;
}

const GgufMix& gguf_mix(const std::string& name) { return row_of(name).mix; }

QuantizationOptions mix_options(const GgufMix& mix, const ModelConfig& config, bool has_importance) {
  const Chooser chooser(row_of(mix.name), config, has_importance);
  QuantizationOptions options = {.params = mix.base};
  for (const ModelTensor& t : tensor_list(config)) {
    if (t.kind == TensorKind::vector || t.kind == TensorKind::router) continue;
    if (t.shape.cols() % WeightFormat(q8_0).unit() != 0) continue;  // stays in float
    options.modules.emplace(module_path(t.name), chooser.type(t, layer_of(t.name).value_or(0)));
  }
  return options;
}

}  // namespace mixtape
