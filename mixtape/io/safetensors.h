// Reads one safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "mixtape/io/mapped_file.h"
#include "mixtape/io/tensor_view.h"

namespace mixtape {

constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, for reading and writing

// Maps the file and checks all of the header before anything is read: dtypes known, sizes equal to what dtype
// and shape ask for, and the data covered without overlap, hole or tail. Throws io if the file cannot be
// read, format, naming file and tensor, if it is malformed.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);
  // `bytes` must outlive the object and its views.
  static SafetensorsFile from_bytes(std::span<const std::byte> bytes, const std::string& where);

  const std::string& where() const { return where_; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // Throws format if there is none.
  const TensorView& at(const std::string& name) const;

 private:
  SafetensorsFile(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes,
                  const std::string& where);

  std::shared_ptr<const MappedFile> file_;
  std::string where_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace mixtape
