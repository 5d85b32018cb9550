#include "mixtape/io/imatrix.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf.h"
#include "mixtape/io/gguf_writer.h"
#include "mixtape/io/mapped_file.h"

namespace mixtape {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr float kMaxCount = 9.0e15f;  // past it an f32 is no whole number of 63 bits

[[noreturn]] void fail_weight(const std::string& where, const std::string& weight, const std::string& what) {
  fail(ErrorCode::format, where, ": importance of '", weight, "': ", what);
}

void check_values(const std::string& where, const std::string& weight, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] >= 0.0f) continue;
    fail_weight(where, weight,
                str("value ", i, " is ", values[i], ", expected a finite number that is not negative"));
  }
}

// Sums become means in place.
void divide(WeightImportance& w) {
  const std::size_t cols = w.mean_squares.size() / w.tokens.size();
  for (std::size_t i = 0; i < w.mean_squares.size(); ++i) {
    const std::int64_t n = w.tokens[i / cols];
    w.mean_squares[i] = n == 0 ? 0.0f : w.mean_squares[i] / static_cast<float>(n);
  }
}

std::vector<float> values_of(const std::string& where, const GgufTensor& tensor) {
  if (tensor.type != GgufType::f32) {
    fail(ErrorCode::format, where, ": tensor '", tensor.name, "' is ", tensor.type, ", expected F32");
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  decode_gguf_blocks(tensor.type, tensor.bytes, values);
  return values;
}

std::vector<std::int64_t> counts_of(const std::string& where, const std::string& weight,
                                    const GgufTensor& tensor) {
  std::vector<std::int64_t> counts;
  for (const float count : values_of(where, tensor)) {
    if (!(count >= 0.0f && count <= kMaxCount)) {
      fail_weight(where, weight, str("a count is ", count, ", expected a number of tokens"));
    }
    counts.push_back(static_cast<std::int64_t>(std::ceil(count)));
  }
  return counts;
}

WeightImportance read_weight(const GgufFile& file, const std::string& weight, const GgufTensor& sums) {
  const GgufTensor* counts = file.find_tensor(weight + std::string(kCounts));
  if (counts == nullptr) fail_weight(file.where(), weight, str("has no tensor '", weight, kCounts, "'"));
  WeightImportance w{values_of(file.where(), sums), counts_of(file.where(), weight, *counts)};
  if (w.mean_squares.empty() || std::ssize(w.tokens) != sums.shape.rows()) {
    fail_weight(file.where(), weight,
                str("has sums ", sums.shape, " and ", w.tokens.size(),
                    " counts, expected a count for each row of sums"));
  }
  check_values(file.where(), weight, w.mean_squares);
  divide(w);
  return w;
}

Imatrix read_gguf(const std::filesystem::path& path) {
  const GgufFile file(path);
  const bool is_one = file.has("general.type") && file.string("general.type") == "imatrix";
  if (!is_one) fail(ErrorCode::format, file.where(), ": its general.type is not 'imatrix'");
  Imatrix found;
  if (file.has("imatrix.datasets")) {
    for (const std::string_view name : file.strings("imatrix.datasets")) found.datasets.emplace_back(name);
  }
  if (file.has("imatrix.chunk_count")) found.chunk_count = file.integer("imatrix.chunk_count");
  if (file.has("imatrix.chunk_size")) found.chunk_size = file.integer("imatrix.chunk_size");
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.ends_with(kSums)) {
      const std::string weight = tensor.name.substr(0, tensor.name.size() - kSums.size());
      found.weights.emplace(weight, read_weight(file, weight, tensor));
    } else if (!tensor.name.ends_with(kCounts)) {
      fail(ErrorCode::format, file.where(), ": tensor '", tensor.name, "', expected names that end in ",
           kSums, " or ", kCounts);
    }
  }
  return found;
}

// The .dat form: i32 and f32, little-endian, without padding.
class DatReader {
 public:
  explicit DatReader(const MappedFile& file) : where_(file.path().string()), rest_(file.bytes()) {}

  Imatrix read() {
    Imatrix found;
    const std::int32_t entries = integer("number of entries", 1, 1 << 20);
    for (std::int32_t i = 0; i < entries; ++i) read_entry(found);
    if (rest_.empty()) return found;
    found.chunk_count = integer("number of chunks", 0, std::numeric_limits<std::int32_t>::max());
    found.datasets = {text("dataset", 0)};
    if (!rest_.empty()) fail_here(str(rest_.size(), " bytes behind the dataset, expected none"));
    return found;
  }

 private:
  [[noreturn]] void fail_here(const std::string& what) const {
    fail(ErrorCode::format, where_, ": at byte ", at_, ": ", what,
         " (read as an importance matrix of the older form)");
  }

  std::span<const std::byte> take(std::size_t count, const char* what) {
    if (count > rest_.size()) {
      fail_here(str(what, " needs ", count, " bytes, expected at most the ", rest_.size(), " that remain"));
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    at_ += count;
    return taken;
  }

  std::int32_t integer(const char* what, std::int32_t least, std::int32_t most) {
    std::int32_t value = 0;
    const std::size_t at = at_;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    if (value >= least && value <= most) return value;
    at_ = at;
    fail_here(str(what, " is ", value, ", expected ", least, " to ", most));
  }

  std::string text(const char* what, std::int32_t least) {
    const auto bytes = take(static_cast<std::size_t>(integer(what, least, 1 << 16)), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void read_entry(Imatrix& found) {
    constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::string weight = text("name", 1);
    const std::int32_t calls = integer("number of calls", 0, kMost);
    const std::int32_t count = integer("number of values", 1, kMost);
    const auto bytes = take(static_cast<std::size_t>(count) * sizeof(float), "values");
    WeightImportance w{std::vector<float>(static_cast<std::size_t>(count)), {calls}};
    std::memcpy(w.mean_squares.data(), bytes.data(), bytes.size());
    check_values(where_, weight, w.mean_squares);
    divide(w);
    if (!found.weights.emplace(weight, std::move(w)).second) fail_weight(where_, weight, "is there twice");
  }

  std::string where_;
  std::span<const std::byte> rest_;
  std::size_t at_ = 0;
};

GgufMetadata metadata_of(const Imatrix& imatrix) {
  GgufMetadata metadata;
  metadata.add("general.type", "imatrix");
  metadata.add("imatrix.datasets", gguf_array(imatrix.datasets));
  metadata.add("imatrix.chunk_count", static_cast<std::uint32_t>(imatrix.chunk_count));
  metadata.add("imatrix.chunk_size", static_cast<std::uint32_t>(imatrix.chunk_size));
  return metadata;
}

GgufLayout layout_of(const Imatrix& imatrix) {
  std::vector<GgufTensorSpec> specs;
  for (const auto& [weight, w] : imatrix.weights) {
    const std::int64_t matrices = std::ssize(w.tokens), values = std::ssize(w.mean_squares);
    require(matrices > 0 && values > 0 && values % matrices == 0, "imatrix: '", weight, "' has ", values,
            " values and ", matrices, " counts, expected as many values for each count");
    const bool one = matrices == 1;  // ggml leaves out a last dimension of 1
    specs.push_back({weight + std::string(kSums), GgufType::f32,
                     one ? Shape{values} : Shape{matrices, values / matrices}});
    specs.push_back({weight + std::string(kCounts), GgufType::f32, one ? Shape{1} : Shape{matrices, 1}});
  }
  return GgufLayout(metadata_of(imatrix), specs);
}

}  // namespace

Imatrix read_imatrix(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const bool is_gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  return is_gguf ? read_gguf(path) : DatReader(file).read();
}

std::uint64_t imatrix_bytes(const Imatrix& imatrix) { return layout_of(imatrix).file_bytes(); }

void write_imatrix(AtomicFile& file, const Imatrix& imatrix) {
  GgufWriter writer(file, layout_of(imatrix));
  for (const auto& [weight, w] : imatrix.weights) {
    const std::size_t cols = w.mean_squares.size() / w.tokens.size();
    std::vector<float> sums = w.mean_squares, counts(w.tokens.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] *= static_cast<float>(w.tokens[i / cols]);
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<float>(w.tokens[i]);
    writer.write(weight + std::string(kSums), std::as_bytes(std::span(sums)));
    writer.write(weight + std::string(kCounts), std::as_bytes(std::span(counts)));
  }
  writer.commit();
}

}  // namespace mixtape
