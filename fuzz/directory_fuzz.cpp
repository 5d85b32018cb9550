// A model directory, float or quantized: sections are its files; of .safetensors files only the header is
// given. Reads every tensor, plans a quantization, and reads the quantized modules.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "mixtape/io/model_source.h"
#include "mixtape/quant/quantized_model.h"

using namespace mixtape;

namespace {

constexpr const char* kNames[] = {"config.json",
                                  "model.safetensors",
                                  "model.safetensors.index.json",
                                  "model-00001-of-00002.safetensors",
                                  "model-00002-of-00002.safetensors",
                                  "tokenizer.json",
                                  "tokenizer_config.json",
                                  "chat_template.jinja"};

void write_files(const fuzz::Files& files, std::string_view input) {
  files.clear();
  const auto sections = fuzz::sections_of(input);
  for (const std::string name : kNames) {
    const auto found = sections.find(name);
    if (found == sections.end()) continue;
    const bool is_weights = name.ends_with(".safetensors");
    files.write(name, is_weights ? fuzz::safetensors_with(found->second) : found->second);
  }
}

void plan(const ModelSource& source) {
  for (const AffineParams params : {AffineParams{4, 64}, AffineParams{3, 32}}) {
    fuzz::allow_error([&] {
      const QuantizationPlan planned =
          plan_quantization(source, {.params = params, .quantize_routers = true, .smaller_groups = true});
      planned.skipped();
      storage_size(source, planned, DType::bf16).bits_per_weight();
    });
  }
  fuzz::allow_error([&] { model_dtype(source); });
}

// The weight's own shape is the caller's to know; here it follows from the codes and the defaults.
void read_quantized(const ModelSource& source) {
  const QuantizedReader reader(source);
  for (const std::string& name : source.names()) {
    if (!name.ends_with(".weight")) continue;
    const std::string path = name.substr(0, name.rfind('.'));
    fuzz::allow_error([&] {
      if (!reader.is_quantized(path)) return;
      const Shape codes = source.shape(name);
      for (const std::int64_t codes_per_word : {4, 8, 16}) {
        const Shape shape = codes.with(codes.rank() - 1, codes.cols() * codes_per_word);
        fuzz::allow_error([&] { reader.load(path, shape, DType::bf16, Device::cpu()); });
      }
    });
  }
}

void read_all(const ModelSource& source) {
  fuzz::allow_error([&] { source.config(); });
  for (const std::string& name : source.names()) {
    fuzz::allow_error([&] { source.load(name, source.stored_dtype(name), Device::cpu()); });
  }
  fuzz::allow_error([&] { source.tokenizer_json(); });
  fuzz::allow_error([&] { source.tokenizer_config_json(); });
  source.extra_files();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Files files;
  write_files(files, fuzz::text_of(data, size));
  fuzz::allow_error([&] {
    const auto source = open_model(files.path());
    read_all(*source);
    plan(*source);
    read_quantized(*source);
  });
  return 0;
}
