#include "mixtape/calib/float_model.h"

#include <nlohmann/json.hpp>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {
namespace {

constexpr const char* kTokenizer[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};

void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* file : kTokenizer) {
    if (std::filesystem::exists(from / file)) write_file(to / file, read_text(from / file));
  }
}

std::string written(const nlohmann::json& config) { return config.dump(2) + "\n"; }

}  // namespace

std::uint64_t copied_bytes(const nlohmann::json& config_json, const std::filesystem::path& tokenizer) {
  std::uint64_t bytes = written(config_json).size();
  for (const char* file : kTokenizer) {
    std::error_code absent;
    const std::uintmax_t size = std::filesystem::file_size(tokenizer / file, absent);
    if (!absent) bytes += size;
  }
  return bytes;
}

void write_float_model(AtomicDirectory& output, const nlohmann::json& config_json,
                       const std::filesystem::path& tokenizer, const ModelConfig& config,
                       const Parameters& parameters, const RunHooks& hooks) {
  const DType dtype = config.dtype.value_or(DType::f32);
  std::vector<TensorSpec> specs;
  for (const auto& [name, value] : parameters.dense) {
    specs.push_back({name, file_dtype_of(dtype), value.shape()});
  }
  SafetensorsDirectoryWriter writer(output.path(), specs);
  const auto total = static_cast<std::int64_t>(parameters.dense.size());
  std::int64_t done = 0;
  for (const auto& [name, value] : parameters.dense) {
    hooks.report({.stage = "writing", .done = done++, .total = total, .unit = "tensors"});
    hooks.throw_if_stopped("writing");
    writer.write(name, stored_as(dtype, name, value));
  }
  writer.commit();
  write_file(output.path() / "config.json", written(config_json));
  copy_tokenizer(tokenizer, output.path());
  output.commit();
}

}  // namespace mixtape
