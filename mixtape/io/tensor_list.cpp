#include "mixtape/io/tensor_list.h"

#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

constexpr std::string_view kLayerFront = "model.layers.";
constexpr double kDeviation = 0.02;  // GPT-2's
constexpr float kDecay = 1.4f;       // log 4: the middle of where a delta net's A usually starts, 0 to 16

class Lister {
 public:
  explicit Lister(const ModelConfig& config) : c_(config) {}

  std::vector<ModelTensor> list() {
    matrix("model.embed_tokens", "token_embd", {c_.vocab_size, c_.hidden_size}, TensorKind::embedding);
    for (std::int64_t i = 0; i < std::ssize(c_.layers); ++i) layer(i);
    norm("model.norm", "output_norm", c_.hidden_size);
    if (!c_.tie_word_embeddings) matrix("lm_head", "output", {c_.vocab_size, c_.hidden_size});
    return std::move(list_);
  }

 private:
  void layer(std::int64_t i) {
    const LayerSpec& spec = c_.layers[static_cast<std::size_t>(i)];
    const std::string at = str("model.layers.", i, "."), gguf = str("blk.", i, ".");
    const NormNames norms = norm_names(spec.norms);
    layer_norm(at, norms.before_mixer, gguf + "attn_norm");
    std::visit(Match{[&](const AttentionSpec& a) { attention(a, at + "self_attn.", gguf); },
                     [&](const DeltaNetSpec& d) { delta_net(d, at + "linear_attn.", gguf); }},
               spec.mixer);
    layer_norm(at, norms.after_mixer, gguf + "post_attention_norm");
    layer_norm(at, norms.before_mlp, gguf + c_.architecture->gguf_mlp_norm);
    std::visit(Match{[&](const DenseMlpSpec& m) { mlp(m, at + "mlp.", gguf); },
                     [&](const SparseMlpSpec& m) { experts(m, at + "mlp.", gguf); }},
               spec.mlp);
    layer_norm(at, norms.after_mlp, gguf + "post_ffw_norm");
  }

  void layer_norm(const std::string& at, const std::string& name, const std::string& gguf) {
    if (!name.empty()) norm(at + name, gguf, c_.hidden_size);
  }

  void attention(const AttentionSpec& a, const std::string& at, const std::string& gguf) {
    const std::int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    if (a.fused) {
      linear(at + "qkv_proj", gguf + "attn_qkv", q + 2 * kv, c_.hidden_size, a.qkv_bias);
    } else {
      linear(at + "q_proj", gguf + "attn_q", a.output_gate ? 2 * q : q, c_.hidden_size, a.qkv_bias,
             interleaved(a.heads));
      linear(at + "k_proj", gguf + "attn_k", kv, c_.hidden_size, a.qkv_bias, interleaved(a.kv_heads));
      linear(at + "v_proj", gguf + "attn_v", kv, c_.hidden_size, a.qkv_bias);
    }
    if (a.qk_norms) {
      norm(at + "q_norm", gguf + "attn_q_norm", a.joint_norms ? q : a.head_dim);
      norm(at + "k_norm", gguf + "attn_k_norm", a.joint_norms ? kv : a.head_dim);
    }
    if (a.sinks) vector(at + "sinks", gguf + "attn_sinks.weight", a.heads, 0.0f);
    linear(at + "o_proj", gguf + "attn_output", c_.hidden_size, q, a.output_bias);
    writes_residual(a.output_bias);
  }

  void delta_net(const DeltaNetSpec& d, const std::string& at, const std::string& gguf) {
    if (d.fused) {
      matrix(at + "in_proj_qkvz", gguf + "ssm_in", {d.channels() + d.values(), c_.hidden_size});
      matrix(at + "in_proj_ba", gguf + "ssm_ba", {2 * d.value_heads, c_.hidden_size});
    } else {
      matrix(at + "in_proj_qkv", gguf + "attn_qkv", {d.channels(), c_.hidden_size});
      matrix(at + "in_proj_z", gguf + "attn_gate", {d.values(), c_.hidden_size});
      matrix(at + "in_proj_b", gguf + "ssm_beta", {d.value_heads, c_.hidden_size});
      matrix(at + "in_proj_a", gguf + "ssm_alpha", {d.value_heads, c_.hidden_size});
    }
    list_.push_back({at + "conv1d.weight",
                     gguf + "ssm_conv1d.weight",
                     {d.channels(), d.taps, 1},
                     TensorKind::vector,
                     kDeviation});
    vector(at + "dt_bias", gguf + "ssm_dt.bias", d.value_heads, 1.0f);
    vector(at + "A_log", gguf + "ssm_a", d.value_heads, kDecay);
    list_.back().gguf_is_decay = true;
    norm(at + "norm", gguf + "ssm_norm", d.value_dim);
    matrix(at + "out_proj", gguf + "ssm_out", {c_.hidden_size, d.values()});
    writes_residual(false);
  }

  void mlp(const DenseMlpSpec& m, const std::string& at, const std::string& gguf) {
    if (m.fused) {
      linear(at + "gate_up_proj", gguf + "ffn_up", 2 * m.width, c_.hidden_size, m.bias);
    } else {
      linear(at + "gate_proj", gguf + "ffn_gate", m.width, c_.hidden_size, m.bias);
      linear(at + "up_proj", gguf + "ffn_up", m.width, c_.hidden_size, m.bias);
    }
    linear(at + "down_proj", gguf + "ffn_down", c_.hidden_size, m.width, m.bias);
    writes_residual(m.bias);
  }

  void experts(const SparseMlpSpec& m, const std::string& at, const std::string& gguf) {
    const std::int64_t e = m.experts, f = m.width, d = c_.hidden_size;
    const std::string stack = at + m.experts_name + ".";
    matrix(at + m.router_name, gguf + "ffn_gate_inp", {e, d}, TensorKind::router);
    if (m.bias) bias(at + m.router_name, gguf + "ffn_gate_inp", {e});
    matrix(stack + "gate_proj", gguf + "ffn_gate_exps", {e, f, d});
    if (m.bias) bias(stack + "gate_proj", gguf + "ffn_gate_exps", {e, f});
    matrix(stack + "up_proj", gguf + "ffn_up_exps", {e, f, d});
    if (m.bias) bias(stack + "up_proj", gguf + "ffn_up_exps", {e, f});
    matrix(stack + "down_proj", gguf + "ffn_down_exps", {e, d, f});
    if (m.bias) bias(stack + "down_proj", gguf + "ffn_down_exps", {e, d});
    writes_residual(m.bias);
    if (m.shared_width == 0) return;
    matrix(at + "shared_expert_gate", gguf + "ffn_gate_inp_shexp", {1, d}, TensorKind::router);
    const std::string shared = at + "shared_expert.";
    linear(shared + "gate_proj", gguf + "ffn_gate_shexp", m.shared_width, d, false);
    linear(shared + "up_proj", gguf + "ffn_up_shexp", m.shared_width, d, false);
    linear(shared + "down_proj", gguf + "ffn_down_shexp", d, m.shared_width, false);
    writes_residual(false);
  }

  std::int64_t interleaved(std::int64_t heads) const {
    return c_.architecture->gguf_interleaves_heads ? heads : 0;
  }

  void linear(const std::string& path, const std::string& gguf, std::int64_t out, std::int64_t in,
              bool has_bias, std::int64_t interleaved_heads = 0) {
    matrix(path, gguf, {out, in});
    list_.back().gguf_interleaved_heads = interleaved_heads;
    if (!has_bias) return;
    bias(path, gguf, {out});
    list_.back().gguf_interleaved_heads = interleaved_heads;
  }
  void matrix(const std::string& path, const std::string& gguf, const Shape& shape,
              TensorKind kind = TensorKind::matrix) {
    list_.push_back({path + ".weight", gguf + ".weight", shape, kind, kDeviation});
  }
  void bias(const std::string& path, const std::string& gguf, const Shape& shape) {
    list_.push_back({path + ".bias", gguf + ".bias", shape});
  }
  void vector(const std::string& name, const std::string& gguf, std::int64_t size, float value) {
    list_.push_back({name, gguf, {size}, TensorKind::vector, 0.0, value});
  }
  void norm(const std::string& path, const std::string& gguf, std::int64_t size) {
    const auto offset = static_cast<float>(c_.norm_offset);
    vector(path + ".weight", gguf + ".weight", size, 1.0f - offset);
    list_.back().gguf_offset = offset;
  }

  // The last matrix adds to the residual stream: it starts smaller, so that the stream's variance does not
  // grow with the number of layers, which add to it twice each.
  void writes_residual(bool has_bias) {
    ModelTensor& last = list_[list_.size() - (has_bias ? 2 : 1)];
    last.deviation *= 1.0 / std::sqrt(2.0 * static_cast<double>(c_.layers.size()));
  }

  const ModelConfig& c_;
  std::vector<ModelTensor> list_;
};

}  // namespace

Shape ModelTensor::gguf_shape() const {
  if (kind != TensorKind::vector && kind != TensorKind::router) return shape;
  std::vector<std::int64_t> dims = shape.dims();
  while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
  while (dims.size() > 1 && dims.front() == 1) dims.erase(dims.begin());
  return Shape(std::move(dims));
}

float ModelTensor::to_gguf(float held) const {
  return gguf_is_decay ? static_cast<float>(-std::exp(static_cast<double>(held))) : held + gguf_offset;
}

float ModelTensor::from_gguf(float stored) const {
  return gguf_is_decay ? static_cast<float>(std::log(-static_cast<double>(stored))) : stored - gguf_offset;
}

std::vector<ModelTensor> tensor_list(const ModelConfig& config) { return Lister(config).list(); }

std::vector<std::string> foreign_tensors(const ModelSource& source, const std::vector<ModelTensor>& tensors) {
  std::set<std::string> known;
  for (const ModelTensor& t : tensors) {
    known.insert(t.name);
    for (const char* part : {".scales", ".biases"}) known.insert(module_path(t.name) + part);
  }
  std::vector<std::string> foreign;
  for (const std::string& name : source.names()) {
    if (!known.contains(name)) foreign.push_back(name);
  }
  return foreign;
}

std::string module_path(const std::string& tensor_name) {
  return tensor_name.substr(0, tensor_name.rfind('.'));
}

std::optional<std::int64_t> layer_of(const std::string& name) {
  std::int64_t layer = 0;
  if (!name.starts_with(kLayerFront)) return std::nullopt;
  const char *begin = name.data() + kLayerFront.size(), *end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? std::optional(layer) : std::nullopt;
}

std::string name_in_layer(const std::string& name) {
  return layer_of(name) ? name.substr(name.find('.', kLayerFront.size()) + 1) : name;
}

}  // namespace mixtape
