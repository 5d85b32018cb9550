// A GGUF file: metadata, tensor table and blocks, then the config, tokenizer and model made from them. An
// input that begins with '{' describes the file, so that mutations reach beyond the binary layout:
//   {"keys": {"<key>": <string, number, boolean or list>}, "tensors": {"<name>": [<type id>, <dim>, ...]}}
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "mixtape/io/gguf.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/io/gguf_tokenizer.h"
#include "mixtape/io/tokenizer.h"
#include "mixtape/testing/gguf_builder.h"

using namespace mixtape;
using mixtape::testing::GgufBuilder;
using nlohmann::json;

namespace {

constexpr std::uint64_t kMaxData = 64 << 10;

void put_integers(GgufBuilder& file, const std::string& key, const json& list) {
  std::vector<std::int64_t> values;
  for (const json& value : list) {
    // A float beyond the integers has no value as one, so it is left out.
    if (value.is_number_integer()) values.push_back(value.get<std::int64_t>());
  }
  file.array(key, 11, values);
}

void put_floats(GgufBuilder& file, const std::string& key, const json& list) {
  std::vector<double> values;
  for (const json& value : list) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  file.array(key, 12, values);
}

void put_strings(GgufBuilder& file, const std::string& key, const json& list) {
  std::vector<std::string> values;
  for (const json& value : list) {
    if (value.is_string()) values.push_back(value.get<std::string>());
  }
  file.strings(key, values);
}

void put_key(GgufBuilder& file, const std::string& key, const json& value) {
  const json first = value.is_array() && !value.empty() ? value.front() : json();
  if (value.is_string()) file.string(key, value.get<std::string>());
  if (value.is_boolean()) file.boolean(key, value.get<bool>());
  if (value.is_number_unsigned() && value <= 0xffffffffu) {
    file.u32(key, value.get<std::uint32_t>());
  } else if (value.is_number_integer()) {
    file.scalar(key, 11, value.get<std::int64_t>());
  }
  if (value.is_number_float()) file.scalar(key, 12, value.get<double>());
  if (first.is_string()) put_strings(file, key, value);
  if (first.is_number_integer()) put_integers(file, key, value);
  if (first.is_number_float()) put_floats(file, key, value);
}

void put_tensor(GgufBuilder& file, const std::string& name, const json& numbers) {
  std::vector<std::uint64_t> values;
  for (const json& n : numbers) values.push_back(n.is_number_unsigned() ? n.get<std::uint64_t>() : 0);
  if (values.empty()) return;
  const auto type = static_cast<std::uint32_t>(values.front());
  values.erase(values.begin());
  const GgufTypeInfo* info = find_gguf_type(type);
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : values) elements = std::min(elements * std::min(dim, kMaxData), kMaxData);
  const std::uint64_t blocks = info ? elements / static_cast<std::uint64_t>(info->block_elements) : 0;
  std::string data(info ? blocks * static_cast<std::uint64_t>(info->block_bytes) : 0, '\x3b');
  file.tensor(name, values, type, data);
}

std::string described(std::string_view description) {
  const json parsed = json::parse(description, nullptr, /*allow_exceptions=*/false);
  GgufBuilder file;
  if (!parsed.is_object()) return file.bytes();
  const json none = json::object();
  const json& keys = parsed.contains("keys") ? parsed["keys"] : none;
  const json& tensors = parsed.contains("tensors") ? parsed["tensors"] : none;
  for (const auto& [key, value] : keys.items()) put_key(file, key, value);
  for (const auto& [name, value] : tensors.items()) put_tensor(file, name, value);
  return file.bytes();
}

void read_values(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    const std::string_view name = key;
    fuzz::allow_error([&] { file.integer(name); });
    fuzz::allow_error([&] { file.number(name); });
    fuzz::allow_error([&] { file.boolean(name); });
    fuzz::allow_error([&] { file.string(name); });
    fuzz::allow_error([&] { file.integers(name); });
    fuzz::allow_error([&] { file.numbers(name); });
    fuzz::allow_error([&] { file.strings(name); });
  }
}

void decode_tensors(const GgufFile& file) {
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
    fuzz::allow_error([&] { decode_gguf_blocks(tensor.type, tensor.bytes, values); });
  }
}

void use_tokenizer(const GgufFile& file) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(gguf_tokenizer_json(file), gguf_tokenizer_config_json(file));
  const auto ids = tokenizer.encode("Hello, w\xc3\xb6rld 123  !", true);
  tokenizer.decode(ids, false);
}

void load_model(const std::filesystem::path& path) {
  const auto source = open_gguf_model(path);
  source->config();
  for (const std::string& name : source->names()) {
    fuzz::allow_error([&] { source->load(name, DType::bf16, Device::cpu()); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Files files;
  const std::string_view input = fuzz::text_of(data, size);
  const auto path = files.write("input.gguf", input.starts_with('{') ? described(input) : std::string(input));
  fuzz::allow_error([&] {
    const GgufFile file(path);
    read_values(file);
    decode_tensors(file);
    fuzz::allow_error([&] { use_tokenizer(file); });
    fuzz::allow_error([&] { load_model(path); });
  });
  return 0;
}
