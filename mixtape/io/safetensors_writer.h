// Writes safetensors: one file, or the files and index of a model directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/tensor_view.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

struct TensorSpec {
  std::string name;
  FileDType dtype = FileDType::F32;
  Shape shape;
};

using StringMap = std::map<std::string, std::string>;

// Declares every tensor first, then takes their bytes in any order, then commit(). The file appears under its
// name at commit(), synced. Keys by descending element size, then by name; the header is padded with spaces
// so that the data starts at a multiple of 8. Throws invalid_argument for a name declared twice, unknown,
// written twice or never, a wrong size, or a header above kMaxSafetensorsHeader bytes; io if the system
// refuses.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                    const StringMap& metadata);

  void write(const std::string& name, std::span<const std::byte> bytes);
  void write(const std::string& name, const Buffer& buffer);  // dtype and shape must be as declared
  void commit();

 private:
  struct Slot {
    TensorSpec spec;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
    bool written = false;
  };
  Slot& slot(const std::string& name);
  std::string layout(const std::vector<TensorSpec>& specs, const StringMap& metadata);

  AtomicFile file_;
  std::map<std::string, Slot> slots_;
};

struct ShardOptions {
  std::uint64_t max_shard_bytes = 5ull << 30;    // of tensor data; a larger tensor gets a file of its own
  std::optional<std::int64_t> total_parameters;  // for the index; counts the elements unless given
  StringMap metadata = {{"format", "mlx"}};
};

// model.safetensors, or model-00001-of-0000N.safetensors filled in the order of `specs`, and always
// model.safetensors.index.json. `directory` must exist; AtomicDirectory makes the whole appear at once.
class SafetensorsDirectoryWriter {
 public:
  SafetensorsDirectoryWriter(const std::filesystem::path& directory, const std::vector<TensorSpec>& specs,
                             const ShardOptions& options = {});

  void write(const std::string& name, std::span<const std::byte> bytes) { writer(name).write(name, bytes); }
  void write(const std::string& name, const Buffer& buffer) { writer(name).write(name, buffer); }
  void commit();

 private:
  SafetensorsWriter& writer(const std::string& name);
  std::string index_text() const;

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::vector<std::string> shard_names_;
  std::map<std::string, std::size_t> shard_of_;  // tensor -> position in the two lists
  std::uint64_t total_size_ = 0;
  std::int64_t total_parameters_ = 0;
};

}  // namespace mixtape
