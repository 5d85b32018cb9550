// Writes GGUF bytes for tests, right or deliberately wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape::testing {

class GgufBuilder {
 public:
  // Any field may be replaced before `bytes()` is called.
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::uint64_t extra_tensors = 0, extra_values = 0;  // added to the counts only
  bool pad_last = true;

  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_string(std::string& out, std::string_view text) {
    put<std::uint64_t>(out, text.size());
    out += text;
  }

  // A value as its type id and raw bytes.
  GgufBuilder& raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    put_string(values_, key);
    put(values_, type);
    values_ += bytes;
    ++n_values_;
    return *this;
  }
  template <class T>
  GgufBuilder& scalar(std::string_view key, std::uint32_t type, T value) {
    std::string bytes;
    put(bytes, value);
    return raw(key, type, bytes);
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return scalar(key, 4, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, 6, value); }
  GgufBuilder& boolean(std::string_view key, bool value) { return scalar(key, 7, value); }
  GgufBuilder& string(std::string_view key, std::string_view text) {
    std::string bytes;
    put_string(bytes, text);
    return raw(key, 8, bytes);
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& texts) {
    std::string bytes = array_head(8, texts.size());
    for (const std::string& text : texts) put_string(bytes, text);
    return raw(key, 9, bytes);
  }
  template <class T>
  GgufBuilder& array(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes = array_head(type, values.size());
    for (const T value : values) put(bytes, value);
    return raw(key, 9, bytes);
  }
  static std::string array_head(std::uint32_t type, std::uint64_t count) {
    std::string bytes;
    put(bytes, type);
    put(bytes, count);
    return bytes;
  }

  // `dims` innermost first. The data follow those of the tensor before, aligned.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                      std::string_view data) {
    pad(data_);
    return tensor_at(name, dims, type, data_.size(), data);
  }
  GgufBuilder& tensor_at(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                         std::uint64_t offset, std::string_view data) {
    put_string(infos_, name);
    put(infos_, static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) put(infos_, dim);
    put(infos_, type);
    put(infos_, offset);
    data_ += data;
    ++n_tensors_;
    return *this;
  }
  GgufBuilder& tensor_f32(std::string_view name, const std::vector<std::uint64_t>& dims,
                          const std::vector<float>& values) {
    const std::string_view data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return tensor(name, dims, 0, data);
  }

  std::string bytes() const {
    std::string out = "GGUF";
    put(out, version);
    put(out, n_tensors_ + extra_tensors);
    put(out, n_values_ + extra_values);
    out += values_ + infos_;
    if (n_tensors_ > 0) pad(out);
    out += data_;
    if (pad_last) pad(out);
    return out;
  }

 private:
  void pad(std::string& out) const {
    while (out.size() % alignment != 0) out += '\0';
  }

  std::string values_, infos_, data_;
  std::uint64_t n_values_ = 0, n_tensors_ = 0;
};

}  // namespace mixtape::testing
