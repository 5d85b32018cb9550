#include "mixtape/quant/quantization_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

const std::string kEmbedding = "model.embed_tokens";
const std::string kHead = "lm_head";
// Of routers, where they are quantized.
constexpr AffineParams kRouterParams = {8, 64};
constexpr std::int32_t kGgufGroup = 32;  // of affine codes beside blocks
constexpr BlockType kRouterBlocks = BlockType::q8_0;

// Orders tensors as the model runs: numbers by value, the output matrix last.
std::string sort_key(const std::string& name) {
  std::string key = name.starts_with(kHead) ? "~" : "";
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t end = std::min(name.find_first_not_of("0123456789", i), name.size());
    if (end > i) key.append(end - i < 8 ? 8 - (end - i) : 0, '0');
    key += name.substr(i, std::max<std::size_t>(end - i, 1));
    i = std::max(end, i + 1);
  }
  return key;
}

// The options' settings by canonical path, with those of a tied model's two ends made complete.
class Settings {
 public:
  Settings(const ModelSource& source, const std::vector<ModelTensor>& tensors,
           const QuantizationOptions& options) {
    const bool tied = source.config().tie_word_embeddings;
    take_modules(options);
    if (tied) join_ends();
    for (const ModuleRule& rule : options.rules) {
      const StoredAs stored =
          stored_by(rule, options.params.is_blocks() ? kGgufGroup : options.params.group_size);
      for (const std::string& path : matched_modules(rule, tensors, tied, source.where())) {
        set(path, stored, tied);
      }
    }
    if (tied) join_ends();
  }
  const StoredAs* find(const std::string& path) const {
    const auto found = by_path_.find(canonical_path(path));
    return found == by_path_.end() ? nullptr : &found->second;
  }
  bool unties() const { return unties_; }
  const std::map<std::string, StoredAs>& all() const { return by_path_; }

 private:
  void take_modules(const QuantizationOptions& options) {
    options.params.check("quantization");
    for (const auto& [path, stored] : options.modules) {
      if (stored) stored->check("quantization of '" + path + "'");
      const bool is_new = by_path_.emplace(canonical_path(path), stored).second;
      require(is_new, "quantization of '", path, "' is asked for twice");
    }
  }
  static StoredAs stored_by(const ModuleRule& rule, std::int32_t group_size) {
    if (rule.block != BlockType::none) return WeightFormat(rule.block);
    if (rule.bits == 0) return std::nullopt;
    const WeightFormat params = {rule.bits, rule.group_size == 0 ? group_size : rule.group_size};
    params.check("bits for '" + rule.pattern + "'");
    return params;
  }
  // By a rule: of a tied model's two names one stands for both.
  void set(const std::string& path, const StoredAs& stored, bool tied) {
    const bool is_embedding = tied && !unties_ && path == kHead;
    by_path_.insert_or_assign(is_embedding ? kEmbedding : canonical_path(path), stored);
  }
  // A tied model's two ends: one setting counts for both, two unequal ones untie them.
  void join_ends() {
    if (const StoredAs* head = find(kHead)) by_path_.emplace(kEmbedding, *head);
    if (const StoredAs* embedding = find(kEmbedding)) by_path_.emplace(kHead, *embedding);
    unties_ = find(kHead) && *find(kHead) != *find(kEmbedding);
    if (!unties_) by_path_.erase(kHead);
  }

  std::map<std::string, StoredAs> by_path_;
  bool unties_ = false;
};

// What llama.cpp takes for rows that are no whole blocks of a type.
BlockType smaller_blocks(BlockType type) {
  switch (type) {
    case BlockType::q2_k:
    case BlockType::q3_k:
      return BlockType::q4_0;
    case BlockType::q4_k:
      return BlockType::q5_0;
    case BlockType::q5_k:
      return BlockType::q5_1;
    case BlockType::q6_k:
      return BlockType::q8_0;
    default:
      return type;
  }
}

std::int64_t smallest_unit(const WeightFormat& wanted) {
  return wanted.is_blocks() ? WeightFormat(smaller_blocks(wanted.block)).unit() : wanted.unit();
}

// Decides how `module` is stored.
void decide(PlannedModule& module, const Settings& settings, const QuantizationOptions& options) {
  const StoredAs* asked = settings.find(module.path);
  const bool is_router = module.kind == TensorKind::router;
  if (module.kind == TensorKind::vector) {
    require(!asked || !*asked, "quantization of '", module.path, "': has shape ", module.shape,
            ", expected a matrix");
    return;
  }
  if (asked && !*asked) {
    module.reason = "asked to stay in float";
    return;
  }
  if (!asked && is_router && !options.quantize_routers) {
    module.reason = "router";
    return;
  }
  const bool in_blocks = options.params.is_blocks();
  const WeightFormat wanted = asked                     ? **asked
                              : is_router && !in_blocks ? WeightFormat(kRouterParams)
                              : is_router               ? WeightFormat(kRouterBlocks)
                                                        : options.params;
  const std::int64_t cols = module.shape.cols();
  module.stored = fitting_format(cols, wanted, options.smaller_groups);
  if (module.stored && *module.stored != wanted) module.instead_of = wanted;
  module.by_default = module.stored && !asked && !is_router;
  if (module.stored) return;
  require(!asked, "quantization of '", module.path, "': rows have ", cols,
          " weights, expected a multiple of ", wanted.unit());
  module.reason = str("input size ", cols, " is not a multiple of ", smallest_unit(wanted));
}

std::string path_of(const std::string& name) {
  return name.substr(0, name.size() - std::string(".weight").size());
}

void refuse_quantized(const ModelSource& source) {
  if (QuantizationConfig::find(source.config_json(), source.where())) {
    fail(ErrorCode::not_supported, source.where(), ": is quantized already, expected a float model");
  }
}

// The source's tensor of this name and shape.
void check_tensor(const ModelSource& source, const ModelTensor& wanted) {
  if (!source.has(wanted.name))
    fail(ErrorCode::format, source.where(), ": tensor '", wanted.name, "' is missing");
  const Shape found = source.shape(wanted.name);
  if (found == wanted.shape) return;
  fail(ErrorCode::format, source.where(), ": tensor '", wanted.name, "' is ", found, ", expected ",
       wanted.shape);
}

void list_tensors(const ModelSource& source, const std::vector<ModelTensor>& tensors, bool untie,
                  QuantizationPlan& plan) {
  std::map<std::string, const ModelTensor*> known;
  for (const ModelTensor& t : tensors) {
    check_tensor(source, t);
    known.emplace(t.name, &t);
  }
  std::vector<std::string> names = source.names();
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return sort_key(a) < sort_key(b); });
  for (const std::string& name : names) {
    const auto found = known.find(name);
    if (found == known.end()) continue;
    if (!name.ends_with(".weight")) {
      plan.others.push_back(name);
    } else {
      plan.modules.push_back({path_of(name), name, found->second->shape, found->second->kind, {}, ""});
    }
  }
  plan.left_out = foreign_tensors(source, tensors);
  if (!untie) return;
  const std::string embedding = kEmbedding + ".weight";
  plan.modules.push_back({kHead, embedding, source.shape(embedding), TensorKind::matrix, {}, ""});
}

}  // namespace

StoredAs fitting_format(std::int64_t cols, const WeightFormat& wanted, bool smaller_groups) {
  if (cols % wanted.unit() == 0) return wanted;
  if (wanted.is_blocks()) {
    const WeightFormat other = smaller_blocks(wanted.block);
    return cols % other.unit() == 0 ? StoredAs(other) : std::nullopt;
  }
  for (const std::int32_t group : {64, 32}) {
    if (smaller_groups && group < wanted.group_size && cols % group == 0)
      return WeightFormat(wanted.bits, group);
  }
  return std::nullopt;
}

QuantizationPlan plan_quantization(const ModelSource& source, const QuantizationOptions& options) {
  return plan_quantization(source, tensor_list(source.config()), options);
}

QuantizationPlan plan_quantization(const ModelSource& source, const std::vector<ModelTensor>& tensors,
                                   const QuantizationOptions& options) {
  refuse_quantized(source);
  const Settings settings(source, tensors, options);
  QuantizationPlan plan;
  plan.config.defaults = options.params;
  plan.unties_embeddings = settings.unties();
  list_tensors(source, tensors, plan.unties_embeddings, plan);
  for (const auto& [path, stored] : settings.all()) {
    const bool known =
        std::any_of(plan.modules.begin(), plan.modules.end(),
                    [&wanted = path](const PlannedModule& m) { return canonical_path(m.path) == wanted; });
    require(known, "quantization of '", path, "': ", source.where(), " has no such module");
  }
  for (PlannedModule& module : plan.modules) {
    decide(module, settings, options);
    const bool is_float_matrix = !module.stored && !module.reason.empty();
    if (is_float_matrix || (module.stored && *module.stored != options.params)) {
      plan.config.modules.emplace(module.path, module.stored);
    }
  }
  return plan;
}

std::vector<PlannedModule> QuantizationPlan::skipped() const {
  std::vector<PlannedModule> list;
  std::copy_if(modules.begin(), modules.end(), std::back_inserter(list),
               [](const PlannedModule& m) { return !m.reason.empty(); });
  return list;
}

const PlannedModule* QuantizationPlan::find(const std::string& path) const {
  const auto found =
      std::find_if(modules.begin(), modules.end(), [&](const PlannedModule& m) { return m.path == path; });
  return found == modules.end() ? nullptr : &*found;
}

StorageSize storage_size(const ModelSource& source, const QuantizationPlan& plan, DType dtype) {
  StorageSize size;
  const auto value = static_cast<std::int64_t>(size_of(dtype));
  for (const PlannedModule& m : plan.modules) {
    size.weights += m.shape.numel();
    size.bytes +=
        m.stored ? codec_of(*m.stored).stored_bytes(m.shape, *m.stored, dtype) : value * m.shape.numel();
  }
  for (const std::string& name : plan.others) {
    size.weights += source.shape(name).numel();
    size.bytes += value * source.shape(name).numel();
  }
  return size;
}

}  // namespace mixtape
