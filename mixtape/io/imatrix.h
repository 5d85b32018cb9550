// llama.cpp's importance matrix: of each weight, the mean squares of what its input channels are multiplied with.
//   GGUF   tensors <weight>.in_sum2 f32 [matrices, K] and <weight>.counts f32 [matrices]: sums of squares and the
//          tokens that they are sums over; general.type "imatrix", imatrix.datasets, .chunk_count, .chunk_size
//   .dat   the older form, read only: per weight its name, calls, and mean squares times calls; at the end the
//          chunks and the dataset, which the oldest files lack
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mixtape/io/atomic_file.h"

namespace mixtape {

// Of a matrix, or of stacked experts one after the other.
struct WeightImportance {
  std::vector<float> mean_squares;  // [matrices * K]
  // Tokens of each matrix, 0: no data, its mean squares are 0 then. One number for all experts, counting calls, in a
  // .dat, which holds ones for an expert without data.
  std::vector<std::int64_t> tokens;
};

struct Imatrix {
  std::map<std::string, WeightImportance>
      weights;  // by the weight's name in a GGUF file: "blk.0.attn_q.weight"
  std::vector<std::string> datasets;
  std::int64_t chunk_count = 0;
  std::int64_t chunk_size = 0;  // tokens; 0: not stated
};

// Either form, told apart by its first bytes. Throws io if the file can't be read; format, naming file and weight or
// byte, for what is neither, counts and sizes that don't fit, and sums that are negative or not finite.
Imatrix read_imatrix(const std::filesystem::path& path);

// The bytes of the GGUF form, for write_imatrix and to know a file's size before. Throws invalid_argument for a
// weight whose name is too long, or whose sizes don't fit.
std::uint64_t imatrix_bytes(const Imatrix& imatrix);
// Commits `file`.
void write_imatrix(AtomicFile& file, const Imatrix& imatrix);

}  // namespace mixtape
