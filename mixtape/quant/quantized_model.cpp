#include "mixtape/quant/quantized_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/on_host.h"
#include "mixtape/quant/tensor_providers.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

using nlohmann::json;

template <class T>
bool has_infinity(const Buffer& b) {
  const std::uint16_t* bits = reinterpret_cast<const std::uint16_t*>(b.host_data<T>());
  constexpr std::uint16_t kMagnitude = 0x7fff;
  const std::uint16_t infinite = T(std::numeric_limits<float>::infinity()).bits;
  const std::int64_t count = b.numel();
  unsigned found = 0;
#pragma omp parallel for reduction(| : found) if (count > 1 << 20)
  for (std::int64_t i = 0; i < count; ++i) found |= (bits[i] & kMagnitude) == infinite ? 1u : 0u;
  return found != 0;
}

// Throws for a finite value of `from` that became infinite in `to`.
template <class T>
void refuse_overflow(const std::string& name, const Buffer& from, const Buffer& to) {
  if (!has_infinity<T>(to)) return;
  const std::vector<float> values = stored_as(DType::f32, name, from).template to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool overflows = std::isfinite(values[i]) && !std::isfinite(static_cast<float>(T(values[i])));
    require(!overflows, name, ": value ", values[i], " at position ", i, " overflows ", dtype_of<T>());
  }
}

std::vector<TensorSpec> specs_of(const ModelSource& source, const QuantizationPlan& plan, DType dtype) {
  require(is_value(dtype), "quantized model: dtype is ", dtype, ", expected f32, bf16 or f16");
  std::vector<TensorSpec> specs;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) {
      specs.push_back({m.path + ".weight", file_dtype_of(dtype), m.shape});
      continue;
    }
    for (const WeightPart& part : codec_of(*m.stored).parts(m.shape, *m.stored, dtype))
      specs.push_back({m.path + part.suffix, file_dtype_of(part.dtype), part.shape});
  }
  for (const std::string& name : plan.others)
    specs.push_back({name, file_dtype_of(dtype), source.shape(name)});
  return specs;
}

json written_config(const ModelSource& source, const QuantizationPlan& plan, DType dtype) {
  json config = source.config_json();
  if (plan.unties_embeddings) config["tie_word_embeddings"] = false;
  const char* name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key)) config[key] = name;
  }
  json written = to_mlx_config(config, plan.config.to_json(), source.where());
  const bool is_float = std::none_of(plan.modules.begin(), plan.modules.end(),
                                     [](const PlannedModule& m) { return m.stored.has_value(); });
  for (const char* key : {"quantization", "quantization_config"}) {
    if (is_float) written.erase(key);
  }
  return written;
}

void write_module(SafetensorsDirectoryWriter& writer, const PlannedModule& m, const TensorProvider& tensors,
                  DType dtype) {
  const QuantizedWeight q = checked_weight(tensors.quantized(m), m);
  const WeightCodec& codec = codec_of(q);
  const std::vector<WeightPart> parts = codec.parts(m.shape, *m.stored, dtype);
  const std::vector<Buffer> buffers = codec.buffers(codec.stored(m.path, q, dtype));
  for (std::size_t i = 0; i < parts.size(); ++i) writer.write(m.path + parts[i].suffix, buffers[i]);
}

void write_tensors(const std::filesystem::path& directory, const ModelSource& source,
                   const QuantizationPlan& plan, const TensorProvider& tensors, DType dtype,
                   const RunHooks& hooks) {
  const auto dense = [&](const std::string& name, const std::string& from) {
    const Buffer value =
        tensors.dense ? tensors.dense(name) : source.load(from, source.stored_dtype(from), Device::cpu());
    return stored_as(dtype, name, value);
  };
  ShardOptions options;
  options.total_parameters = storage_size(source, plan, dtype).weights;
  SafetensorsDirectoryWriter writer(directory, specs_of(source, plan, dtype), options);
  const std::size_t total = plan.modules.size() + plan.others.size();
  auto next = [&, done = std::int64_t{0}]() mutable {
    hooks.report(
        {.stage = "writing", .done = done++, .total = static_cast<std::int64_t>(total), .unit = "tensors"});
    hooks.throw_if_stopped("writing");
  };
  for (const PlannedModule& m : plan.modules) {
    next();
    if (m.stored) {
      write_module(writer, m, tensors, dtype);
    } else {
      writer.write(m.path + ".weight", dense(m.path + ".weight", m.source));
    }
  }
  for (const std::string& name : plan.others) {
    next();
    writer.write(name, dense(name, name));
  }
  next();
  writer.commit();
}

}  // namespace

Buffer stored_as(DType dtype, const std::string& name, const Buffer& b) {
  if (b.dtype() == dtype) return b;
  const Buffer stored = b.device().alloc_uninitialized(dtype, b.shape());
  CommandEncoder encoder(b.device());
  cast_forward(encoder, b, stored);
  encoder.commit_and_wait();
  if (dtype == DType::bf16) refuse_overflow<bf16>(name, b, on_host(stored));
  if (dtype == DType::f16) refuse_overflow<f16>(name, b, on_host(stored));
  return stored;
}

QuantizedWeight quantize_blocks(const Buffer& w, const Buffer& importance, BlockType type, BlockFit how) {
  const QuantizedWeight q = alloc_blocks(w.device(), w.shape(), type);
  CommandEncoder encoder(w.device());
  fit_blocks_forward(encoder, w, importance, q, how);
  encoder.commit_and_wait();
  return codec_of(q).weight(codec_of(q).buffers(q), type);
}

QuantizedWeight quantize_matrix(const std::string& name, const Buffer& w, const WeightFormat& format,
                                Rounding rounding, DType scale_dtype) {
  format.check(name);
  try {
    if (format.is_blocks())
      return quantize_blocks(stored_as(DType::f32, name, w), {}, format.block, BlockFit::plain);
    format.check_cols(name, w.shape().cols());
    const QuantizedWeight q = alloc_quantized(w.device(), w.shape(), format, scale_dtype);
    CommandEncoder encoder(w.device());
    quantize_affine_forward(encoder, w, q, rounding);
    encoder.commit_and_wait();
    return q;
  } catch (const Error& error) {
    fail(error.code(), name, ": ", error.what());
  }
}

DType model_dtype(const ModelSource& source) {
  const std::optional<DType> stated = source.config().dtype;
  return stated ? *stated : source.stored_dtype("model.embed_tokens.weight");
}

void refuse_for_mlx(const ModelSource& source, const QuantizationPlan& plan) {
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored || !m.stored->is_blocks()) continue;
    const WeightFormat& asked = m.instead_of ? *m.instead_of : *m.stored;
    fail(ErrorCode::invalid_argument, "'", m.path, "' is planned as ", asked.name(),
         ", which only a GGUF file holds, expected affine codes");
  }
  written_config(source, plan, DType::f32);
}

void write_quantized_model(AtomicDirectory& output, const ModelSource& source, const QuantizationPlan& plan,
                           const TensorProvider& tensors, DType dtype, const RunHooks& hooks) {
  refuse_for_mlx(source, plan);
  const json config = written_config(source, plan, dtype);
  write_tensors(output.path(), source, plan, tensors, dtype, hooks);
  for (const auto& [name, contents] : source.extra_files()) write_file(output.path() / name, contents);
  write_file(output.path() / "config.json", config.dump(4) + "\n");
  output.commit();
}

void write_rounded_model(AtomicDirectory& output, const ModelSource& source, const QuantizationPlan& plan,
                         Rounding rounding, DType dtype, const Device& device, const RunHooks& hooks) {
  write_quantized_model(output, source, plan, rounded_tensors(source, rounding, dtype, device), dtype, hooks);
}

QuantizedReader::QuantizedReader(const ModelSource& source)
    : source_(source), config_(QuantizationConfig::find(source.config_json(), source.where())) {
  if (!config_) return;
  std::vector<std::string> paths;
  for (const std::string& name : source.names()) {
    if (name.ends_with(".weight")) paths.push_back(name.substr(0, name.rfind('.')));
  }
  // A tied model's head is the embedding: an entry for it is met by that.
  if (source.config().tie_word_embeddings) paths.push_back("lm_head");
  config_->check_keys(paths, source.where());
}

bool QuantizedReader::is_quantized(const std::string& path) const {
  const bool has_scales = source_.has(path + ".scales");
  const StoredAs* named = config_ ? config_->find_module(path) : nullptr;
  if (!config_ || (named && !*named)) {
    if (!has_scales) return false;
    fail(ErrorCode::format, source_.where(), ": '", path,
         "' has scales, but the config says that it is float");
  }
  if (named && !has_scales) {
    fail(ErrorCode::format, source_.where(), ": tensor '", path,
         ".scales' is missing, the config says that '", path, "' is quantized");
  }
  return has_scales;
}

AffineParams QuantizedReader::format(const std::string& path, const Shape& shape) const {
  const std::string where = source_.where() + ": '" + path + "'";
  const Shape codes = source_.shape(path + ".weight"), scales = source_.shape(path + ".scales");
  const std::int64_t groups = scales.cols();
  AffineParams found;
  found.group_size = groups > 0 ? static_cast<std::int32_t>(shape.cols() / groups) : 0;
  found.bits = bits_from_shapes(where, codes.cols(), groups, found.group_size);
  const StoredAs* named = config_ ? config_->find_module(path) : nullptr;
  if (named && *named && **named != found) {
    fail(ErrorCode::format, where, ": has ", found.bits, " bits in groups of ", found.group_size,
         " by its shapes, the config says ", (*named)->bits, " in groups of ", (*named)->group_size);
  }
  try {
    found.check(where);
    found.check_cols(where, shape.cols());
  } catch (const Error& error) {
    fail(ErrorCode::format, error.what());
  }
  const bool fits = source_.stored_dtype(path + ".weight") == DType::u32 &&
                    codes == packed_shape(shape, found) && scales == scales_shape(shape, found) &&
                    source_.shape(path + ".biases") == scales;
  if (!fits) {
    fail(ErrorCode::format, where, ": codes are ", source_.stored_dtype(path + ".weight"), codes, ", scales ",
         scales, ", biases ", source_.shape(path + ".biases"), ", expected u32", packed_shape(shape, found),
         " and ", scales_shape(shape, found));
  }
  return found;
}

QuantizedWeight QuantizedReader::load(const std::string& path, const Shape& shape, DType scale_dtype,
                                      const Device& device) const {
  const AffineParams params = format(path, shape);
  return {source_.load(path + ".weight", DType::u32, device),
          source_.load(path + ".scales", scale_dtype, device),
          source_.load(path + ".biases", scale_dtype, device), params};
}

}  // namespace mixtape
