#include "mixtape/io/directory_model.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/core/error.h"
#include "mixtape/io/architecture.h"
#include "mixtape/io/expert_names.h"
#include "mixtape/io/interleaved_experts.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors_directory.h"
#include "mixtape/io/text_part.h"
#include "mixtape/io/tokenizer_files.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kExtraFiles[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "generation_config.json",
                                       "LICENSE",
                                       "LICENSE.txt",
                                       "LICENSE.md",
                                       "NOTICE"};

const std::string kEmbedding = "model.embed_tokens", kHead = "lm_head";
constexpr const char* kParts[] = {".weight", ".scales", ".biases"};

// The file's tensors that make one tensor, end to end.
struct Stack {
  Shape shape;
  std::vector<TensorView> parts;
  bool is_zero_centred = false;  // stored less 1
  // Of experts that are stored in another order or format: the values of one, instead of parts.
  std::function<std::vector<float>(std::int64_t expert)> expert = nullptr;
  FileDType dtype = FileDType::F32;  // which holds those
};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

class DirectoryModel final : public ModelSource {
 public:
  explicit DirectoryModel(const fs::path& path);

  std::string where() const override { return path_.string(); }
  const json& config_json() const override { return config_; }
  std::vector<std::string> notices() const override { return notices_; }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return stack(name).shape; }
  DType stored_dtype(const std::string& name) const override;
  Buffer load(const std::string& name, DType wanted, const Device& device) const override;
  json tokenizer_json() const override { return read_json(path_ / "tokenizer.json"); }
  json tokenizer_config_json() const override { return read_tokenizer_config(path_); }
  json generation_config_json() const override;
  std::map<std::string, std::string> extra_files() const override;

 private:
  using ExpertParts = std::map<std::int64_t, TensorView>;  // expert -> its tensor

  const Architecture* architecture() const;
  void add(const std::string& name, Stack stack);
  bool add_interleaved(const std::string& name, const TensorView& view);
  void add_gate_up(const std::string& mlp, const std::string& name, const TensorView& view);
  void add_experts(const std::string& name, const ExpertParts& parts);
  void read_tensors();
  bool has_mlx_layout() const;
  void add_model_prefix();
  void tell_of_unknown_keys();
  void tell_of_yarn();
  void settle_blocks();
  void settle_zero_centred();
  void settle_taps();
  void settle_tied_embeddings();
  void take_head_for_embedding();
  void drop_or_keep_head();
  bool same_bytes(const std::string& a, const std::string& b) const;
  const Stack& stack(const std::string& name) const;

  fs::path path_;
  SafetensorsDirectory files_;
  json config_;
  std::map<std::string, Stack> tensors_;
  std::vector<std::string> notices_;
  bool is_mlx_ = false;
  bool is_text_part_ = false;    // of a multimodal directory
  bool is_interleaved_ = false;  // Architecture::interleaves_experts
};

DirectoryModel::DirectoryModel(const fs::path& path)
    : path_(path), files_(path), config_(read_config_json(path / "config.json")) {
  is_mlx_ = has_mlx_layout();
  if (std::optional<json> text = text_config(config_, (path / "config.json").string())) {
    config_ = std::move(*text);
    is_text_part_ = true;
  }
  is_interleaved_ = !is_mlx_ && architecture() != nullptr && architecture()->interleaves_experts;
  read_tensors();
  settle_blocks();
  add_model_prefix();
  settle_taps();
  if (!config_.is_object()) return;
  tell_of_unknown_keys();
  tell_of_yarn();
  settle_zero_centred();
  settle_tied_embeddings();
}

void DirectoryModel::tell_of_unknown_keys() {
  std::string listed;
  for (const std::string& key : passed_over_keys(config_)) listed += (listed.empty() ? "" : ", ") + key;
  if (!listed.empty())
    notices_.push_back("keys of config.json that are not known are passed over: " + listed);
}

void DirectoryModel::tell_of_yarn() {
  if (architecture() == nullptr || !architecture()->others_round_yarn) return;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json rope = config_.value(key, json());
    if (!rope.is_object() || rope.value("rope_type", json()) != "yarn" ||
        rope.value("truncate", json()) != false)
      continue;
    notices_.push_back(
        str(key,
            " has truncate false: mlx-lm and llama.cpp have whole pairs between yarn's bounds in this "
            "type, their logits differ from the original's"));
    return;
  }
}

// Null for a type that nobody knows.
const Architecture* DirectoryModel::architecture() const {
  const json type = config_.is_object() ? config_.value("model_type", json()) : json();
  return type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
}

// Experts in blocks are read as floats: for everybody else nothing is quantized.
void DirectoryModel::settle_blocks() {
  if (!is_interleaved_ || !config_.contains("quantization_config")) return;
  const json& quantization = config_["quantization_config"];
  if (!quantization.is_object() || quantization.value("quant_method", json()) != "mxfp4") return;
  config_.erase("quantization_config");
  notices_.push_back("experts are stored in MXFP4 and read as floats");
}

void DirectoryModel::settle_zero_centred() {
  if (architecture() == nullptr || is_mlx_) return;
  for (auto& [name, stack] : tensors_) {
    for (const std::string_view module : architecture()->zero_centred)
      stack.is_zero_centred |= name.ends_with(std::string(module) + ".weight");
  }
}

// Hugging Face's [C,1,K] of a depthwise convolution is MLX's [C,K,1].
void DirectoryModel::settle_taps() {
  for (auto& [name, stack] : tensors_) {
    if (!name.ends_with(".conv1d.weight") || stack.shape.rank() != 3 || stack.shape[1] != 1) continue;
    stack.shape = {stack.shape[0], stack.shape[2], 1};
  }
}

bool DirectoryModel::has_mlx_layout() const {
  const auto format = files_.metadata().find("format");
  if (format != files_.metadata().end() && format->second == "mlx") return true;
  const std::vector<std::string> names = files_.names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.find(".switch_mlp.") != std::string::npos; });
}

// Saved from the inner model, without a head, every name lacks its first part.
void DirectoryModel::add_model_prefix() {
  const std::string prefix = "model.";
  if (!has("embed_tokens.weight") || has(prefix + "embed_tokens.weight")) return;
  std::map<std::string, Stack> renamed;
  for (auto& [name, stack] : tensors_)
    renamed.emplace(name.starts_with("lm_head.") ? name : prefix + name, std::move(stack));
  tensors_ = std::move(renamed);
  notices_.push_back("tensor names lack 'model.', read as if they had it");
}

void DirectoryModel::settle_tied_embeddings() {
  // The default differs: Hugging Face's is false, mlx-lm's llama ties unless told otherwise.
  if (is_mlx_ && config_.value("tie_word_embeddings", json()).is_null())
    config_["tie_word_embeddings"] = !has(kHead + ".weight");
  if (config_.value("tie_word_embeddings", json()) != true || !has(kHead + ".weight")) return;
  if (has(kEmbedding + ".weight")) {
    drop_or_keep_head();
  } else {
    take_head_for_embedding();
  }
}

// Of a tied pair only the output layer was saved.
void DirectoryModel::take_head_for_embedding() {
  for (const char* part : kParts) {
    if (const auto head = tensors_.find(kHead + part); head != tensors_.end()) {
      tensors_.emplace(kEmbedding + part, std::move(head->second));
      tensors_.erase(head);
    }
  }
  notices_.push_back("embeddings are tied and only lm_head is stored: read as both");
}

// A head of a tied pair is usually a copy; after fine-tuning it may have become another matrix.
void DirectoryModel::drop_or_keep_head() {
  bool same = true;
  for (const char* part : kParts) same = same && same_bytes(kEmbedding + part, kHead + part);
  if (!same) {
    config_["tie_word_embeddings"] = false;
    notices_.push_back(
        "config.json ties the embeddings, but lm_head is another matrix than the embedding: it is kept, and "
        "the model is read as untied");
    return;
  }
  for (const char* part : kParts) tensors_.erase(kHead + part);
}

// Whether both are there with the same contents, or neither.
bool DirectoryModel::same_bytes(const std::string& a, const std::string& b) const {
  const auto x = tensors_.find(a), y = tensors_.find(b);
  if (x == tensors_.end() || y == tensors_.end()) return x == y;
  const std::vector<TensorView>&p = x->second.parts, &q = y->second.parts;
  return x->second.shape == y->second.shape &&
         std::equal(p.begin(), p.end(), q.begin(), q.end(), [](const TensorView& u, const TensorView& v) {
           return u.dtype == v.dtype && u.bytes.size() == v.bytes.size() &&
                  std::memcmp(u.bytes.data(), v.bytes.data(), u.bytes.size()) == 0;
         });
}

void DirectoryModel::read_tensors() {
  std::map<std::string, ExpertParts> experts;
  std::set<std::string> left_out;
  for (const std::string& stored : files_.names()) {
    if (stored.ends_with("rotary_emb.inv_freq")) continue;  // follows from the config
    const std::optional<std::string> text = is_text_part_ ? text_tensor(stored) : stored;
    if (!text) {
      left_out.insert(part_of(stored));
      continue;
    }
    const std::string& name = *text;
    const TensorView& view = files_.at(stored);
    if (is_interleaved_ && add_interleaved(name, view)) continue;
    const ExpertName found = parse_expert_name(name);
    switch (found.kind) {
      case ExpertName::Kind::none:
        add(name, {view.shape, {view}});
        break;
      case ExpertName::Kind::single: {
        const bool is_new = experts[found.stacked].emplace(found.expert, view).second;
        if (!is_new) fail(ErrorCode::format, where(), ": expert tensor '", name, "' is there twice");
        break;
      }
      case ExpertName::Kind::stacked:
        add(found.stacked, {view.shape, {view}});
        break;
      case ExpertName::Kind::gate_up:
        add_gate_up(found.stacked, name, view);
        break;
    }
  }
  for (const auto& [name, parts] : experts) add_experts(name, parts);
  if (is_text_part_) notices_.push_back(text_notice(left_out));
}

void DirectoryModel::add(const std::string& name, Stack stack) {
  if (tensors_.emplace(name, std::move(stack)).second) return;
  fail(ErrorCode::format, where(), ": tensor '", name, "' is there in two spellings");
}

bool DirectoryModel::add_interleaved(const std::string& name, const TensorView& view) {
  const FindTensor find = [&](const std::string& other) {
    return files_.has(other) ? &files_.at(other) : nullptr;
  };
  const auto experts = interleaved_experts(where(), name, view, find);
  if (!experts) return false;
  for (const ExpertTensor& t : *experts) add(t.name, {t.shape, {}, false, t.values, t.dtype});
  return true;
}

// [E,2F,D], the gate's rows first, is seen as two stacks of E parts.
void DirectoryModel::add_gate_up(const std::string& mlp, const std::string& name, const TensorView& view) {
  if (view.shape.rank() != 3 || view.shape[1] % 2 != 0) {
    fail(ErrorCode::format, where(), ": tensor '", name, "': has shape ", view.shape, ", expected [E,2F,D]");
  }
  const std::int64_t experts = view.shape[0], rows = view.shape[1] / 2, cols = view.shape[2];
  Stack gate{{experts, rows, cols}, {}};
  Stack up = gate;
  for (std::int64_t e = 0; e < experts; ++e) {
    const TensorView both{view.dtype, {2 * rows, cols}, slice(view, e, e + 1).bytes};
    gate.parts.push_back(slice(both, 0, rows));
    up.parts.push_back(slice(both, rows, 2 * rows));
  }
  add(mlp + "gate_proj.weight", std::move(gate));
  add(mlp + "up_proj.weight", std::move(up));
}

void DirectoryModel::add_experts(const std::string& name, const ExpertParts& parts) {
  const TensorView& first = parts.begin()->second;
  Stack stack;
  for (const auto& [expert, view] : parts) {
    const auto wanted = static_cast<std::int64_t>(stack.parts.size());
    if (expert != wanted)
      fail(ErrorCode::format, where(), ": expert ", wanted, " of '", name, "' is missing");
    if (view.dtype != first.dtype || view.shape != first.shape) {
      fail(ErrorCode::format, where(), ": expert ", expert, " of '", name, "' is ", view.dtype, view.shape,
           ", expert 0 is ", first.dtype, first.shape);
    }
    stack.parts.push_back(view);
  }
  std::vector<std::int64_t> dims = first.shape.dims();
  dims.insert(dims.begin(), static_cast<std::int64_t>(parts.size()));
  stack.shape = Shape(std::move(dims));
  add(name, std::move(stack));
}

std::vector<std::string> DirectoryModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, stack] : tensors_) names.push_back(name);
  return names;
}

const Stack& DirectoryModel::stack(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  files_.at(name);  // says more if a shard holds it and the index doesn't
  fail(ErrorCode::format, where(), ": tensor '", name, "' is offered under its stacked name only");
}

DType DirectoryModel::stored_dtype(const std::string& name) const {
  const Stack& found = stack(name);
  const FileDType dtype = found.parts.empty() ? found.dtype : found.parts.front().dtype;
  switch (dtype) {
    case FileDType::F64:
    case FileDType::F32:
      return DType::f32;
    case FileDType::BF16:
      return DType::bf16;
    case FileDType::F16:
      return DType::f16;
    case FileDType::U32:
      return DType::u32;
    default:
      fail(ErrorCode::not_supported, where(), ": tensor '", name, "': ", dtype, " is not supported");
  }
}

// Plus 1, rounded once.
Buffer load_zero_centred(const std::string& name, const TensorView& view, DType wanted,
                         const Device& device) {
  std::vector<float> values = mixtape::load(name, view, DType::f32, Device::cpu()).to_vector<float>();
  for (float& v : values) v += 1.0f;
  const TensorView whole{FileDType::F32, view.shape, std::as_bytes(std::span(values))};
  return mixtape::load(name, whole, wanted, device);
}

Buffer DirectoryModel::load(const std::string& name, DType wanted, const Device& device) const {
  const Stack& found = stack(name);
  if (found.is_zero_centred) return load_zero_centred(name, found.parts.at(0), wanted, device);
  if (found.parts.size() == 1) {
    const TensorView whole{found.parts[0].dtype, found.shape, found.parts[0].bytes};
    return mixtape::load(name, whole, wanted, device);
  }
  Buffer buffer = device.alloc_uninitialized(wanted, found.shape);
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    load_into(name, found.parts[i], buffer.slice(row, row + 1));
  }
  for (std::int64_t e = 0; found.expert && e < found.shape[0]; ++e) {
    const std::vector<float> values = found.expert(e);
    const Buffer target = buffer.slice(e, e + 1);
    load_into(name, {FileDType::F32, target.shape(), std::as_bytes(std::span(values))}, target);
  }
  return buffer;
}

json DirectoryModel::generation_config_json() const {
  const fs::path path = path_ / "generation_config.json";
  return is_file(path) ? read_config_json(path) : json();
}

std::map<std::string, std::string> DirectoryModel::extra_files() const {
  std::map<std::string, std::string> files;
  for (const char* name : kExtraFiles) {
    if (is_file(path_ / name)) files.emplace(name, read_text(path_ / name));
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {  // code that a model's config names
    if (entry.path().extension() == ".py" && is_file(entry.path()))
      files.emplace(entry.path().filename().string(), read_text(entry.path()));
  }
  return files;
}

}  // namespace

std::unique_ptr<ModelSource> open_directory_model(const fs::path& path) {
  return std::make_unique<DirectoryModel>(path);
}

}  // namespace mixtape
