#include "mixtape/io/gguf_writer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_bytes.h"

namespace mixtape {

using gguf::put, gguf::put_string;

namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 16;
constexpr std::size_t kMaxName = 63;  // ggml keeps 64 bytes, the last one 0
constexpr std::int64_t kMaxDims = 4;

std::uint64_t alignment_of(const GgufMetadata& metadata) {
  const GgufOwnedValue* value = metadata.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  require(value->type == GgufValueType::u32, "gguf: general.alignment is a ", name(value->type),
          ", expected u32");
  std::uint32_t alignment = 0;
  std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
  require(std::has_single_bit(alignment) && alignment <= kMaxAlignment, "gguf: general.alignment is ",
          alignment, ", expected a power of two up to ", kMaxAlignment);
  return alignment;
}

void put_value(std::string& out, const GgufOwnedValue& value) {
  put(out, value.type);
  if (value.type == GgufValueType::array) {
    put(out, value.element_type);
    put(out, value.count);
  }
  out += value.bytes;
}

void check(const GgufTensorSpec& spec) {
  require(!spec.name.empty() && spec.name.size() <= kMaxName, "gguf: tensor '", spec.name, "': its name has ",
          spec.name.size(), " bytes, expected 1 to ", kMaxName);
  require(spec.shape.rank() <= kMaxDims, "gguf: tensor '", spec.name, "' has ", spec.shape.rank(),
          " dimensions, expected at most ", kMaxDims);
  const std::int64_t block = gguf_type_info(spec.type).block_elements;
  const std::int64_t cols = spec.shape.rank() > 0 ? spec.shape.cols() : 1;
  require(cols % block == 0, "gguf: tensor '", spec.name, "': rows of ", cols, " values as ", spec.type,
          ", expected a multiple of ", block);
}

std::uint64_t bytes_of(const GgufTensorSpec& spec) {
  const GgufTypeInfo& type = gguf_type_info(spec.type);
  std::int64_t bytes = 0;
  const bool overflow =
      __builtin_mul_overflow(spec.shape.numel() / type.block_elements, type.block_bytes, &bytes);
  require(!overflow, "gguf: tensor '", spec.name, "': ", spec.type, spec.shape, " has too many bytes");
  return static_cast<std::uint64_t>(bytes);
}

// Past 63 bits no file system goes.
std::uint64_t sum(std::uint64_t a, std::uint64_t b, const std::string& tensor) {
  std::int64_t total = 0;
  const bool overflow = __builtin_add_overflow(a, b, &total);
  require(!overflow, "gguf: tensor '", tensor, "': the file would have too many bytes");
  return static_cast<std::uint64_t>(total);
}

std::uint64_t padding(std::uint64_t at, std::uint64_t alignment) {
  return (alignment - at % alignment) % alignment;
}

}  // namespace

GgufLayout::GgufLayout(const GgufMetadata& metadata, const std::vector<GgufTensorSpec>& specs) {
  const std::uint64_t alignment = alignment_of(metadata);
  head_ = "GGUF";
  put(head_, kVersion);
  put<std::uint64_t>(head_, specs.size());
  put<std::uint64_t>(head_, metadata.values().size());
  for (const auto& [key, value] : metadata.values()) {
    put_string(head_, key);
    put_value(head_, value);
  }
  std::uint64_t end = 0;  // of the data
  for (const GgufTensorSpec& spec : specs) {
    check(spec);
    const Slot slot{spec, end, bytes_of(spec)};
    require(slots_.emplace(spec.name, slot).second, "gguf: tensor '", spec.name, "' is declared twice");
    put_string(head_, spec.name);
    put(head_, static_cast<std::uint32_t>(spec.shape.rank()));
    for (std::int64_t i = spec.shape.rank(); i-- > 0;) put<std::uint64_t>(head_, spec.shape[i]);
    put(head_, spec.type);
    put(head_, end);
    end = sum(end, slot.bytes, spec.name);
    end = sum(end, padding(end, alignment), spec.name);
  }
  if (!specs.empty()) head_.append(padding(head_.size(), alignment), '\0');
  for (auto& [name, slot] : slots_) slot.offset += head_.size();
  file_bytes_ = sum(head_.size(), end, specs.empty() ? "" : specs.back().name);
}

GgufWriter::GgufWriter(AtomicFile& file, GgufLayout layout) : file_(file), layout_(std::move(layout)) {
  file_.write(layout_.head());
  for (const auto& [name, slot] : layout_.slots()) written_.emplace(name, false);
}

void GgufWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = layout_.slots().find(name);
  const std::string where = file_.target().string() + ": tensor '" + name + "'";
  require(found != layout_.slots().end(), where, " was not declared");
  const GgufLayout::Slot& slot = found->second;
  require(!written_.at(name), where, " is written twice");
  require(bytes.size() == slot.bytes, where, ": got ", bytes.size(), " bytes, expected ", slot.bytes, " for ",
          slot.spec.type, slot.spec.shape);
  file_.write_at(slot.offset, bytes);
  written_.at(name) = true;
}

void GgufWriter::commit() {
  std::uint64_t end = layout_.head().size();
  for (const auto& [name, slot] : layout_.slots()) {
    require(written_.at(name), file_.target().string(), ": tensor '", name,
            "' was declared but never written");
    end = std::max(end, slot.offset + slot.bytes);
  }
  const std::string zeros(layout_.file_bytes() - end, '\0');
  file_.write_at(end, std::as_bytes(std::span(zeros)));
  file_.commit();
}

}  // namespace mixtape
