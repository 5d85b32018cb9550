#include "mixtape/io/safetensors_writer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "mixtape/core/error.h"
#include "mixtape/io/safetensors.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr std::uint64_t kAlignment = 8;

std::uint64_t byte_count(const TensorSpec& spec) {
  std::uint64_t bytes = 0;
  const bool overflow =
      __builtin_mul_overflow(static_cast<std::uint64_t>(spec.shape.numel()), size_of(spec.dtype), &bytes);
  require(!overflow, "tensor '", spec.name, "': ", spec.dtype, spec.shape, " has too many bytes");
  return bytes;
}

// JSON text of a string; refuses what isn't UTF-8.
std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    fail(ErrorCode::invalid_argument, "safetensors: a name or metadata text is not valid UTF-8");
  }
}

std::string entry_text(const TensorSpec& spec, std::uint64_t begin, std::uint64_t end) {
  return str(quoted(spec.name), ":{\"dtype\":\"", spec.dtype, "\",\"shape\":", json(spec.shape.dims()).dump(),
             ",\"data_offsets\":[", begin, ",", end, "]}");
}

std::string metadata_text(const StringMap& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text += (text.empty() ? "" : ",") + quoted(key) + ":" + quoted(value);
  }
  return "\"__metadata__\":{" + text + "}";
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(length & 0xff);
    length >>= 8;
  }
  return bytes;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

std::vector<std::vector<TensorSpec>> split(const std::vector<TensorSpec>& specs, std::uint64_t max_bytes) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::uint64_t used = 0;
  for (const TensorSpec& spec : specs) {
    const std::uint64_t bytes = byte_count(spec);
    if (!shards.back().empty() && (bytes > max_bytes || used > max_bytes - bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(spec);
    used += bytes;
  }
  return shards;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                                     const StringMap& metadata)
    : file_(path) {
  file_.write(layout(specs, metadata));
}

// Fills slots_ and returns the file's first bytes, up to the data.
std::string SafetensorsWriter::layout(const std::vector<TensorSpec>& specs, const StringMap& metadata) {
  std::vector<TensorSpec> order = specs;
  std::sort(order.begin(), order.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const auto size_a = size_of(a.dtype), size_b = size_of(b.dtype);
    return std::tie(size_b, a.name) < std::tie(size_a, b.name);
  });
  std::string header = metadata.empty() ? "{" : "{" + metadata_text(metadata);
  std::uint64_t end = 0;
  for (const TensorSpec& spec : order) {
    require(spec.name != "__metadata__", "safetensors: a tensor is called __metadata__");
    const std::uint64_t begin = end;
    const bool overflow = __builtin_add_overflow(begin, byte_count(spec), &end);
    require(!overflow, "tensor '", spec.name, "': the file would have too many bytes");
    require(slots_.emplace(spec.name, Slot{spec, begin, end - begin}).second, "tensor '", spec.name,
            "' is declared twice");
    header += (header.size() == 1 ? "" : ",") + entry_text(spec, begin, end);
  }
  header += "}";
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  require(header.size() <= kMaxSafetensorsHeader, file_.target().string(), ": the header would have ",
          header.size(), " bytes, expected at most ", kMaxSafetensorsHeader);
  for (auto& [name, slot] : slots_) slot.offset += kAlignment + header.size();
  return length_bytes(header.size()) + header;
}

SafetensorsWriter::Slot& SafetensorsWriter::slot(const std::string& name) {
  const auto found = slots_.find(name);
  require(found != slots_.end(), file_.target().string(), ": tensor '", name, "' was not declared");
  return found->second;
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  Slot& target = slot(name);
  require(!target.written, file_.target().string(), ": tensor '", name, "' is written twice");
  require(bytes.size() == target.bytes, file_.target().string(), ": tensor '", name, "': got ", bytes.size(),
          " bytes, expected ", target.bytes, " for ", target.spec.dtype, target.spec.shape);
  file_.write_at(target.offset, bytes);
  target.written = true;
}

void SafetensorsWriter::write(const std::string& name, const Buffer& buffer) {
  const TensorSpec& spec = slot(name).spec;
  require(buffer && file_dtype_of(buffer.dtype()) == spec.dtype && buffer.shape() == spec.shape,
          file_.target().string(), ": tensor '", name, "': got ", buffer, ", expected ", spec.dtype,
          spec.shape);
  std::vector<std::byte> bytes(buffer.bytes());
  buffer.read_bytes(bytes.data());
  write(name, bytes);
}

void SafetensorsWriter::commit() {
  for (const auto& [name, slot] : slots_) {
    require(slot.written, file_.target().string(), ": tensor '", name, "' was declared but never written");
  }
  file_.commit();
}

SafetensorsDirectoryWriter::SafetensorsDirectoryWriter(const std::filesystem::path& directory,
                                                       const std::vector<TensorSpec>& specs,
                                                       const ShardOptions& options)
    : directory_(directory) {
  const auto shards = split(specs, options.max_shard_bytes);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shard_names_.push_back(shard_name(i, shards.size()));
    for (const TensorSpec& spec : shards[i]) {
      require(shard_of_.emplace(spec.name, i).second, "tensor '", spec.name, "' is declared twice");
      total_size_ += byte_count(spec);
      elements += spec.shape.numel();
    }
    writers_.push_back(
        std::make_unique<SafetensorsWriter>(directory / shard_names_.back(), shards[i], options.metadata));
  }
  total_parameters_ = options.total_parameters.value_or(elements);
}

SafetensorsWriter& SafetensorsDirectoryWriter::writer(const std::string& name) {
  const auto found = shard_of_.find(name);
  require(found != shard_of_.end(), directory_.string(), ": tensor '", name, "' was not declared");
  return *writers_[found->second];
}

std::string SafetensorsDirectoryWriter::index_text() const {
  json weight_map = json::object();
  for (const auto& [name, shard] : shard_of_) weight_map[name] = shard_names_[shard];
  const json index = {{"metadata", {{"total_size", total_size_}, {"total_parameters", total_parameters_}}},
                      {"weight_map", weight_map}};
  return index.dump(4) + "\n";
}

void SafetensorsDirectoryWriter::commit() {
  for (const auto& writer : writers_) writer->commit();
  write_file(directory_ / "model.safetensors.index.json", index_text());
}

}  // namespace mixtape
