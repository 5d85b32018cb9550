#include "mixtape/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMaxAlignment = 1 << 16;
constexpr int kMaxArrayDepth = 4;
// The least room that an entry takes: name length, type, and for a tensor also dimensions and offset.
constexpr std::uint64_t kMinValueBytes = 13, kMinTensorBytes = 24;

// Bytes of a fixed-size value; 0 for strings and arrays.
std::uint64_t size_of(GgufValueType type) {
  using enum GgufValueType;
  switch (type) {
    case u8:
    case i8:
    case boolean:
      return 1;
    case u16:
    case i16:
      return 2;
    case u32:
    case i32:
    case f32:
      return 4;
    case u64:
    case i64:
    case f64:
      return 8;
    case string:
    case array:
      return 0;
  }
  return 0;
}

// Reads forward through the file; every read is checked against what remains.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : bytes_(file.bytes()), where_(file.path().string()) {}

  const std::string& where() const { return where_; }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }

  template <class... Parts>
  [[noreturn]] void fail_at(std::uint64_t offset, const Parts&... parts) const {
    fail(ErrorCode::format, where_, ": at byte ", offset, ": ", parts...);
  }

  std::span<const std::byte> take(std::uint64_t count, const char* what) {
    if (count > remaining()) {
      fail_at(offset_, what, " needs ", count, " bytes, expected at most the ", remaining(), " that remain");
    }
    const auto taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  template <class T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view string(const char* what) {
    const auto length = read<std::uint64_t>(what);
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  // A count of entries that take at least `entry_bytes` each.
  std::uint64_t count(std::uint64_t entry_bytes, const char* what) {
    const std::uint64_t at = offset_;
    const auto found = read<std::uint64_t>(what);
    if (found > remaining() / entry_bytes) {
      fail_at(at, what, " is ", found, ", expected at most ", remaining() / entry_bytes,
              " (the rest of the file)");
    }
    return found;
  }

  GgufValueType value_type() {
    const std::uint64_t at = offset_;
    const auto id = read<std::uint32_t>("value type");
    if (id > static_cast<std::uint32_t>(GgufValueType::f64)) {
      fail_at(at, "value type is ", id, ", expected 0 to 12");
    }
    return static_cast<GgufValueType>(id);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  std::uint64_t offset_ = 0;
};

void skip_elements(Cursor& in, GgufValueType type, std::uint64_t count, int depth);

// Moves past an array: element type, length, elements.
void skip_array(Cursor& in, int depth) {
  if (depth > kMaxArrayDepth) in.fail_at(in.offset(), "arrays nest deeper than ", kMaxArrayDepth);
  const GgufValueType element = in.value_type();
  const std::uint64_t least = element == GgufValueType::string  ? 8
                              : element == GgufValueType::array ? 12
                                                                : size_of(element);
  skip_elements(in, element, in.count(least, "array length"), depth);
}

void skip_elements(Cursor& in, GgufValueType type, std::uint64_t count, int depth) {
  if (type == GgufValueType::array) {
    for (std::uint64_t i = 0; i < count; ++i) skip_array(in, depth + 1);
  } else if (type == GgufValueType::string) {
    for (std::uint64_t i = 0; i < count; ++i) in.string("string");
  } else {
    const std::uint64_t at = in.offset();
    const auto bytes = in.take(count * size_of(type), "value");  // a count has passed Cursor::count
    if (type != GgufValueType::boolean) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::to_integer<int>(bytes[i]) > 1) {
        in.fail_at(at + i, "boolean is ", std::to_integer<int>(bytes[i]), ", expected 0 or 1");
      }
    }
  }
}

GgufValue read_value(Cursor& in, std::span<const std::byte> file) {
  GgufValue value{in.value_type(), {}, 1, {}};
  value.element_type = value.type;
  if (value.type == GgufValueType::array) {
    Cursor ahead = in;
    value.element_type = ahead.value_type();
    value.count = ahead.read<std::uint64_t>("array length");
    skip_array(in, 1);
    value.bytes = file.subspan(ahead.offset(), in.offset() - ahead.offset());
  } else {
    const std::uint64_t begin = in.offset();
    skip_elements(in, value.type, 1, 0);
    value.bytes = file.subspan(begin, in.offset() - begin);
  }
  return value;
}

struct TensorInfo {
  std::string name;
  GgufType type;
  Shape shape;
  std::uint64_t bytes;
  std::uint64_t at;      // where the entry stands
  std::uint64_t offset;  // from the start of the data
};

template <class... Parts>
[[noreturn]] void fail_tensor(const Cursor& in, const TensorInfo& tensor, const Parts&... parts) {
  in.fail_at(tensor.at, "tensor '", tensor.name, "': ", parts...);
}

// Innermost dimension first.
std::vector<std::uint64_t> read_dims(Cursor& in, const TensorInfo& tensor) {
  const std::uint64_t at = in.offset();
  const auto n_dims = in.read<std::uint32_t>("dimension count");
  if (n_dims > kMaxDims) {
    in.fail_at(at, "tensor '", tensor.name, "' has ", n_dims, " dimensions, expected at most ", kMaxDims);
  }
  std::vector<std::uint64_t> dims(n_dims);
  for (std::uint64_t& dim : dims) dim = in.read<std::uint64_t>("dimension");
  return dims;
}

GgufType read_type(Cursor& in, const TensorInfo& tensor) {
  const std::uint64_t at = in.offset();
  const auto id = in.read<std::uint32_t>("tensor type");
  if (const GgufTypeInfo* info = find_gguf_type(id)) return info->type;
  const std::string name = gguf_type_name(id);
  if (name == "unknown") {
    in.fail_at(at, "tensor '", tensor.name, "' has type id ", id, ", expected a known type");
  }
  fail(ErrorCode::not_supported, in.where(), ": tensor '", tensor.name, "' has type ", name,
       ", expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K");
}

// The size in bytes; every product is checked before it is used, also where a dimension of 0 would hide it.
std::uint64_t checked_bytes(const Cursor& in, const TensorInfo& tensor,
                            const std::vector<std::uint64_t>& dims) {
  const GgufTypeInfo& type = gguf_type_info(tensor.type);
  const auto block = static_cast<std::uint64_t>(type.block_elements);
  if (!dims.empty() && dims[0] % block != 0) {
    fail_tensor(in, tensor, "row of ", dims[0], " values of type ", type.name, ", expected a multiple of ",
                block);
  }
  bool overflow = false, empty = false;
  std::int64_t elements = 1;
  for (const std::uint64_t dim : dims) {
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(elements, dim == 0 ? 1 : dim, &elements);
  }
  std::uint64_t bytes = 0;
  overflow |= __builtin_mul_overflow(static_cast<std::uint64_t>(elements) / block,
                                     static_cast<std::uint64_t>(type.block_bytes), &bytes);
  if (overflow) fail_tensor(in, tensor, "its dimensions overflow, expected a size that fits 64 bits");
  return empty ? 0 : bytes;
}

TensorInfo read_tensor_info(Cursor& in) {
  TensorInfo tensor{};
  tensor.at = in.offset();
  tensor.name = in.string("tensor name");
  const auto dims = read_dims(in, tensor);
  tensor.type = read_type(in, tensor);
  tensor.bytes = checked_bytes(in, tensor, dims);
  tensor.shape = Shape(std::vector<std::int64_t>(dims.rbegin(), dims.rend()));
  tensor.offset = in.read<std::uint64_t>("tensor offset");
  return tensor;
}

std::span<const std::byte> locate(const Cursor& in, const TensorInfo& tensor, std::span<const std::byte> data,
                                  std::uint64_t alignment) {
  if (tensor.offset % alignment != 0) {
    fail_tensor(in, tensor, "offset ", tensor.offset, ", expected a multiple of the alignment ", alignment);
  }
  if (tensor.offset > data.size() || tensor.bytes > data.size() - tensor.offset) {
    fail_tensor(in, tensor, tensor.bytes, " bytes at data offset ", tensor.offset,
                ", expected to end within the ", data.size(), " bytes of data");
  }
  return data.subspan(tensor.offset, tensor.bytes);
}

std::uint32_t read_version(Cursor& in) {
  if (in.remaining() < sizeof(kMagic))
    in.fail_at(0, "found ", in.remaining(), " bytes, expected a file that begins with 'GGUF'");
  if (in.read<std::uint32_t>("magic") != kMagic)
    in.fail_at(0, "does not begin with 'GGUF', as a GGUF file does");
  const auto version = in.read<std::uint32_t>("version");
  if (version >= 1 << 16)
    in.fail_at(4, "version is byte-swapped (a big-endian file), expected little-endian 2 or 3");
  if (version != 2 && version != 3) in.fail_at(4, "version is ", version, ", expected 2 or 3");
  return version;
}

}  // namespace

std::span<const std::byte> GgufTensor::rows(std::int64_t begin, std::int64_t end) const {
  require(0 <= begin && begin <= end && end <= shape.rows(), "gguf: tensor '", name, "': rows ", begin,
          " to ", end, ", expected within 0 to ", shape.rows());
  if (bytes.empty()) return {};
  const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(shape.rows());
  return bytes.subspan(static_cast<std::size_t>(begin) * row_bytes,
                       static_cast<std::size_t>(end - begin) * row_bytes);
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.bytes();
  Cursor in(file_);
  version_ = read_version(in);
  const std::uint64_t n_tensors = in.count(kMinTensorBytes, "tensor count");
  const std::uint64_t n_values = in.count(kMinValueBytes, "metadata count");
  for (std::uint64_t i = 0; i < n_values; ++i) {
    const std::uint64_t at = in.offset();
    std::string key(in.string("key"));
    if (metadata_.contains(key)) in.fail_at(at, "duplicate key '", key, "'");
    const GgufValue value = read_value(in, bytes);
    keys_.push_back(key);
    metadata_.emplace(std::move(key), value);
  }
  read_alignment();
  std::vector<TensorInfo> infos;
  std::set<std::string_view> names;
  infos.reserve(n_tensors);
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    infos.push_back(read_tensor_info(in));
    if (!names.insert(infos.back().name).second) fail_tensor(in, infos.back(), "duplicate name");
  }
  const std::uint64_t padding = (alignment_ - in.offset() % alignment_) % alignment_;
  const auto data = bytes.subspan(in.offset() + std::min(padding, in.remaining()));
  tensors_.reserve(n_tensors);
  for (TensorInfo& info : infos) {
    const auto where = locate(in, info, data, alignment_);
    tensors_.push_back({std::move(info.name), info.type, std::move(info.shape), where});
    tensor_index_.emplace(tensors_.back().name, tensors_.size() - 1);
  }
}

void GgufFile::read_alignment() {
  constexpr std::string_view kKey = "general.alignment";
  const GgufValue* value = find(kKey);
  if (value == nullptr) return;
  if (value->type != GgufValueType::u32) fail_kind(kKey, "u32");
  alignment_ = static_cast<std::uint64_t>(integer(kKey));
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    fail(ErrorCode::format, where(), ": ", kKey, " is ", alignment_, ", expected a power of two up to ",
         kMaxAlignment);
  }
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace mixtape
