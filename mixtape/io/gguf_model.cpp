#include "mixtape/io/gguf_model.h"

#include <omp.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_config.h"
#include "mixtape/io/gguf_rope.h"
#include "mixtape/io/gguf_tokenizer.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

template <class T>
void store(std::span<const float> values, std::byte* out) {
  T* to = reinterpret_cast<T*>(out);
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
}

void store(DType dtype, std::span<const float> values, std::byte* out) {
  if (dtype == DType::f32) store<float>(values, out);
  if (dtype == DType::bf16) store<bf16>(values, out);
  if (dtype == DType::f16) store<f16>(values, out);
}

// One element of a q or k bias is what one row of the weight is.
void decode_vector(const GgufTensor& tensor, const ModelTensor& expected, DType wanted, std::byte* out) {
  std::vector<float> stored(static_cast<std::size_t>(tensor.shape.numel())), ordered(stored.size());
  decode_gguf_blocks(tensor.type, tensor.bytes, stored);
  const auto count = static_cast<std::int64_t>(stored.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::size_t>(gguf_row(i, count, expected.gguf_interleaved_heads));
    ordered[static_cast<std::size_t>(i)] = expected.from_gguf(stored[from]);
  }
  store(wanted, ordered, out);
}

// Decodes rows in parallel: each row is one thread's, so that the result doesn't depend on their number.
void decode_rows(const GgufTensor& tensor, std::int64_t interleaved_heads, DType wanted, std::byte* out) {
  const std::int64_t rows = tensor.shape.rows();
  const auto cols = static_cast<std::size_t>(tensor.shape.cols());
  std::vector<float> scratch(static_cast<std::size_t>(omp_get_max_threads()) * cols);
#pragma omp parallel for schedule(dynamic, 16) if (tensor.shape.numel() > 262144)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::span<float> values(scratch.data() + static_cast<std::size_t>(omp_get_thread_num()) * cols,
                                  cols);
    const std::int64_t from = gguf_row(row, rows, interleaved_heads);
    decode_gguf_blocks(tensor.type, tensor.rows(from, from + 1), values);
    store(wanted, values, out + static_cast<std::size_t>(row) * cols * size_of(wanted));
  }
}

void decode_tensor(const GgufTensor& tensor, const ModelTensor& expected, DType wanted, std::byte* out) {
  if (tensor.shape.numel() == 0) return;
  if (tensor.shape.rank() < 2) {
    decode_vector(tensor, expected, wanted, out);
  } else {
    decode_rows(tensor, expected.gguf_interleaved_heads, wanted, out);
  }
}

class GgufModel final : public ModelSource {
 public:
  explicit GgufModel(const std::filesystem::path& path) : file_(path), config_(gguf_config_json(file_)) {
    std::set<std::string_view> known;
    for (const ModelTensor& expected : tensor_list(ModelConfig::parse(config_, where()))) {
      const Entry entry{&checked(expected), expected};
      known.insert(entry.tensor->name);
      entries_.emplace(expected.name, entry);
    }
    for (const GgufTensor& tensor : file_.tensors()) {
      if (known.contains(tensor.name) || is_gguf_rope_tensor(tensor.name))
        continue;  // the latter: in the config
      fail(ErrorCode::not_supported, where(), ": tensor '", tensor.name,
           "' has no place in a model of architecture ", file_.string("general.architecture"));
    }
  }

  const GgufFile& file() const { return file_; }
  std::string where() const override { return file_.where(); }
  const nlohmann::json& config_json() const override { return config_; }

  std::vector<std::string> names() const override {
    std::vector<std::string> found;
    for (const auto& [name, entry] : entries_) found.push_back(name);
    return found;
  }
  bool has(const std::string& name) const override { return entries_.contains(name); }
  Shape shape(const std::string& name) const override { return get(name).expected.shape; }

  DType stored_dtype(const std::string& name) const override {
    switch (get(name).tensor->type) {
      case GgufType::f16:
        return DType::f16;
      case GgufType::bf16:
        return DType::bf16;
      default:
        return DType::f32;
    }
  }

  Buffer load(const std::string& name, DType wanted, const Device& device) const override {
    const Entry& entry = get(name);
    if (!is_value(wanted)) {
      fail(ErrorCode::not_supported, where(), ": tensor '", name, "' asked for as ", wanted,
           ", expected f32, bf16 or f16");
    }
    Buffer buffer = device.alloc_uninitialized(wanted, entry.expected.shape);
    if (buffer.memory().host_data() != nullptr) {
      decode_tensor(*entry.tensor, entry.expected, wanted, buffer.host_bytes());
      release_pages(entry.tensor->bytes);
      return buffer;
    }
    std::vector<std::byte> host(buffer.bytes());
    decode_tensor(*entry.tensor, entry.expected, wanted, host.data());
    buffer.write_bytes(host.data());
    return buffer;
  }

  nlohmann::json tokenizer_json() const override { return gguf_tokenizer_json(file_); }
  nlohmann::json tokenizer_config_json() const override { return gguf_tokenizer_config_json(file_); }

  std::map<std::string, std::string> extra_files() const override {
    return {{"tokenizer.json", tokenizer_json().dump()},
            {"tokenizer_config.json", tokenizer_config_json().dump(2)}};
  }

 private:
  struct Entry {
    const GgufTensor* tensor;
    ModelTensor expected;
  };

  const GgufTensor& checked(const ModelTensor& expected) const {
    const GgufTensor* tensor = file_.find_tensor(expected.gguf_name);
    if (tensor == nullptr) fail(ErrorCode::format, where(), ": lacks tensor '", expected.gguf_name, "'");
    if (tensor->shape != expected.gguf_shape() && tensor->shape != expected.shape) {
      fail(ErrorCode::format, where(), ": tensor '", tensor->name, "' has shape ", tensor->shape,
           ", expected ", expected.gguf_shape());
    }
    return *tensor;
  }

  const Entry& get(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) fail(ErrorCode::format, where(), ": no tensor '", name, "'");
    return found->second;
  }

  GgufFile file_;
  nlohmann::json config_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

std::int64_t gguf_row(std::int64_t row, std::int64_t rows, std::int64_t interleaved_heads) {
  if (interleaved_heads == 0) return row;
  const std::int64_t head_dim = rows / interleaved_heads, in_head = row % head_dim;
  return row - in_head + in_head % (head_dim / 2) * 2 + in_head / (head_dim / 2);
}

const GgufFile* gguf_file_of(const ModelSource& source) {
  const auto* model = dynamic_cast<const GgufModel*>(&source);
  return model == nullptr ? nullptr : &model->file();
}

std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path) {
  return std::make_unique<GgufModel>(path);
}

}  // namespace mixtape
