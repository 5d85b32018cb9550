// Writes a GGUF file (version 3): its size is known before, tensors come one by one, and it appears whole or not
// at all.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/gguf_blocks.h"
#include "mixtape/io/gguf_values.h"

namespace mixtape {

struct GgufTensorSpec {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;  // last dimension contiguous, as GgufTensor's
};

// Where everything stands in the file: tensors in the order of `specs`, each at a multiple of the alignment
// ("general.alignment", else 32), the end padded too. Throws invalid_argument, naming the tensor, for a name that
// occurs twice, is empty or has more than the 63 bytes that llama.cpp reads, more than 4 dimensions, rows that are
// no whole number of blocks, or sizes past 63 bits; and for an alignment that is no u32 or no power of two up to
// 65536.
class GgufLayout {
 public:
  GgufLayout(const GgufMetadata& metadata, const std::vector<GgufTensorSpec>& specs);

  struct Slot {
    GgufTensorSpec spec;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
  };
  std::uint64_t file_bytes() const { return file_bytes_; }
  const std::string& head() const { return head_; }  // all before the data
  const std::map<std::string, Slot>& slots() const { return slots_; }

 private:
  std::string head_;
  std::map<std::string, Slot> slots_;
  std::uint64_t file_bytes_ = 0;
};

// Takes the tensors' bytes in any order, each whole, then commit(), which commits `file`. Throws invalid_argument for
// a name that the layout lacks, is written twice or never, or a wrong size; io if the system refuses.
class GgufWriter {
 public:
  GgufWriter(AtomicFile& file, GgufLayout layout);

  void write(const std::string& name, std::span<const std::byte> bytes);
  void commit();

 private:
  AtomicFile& file_;
  GgufLayout layout_;
  std::map<std::string, bool> written_;
};

}  // namespace mixtape
