#include "mixtape/quant/tensor_providers.h"

#include <algorithm>
#include <map>
#include <memory>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

// What the GGUF file of the source has under the tensor's name; null where there is none, or none in
// blocks that are a codec's.
const GgufTensor* find_blocks(const ModelSource& source, const ModelTensor& tensor) {
  const GgufFile* file = gguf_file_of(source);
  const GgufTensor* found = file == nullptr ? nullptr : file->find_tensor(tensor.gguf_name);
  const bool is_codec =
      found != nullptr && block_type_of(gguf_type_info(found->type).name) != BlockType::none;
  return is_codec ? found : nullptr;
}

QuantizedWeight load_blocks(const ModelTensor& tensor, const GgufTensor& found) {
  const BlockType type = block_type_of(gguf_type_info(found.type).name);
  const std::int64_t rows = tensor.shape.rows(), heads = tensor.gguf_interleaved_heads;
  if (heads == 0) return from_block_bytes(tensor.name, type, tensor.shape, found.bytes, Device::cpu());
  std::vector<std::byte> ordered;
  ordered.reserve(found.bytes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t from = gguf_row(row, rows, heads);
    const std::span<const std::byte> bytes = found.rows(from, from + 1);
    ordered.insert(ordered.end(), bytes.begin(), bytes.end());
  }
  return from_block_bytes(tensor.name, type, tensor.shape, ordered, Device::cpu());
}

StoredAs stored_as_it_is(const ModelSource& source, const QuantizedReader& reader, const ModelTensor& t) {
  const std::string path = module_path(t.name);
  if (reader.is_quantized(path)) return reader.format(path, t.shape);
  const GgufTensor* blocks = find_blocks(source, t);
  if (blocks == nullptr || t.kind == TensorKind::vector) return std::nullopt;
  return WeightFormat(block_type_of(gguf_type_info(blocks->type).name));
}

Buffer decoded(const QuantizedWeight& q) {
  const Buffer w = q.codes.device().alloc_uninitialized(DType::f32, weight_shape(q));
  CommandEncoder encoder(w.device());
  dequantize_affine_forward(encoder, q, w);
  encoder.commit_and_wait();
  return w;
}

std::map<std::string, ModelTensor> tensors_by_name(const ModelSource& source) {
  std::map<std::string, ModelTensor> found;
  for (const ModelTensor& t : tensor_list(source.config())) found.emplace(t.name, t);
  return found;
}

}  // namespace

QuantizationConfig config_of(const std::vector<PlannedModule>& modules) {
  std::vector<std::pair<WeightFormat, int>> formats;
  for (const PlannedModule& m : modules) {
    if (!m.stored) continue;
    const auto same = std::find_if(formats.begin(), formats.end(),
                                   [&](const auto& entry) { return entry.first == *m.stored; });
    same == formats.end() ? void(formats.emplace_back(*m.stored, 1)) : void(++same->second);
  }
  const auto most = std::max_element(formats.begin(), formats.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  QuantizationConfig config;
  if (most == formats.end()) return config;
  config.defaults = most->first;
  for (const PlannedModule& m : modules) {
    if (m.kind != TensorKind::vector && m.stored != StoredAs(config.defaults))
      config.modules.emplace(m.path, m.stored);
  }
  return config;
}

const QuantizedWeight& checked_weight(const QuantizedWeight& q, const PlannedModule& m) {
  require(format_of(q) == *m.stored, m.path, ": got ", format_of(q).name(), ", the plan says ",
          m.stored->name());
  return q;
}

TensorProvider rounded_tensors(const ModelSource& source, Rounding rounding, DType scale_dtype,
                               const Device& device) {
  return {[&source, rounding, scale_dtype, device](const PlannedModule& m) {
            const Buffer w = source.load(m.source, source.stored_dtype(m.source), device);
            return quantize_matrix(m.source, w, *m.stored, rounding, scale_dtype);
          },
          nullptr};
}

QuantizationPlan plan_of_stored(const ModelSource& source) {
  const QuantizedReader reader(source);
  QuantizationPlan plan;
  const std::vector<ModelTensor> tensors = tensor_list(source.config());
  for (const ModelTensor& t : tensors) {
    const std::string path = module_path(t.name);
    if (!source.has(t.name)) fail(ErrorCode::format, source.where(), ": tensor '", t.name, "' is missing");
    const bool is_weight = t.name.ends_with(".weight");
    StoredAs stored;
    if (is_weight) stored = stored_as_it_is(source, reader, t);
    if (!stored && source.shape(t.name) != t.shape) {
      fail(ErrorCode::format, source.where(), ": tensor '", t.name, "' is ", source.shape(t.name),
           ", expected ", t.shape);
    }
    if (is_weight) {
      plan.modules.push_back({path, t.name, t.shape, t.kind, stored, ""});
    } else {
      plan.others.push_back(t.name);
    }
  }
  plan.left_out = foreign_tensors(source, tensors);
  plan.config = config_of(plan.modules);
  return plan;
}

TensorProvider stored_tensors(const ModelSource& source) {
  const auto reader = std::make_shared<QuantizedReader>(source);
  return {[&source, reader, tensors = tensors_by_name(source)](const PlannedModule& m) {
            const ModelTensor& tensor = tensors.at(m.source);
            const GgufTensor* blocks = find_blocks(source, tensor);
            if (blocks == nullptr) return reader->load(m.path, m.shape, DType::f32, Device::cpu());
            return m.stored->is_blocks() ? load_blocks(tensor, *blocks) : *load_stored_blocks(source, tensor);
          },
          nullptr};
}

std::optional<QuantizedWeight> load_stored_blocks(const ModelSource& source, const ModelTensor& tensor) {
  const GgufTensor* blocks = tensor.kind == TensorKind::vector ? nullptr : find_blocks(source, tensor);
  if (blocks == nullptr) return std::nullopt;
  QuantizedWeight weight = load_blocks(tensor, *blocks);
  weight.blocks = {};
  return weight;
}

QuantizationPlan plan_of_decoded(const ModelSource& source) {
  QuantizationPlan plan = plan_of_stored(source);
  for (PlannedModule& m : plan.modules) m.stored = std::nullopt;
  plan.config = {};
  return plan;
}

TensorProvider decoded_tensors(const ModelSource& source) {
  const auto reader = std::make_shared<QuantizedReader>(source);
  return {nullptr, [&source, reader, tensors = tensors_by_name(source)](const std::string& name) {
            const std::string path = module_path(name);
            if (name.ends_with(".weight") && reader->is_quantized(path))
              return decoded(reader->load(path, tensors.at(name).shape, DType::f32, Device::cpu()));
            return source.load(name, source.stored_dtype(name), Device::cpu());
          }};
}

}  // namespace mixtape
