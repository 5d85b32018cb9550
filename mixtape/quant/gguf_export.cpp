#include "mixtape/quant/gguf_export.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_config_writer.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/io/gguf_tokenizer_writer.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/tensor_providers.h"

namespace mixtape {
namespace {

GgufType value_type(DType dtype) {
  return dtype == DType::f16 ? GgufType::f16 : dtype == DType::bf16 ? GgufType::bf16 : GgufType::f32;
}

const std::string& source_name(const ModelTensor& tensor, const PlannedModule* module) {
  return module ? module->source : tensor.name;
}

GgufType type_of(const ModelSource& source, const ModelTensor& tensor, const PlannedModule* module,
                 std::optional<DType> floats) {
  if (module && module->stored) return gguf_type_of(*module->stored);
  const bool is_small = tensor.kind == TensorKind::vector || tensor.kind == TensorKind::router;
  if (is_small) return GgufType::f32;
  return value_type(floats ? *floats : source.stored_dtype(source_name(tensor, module)));
}

std::vector<GgufPlannedTensor> tensors_of(const ModelSource& source, const ModelConfig& config,
                                          const QuantizationPlan& plan, std::optional<DType> floats) {
  std::vector<GgufPlannedTensor> tensors;
  for (const ModelTensor& t : tensor_list(config)) {
    const PlannedModule* module = t.name.ends_with(".weight") ? plan.find(module_path(t.name)) : nullptr;
    tensors.push_back({t, module, type_of(source, t, module, floats)});
  }
  return tensors;
}

// llama.cpp's number for a file whose matrices are mostly of this type, of several mixes that of the middle one.
std::uint32_t file_type(GgufType type) {
  if (type == GgufType::f16) return 1;
  if (type == GgufType::bf16) return 32;
  std::vector<std::uint32_t> found;
  for (const GgufMix& mix : gguf_mixes()) {
    if (gguf_type(mix.base) == type) found.push_back(mix.file_type);
  }
  return found.empty() ? 0 : found[found.size() > 1 ? 1 : 0];  // 0: F32
}

// The tensor of the source's GGUF file that has the planned one's name, type and shape; null if there is none.
const GgufTensor* find_same(const GgufFile* file, const GgufPlannedTensor& t) {
  const GgufTensor* found = file == nullptr ? nullptr : file->find_tensor(t.tensor.gguf_name);
  return found != nullptr && found->type == t.type && found->shape == t.tensor.gguf_shape() ? found : nullptr;
}

// By weights.
GgufType most_common_type(const std::vector<GgufPlannedTensor>& tensors) {
  std::map<GgufType, std::int64_t> weights;
  for (const GgufPlannedTensor& t : tensors) {
    if (t.tensor.kind != TensorKind::vector) weights[t.type] += t.tensor.shape.numel();
  }
  return std::max_element(weights.begin(), weights.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// A file of the types of the source's is called as that one.
std::uint32_t file_type(const ModelSource& source, const GgufPlan& plan) {
  const GgufFile* file = gguf_file_of(source);
  const bool same = std::all_of(plan.tensors.begin(), plan.tensors.end(),
                                [&](const GgufPlannedTensor& t) { return find_same(file, t) != nullptr; });
  const char* key = "general.file_type";
  return same && file->has(key) ? static_cast<std::uint32_t>(file->integer(key))
                                : file_type(most_common_type(plan.tensors));
}

// The last part of the path, without ".gguf".
std::string model_name(const ModelSource& source) {
  const std::filesystem::path path = std::filesystem::path(source.where()).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

nlohmann::json planned_config(const ModelSource& source, const QuantizationPlan& plan) {
  nlohmann::json json = source.config_json();
  if (plan.unties_embeddings) json["tie_word_embeddings"] = false;
  return json;
}

// Without metadata.
GgufPlan planned_tensors(const ModelSource& source, const ModelConfig& config, const QuantizationPlan& plan,
                         std::optional<DType> floats) {
  GgufPlan gguf;
  gguf.tensors = tensors_of(source, config, plan, floats);
  gguf.rope_tensors = gguf_rope_tensors(config);
  return gguf;
}

Buffer dense_tensor(const ModelSource& source, const GgufPlannedTensor& t, const TensorProvider& tensors) {
  if (tensors.dense) return tensors.dense(t.tensor.name);
  const std::string& from = source_name(t.tensor, t.module);
  return source.load(from, source.stored_dtype(from), Device::cpu());
}

// The values as GGUF stores them.
Buffer values_of_gguf(const Buffer& values, const ModelTensor& tensor) {
  if (tensor.gguf_offset == 0.0f && !tensor.gguf_is_decay) return values;
  const Buffer single = stored_as(DType::f32, tensor.name, values);
  std::vector<float> stored = single.to_vector<float>();
  for (float& v : stored) v = tensor.to_gguf(v);
  return Buffer::from(Device::cpu(), values.shape(), stored);
}

Buffer bytes_of(const ModelSource& source, const GgufPlannedTensor& t, const TensorProvider& tensors,
                GgufLoss& loss) {
  const ModelTensor& tensor = t.tensor;
  const bool is_quantized = t.module && t.module->stored;
  const Buffer bytes =
      is_quantized
          ? gguf_bytes(tensor.name, checked_weight(tensors.quantized(*t.module), *t.module), loss)
          : gguf_bytes(tensor.name, t.type, values_of_gguf(dense_tensor(source, t, tensors), tensor));
  const std::int64_t rows = tensor.shape.rank() < 2 ? tensor.shape.numel() : tensor.shape.rows();
  return in_gguf_order(bytes, rows, tensor.gguf_interleaved_heads);
}

}  // namespace

GgufLayout GgufPlan::layout() const {
  std::vector<GgufTensorSpec> specs;
  for (const GgufRopeTensor& t : rope_tensors)
    specs.push_back({t.name, GgufType::f32, {std::ssize(t.divisors)}});
  for (const GgufPlannedTensor& t : tensors)
    specs.push_back({t.tensor.gguf_name, t.type, t.tensor.gguf_shape()});
  return GgufLayout(metadata, specs);
}

std::int64_t GgufPlan::tensor_bytes() const {
  std::int64_t bytes = 0;
  const GgufLayout all = layout();
  for (const auto& [name, slot] : all.slots()) bytes += static_cast<std::int64_t>(slot.bytes);
  return bytes;
}

std::map<GgufType, std::int64_t> GgufPlan::types() const {
  std::map<GgufType, std::int64_t> count;
  for (const GgufPlannedTensor& t : tensors) ++count[t.type];
  return count;
}

std::int64_t gguf_tensor_bytes(const ModelSource& source, const QuantizationPlan& plan, DType dtype) {
  const ModelConfig config = ModelConfig::parse(planned_config(source, plan), source.where());
  return planned_tensors(source, config, plan, dtype).tensor_bytes();
}

GgufPlan plan_gguf(const ModelSource& source, const QuantizationPlan& plan, std::optional<DType> floats,
                   const GgufMix* mix) {
  const nlohmann::json json = planned_config(source, plan);
  const std::string where = source.where();
  const ModelConfig config = ModelConfig::parse(json, where);
  GgufPlan gguf = planned_tensors(source, config, plan, floats);
  add_gguf_config(json, where, gguf.metadata);
  gguf.metadata.add("general.type", "model");
  gguf.metadata.add("general.name", model_name(source));
  gguf.metadata.add("general.file_type", mix ? mix->file_type : file_type(source, gguf));
  gguf.metadata.add("general.quantization_version", std::uint32_t{2});
  add_gguf_tokenizer(source.tokenizer_json(), source.tokenizer_config_json(), config, where, gguf.metadata);
  return gguf;
}

void carry_tensors(const ModelSource& source, GgufPlan& plan) {
  for (GgufPlannedTensor& t : plan.tensors) {
    if (const GgufTensor* found = find_same(gguf_file_of(source), t)) t.carried = found->bytes;
  }
}

GgufLoss write_gguf_model(AtomicFile& file, const ModelSource& source, const GgufPlan& plan,
                          const TensorProvider& tensors, const RunHooks& hooks) {
  GgufLoss loss;
  GgufWriter writer(file, plan.layout());
  for (const GgufRopeTensor& t : plan.rope_tensors)
    writer.write(t.name, std::as_bytes(std::span(t.divisors)));
  const std::int64_t total = std::ssize(plan.tensors);
  std::future<void> writing;  // of the tensor before
  for (std::int64_t i = 0; i < total; ++i) {
    hooks.report({.stage = "writing", .done = i, .total = total, .unit = "tensors"});
    hooks.throw_if_stopped("writing");
    const GgufPlannedTensor& t = plan.tensors[static_cast<std::size_t>(i)];
    const Buffer computed = t.carried.empty() ? bytes_of(source, t, tensors, loss) : Buffer();
    if (writing.valid()) writing.get();
    writing = std::async(std::launch::async, [&writer, &t, computed] {
      writer.write(t.tensor.gguf_name,
                   computed ? std::span(computed.host_bytes(), computed.bytes()) : t.carried);
    });
  }
  if (writing.valid()) writing.get();
  hooks.report({.stage = "writing", .done = total, .total = total, .unit = "tensors"});
  writer.commit();
  return loss;
}

}  // namespace mixtape
