// GGUF files (versions 2 and 3, little-endian): metadata and where each tensor lies. Nothing is copied:
// values and tensors point into the mapped file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/core/shape.h"
#include "mixtape/io/gguf_blocks.h"
#include "mixtape/io/mapped_file.h"

namespace mixtape {

enum class GgufValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
const char* name(GgufValueType type);

// A metadata value whose bytes have been checked. For an array, `element_type` and `count` describe the
// elements.
struct GgufValue {
  GgufValueType type;
  GgufValueType element_type;  // `type` itself unless an array
  std::uint64_t count;         // 1 unless an array
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string name;
  GgufType type;
  Shape shape;  // last dimension contiguous: the reverse of the file's order
  std::span<const std::byte> bytes;

  // The file's bytes of rows [begin, end), where a row is the last dimension.
  std::span<const std::byte> rows(std::int64_t begin, std::int64_t end) const;
};

// Every count, length, dimension and offset is checked when the file is opened. Throws format with file, byte
// offset or tensor, what was found and what was wanted; io if the file can't be read; not_supported for a
// tensor type that is known but can't be decoded.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  std::string where() const { return file_.path().string(); }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }

  // Getters throw format if the key is absent or its value of another kind. Integers of any width that fit
  // are integers; `number` also takes them.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue* find(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string_view> strings(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<std::string>& keys() const { return keys_; }  // in the file's order

  // In the file's order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  void read_alignment();
  const GgufValue& get(std::string_view key) const;
  [[noreturn]] void fail_kind(std::string_view key, const char* wanted) const;

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<std::string> keys_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> tensor_index_;
};

}  // namespace mixtape
