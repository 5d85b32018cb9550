#include "mixtape/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"

namespace mixtape {
namespace {

using nlohmann::json;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kLengthBytes = 8;
constexpr auto kMaxCount = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

struct Entry {
  std::uint64_t begin;
  std::uint64_t end;
  std::string name;
};

template <class... Parts>
[[noreturn]] void malformed(const std::string& what, const Parts&... parts) {
  fail(ErrorCode::format, what, ": ", parts...);
}

std::string_view header_of(Bytes file, const std::string& where) {
  if (file.size() < kLengthBytes)
    malformed(where, "found ", file.size(), " bytes, expected at least ", kLengthBytes);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeader) {
    malformed(where, "header length is ", length, ", expected at most ", kMaxSafetensorsHeader);
  }
  if (length > file.size() - kLengthBytes) {
    malformed(where, "header length is ", length, ", the file has only ", file.size() - kLengthBytes,
              " bytes left");
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!header.starts_with('{')) malformed(where, "the header doesn't begin with '{'");
  const std::size_t nul = header.find('\0');
  if (nul != std::string_view::npos) {
    malformed(where, "byte ", nul + kLengthBytes, " of the file is NUL, expected JSON padded with spaces");
  }
  return header;
}

const json& field(const json& entry, const char* key, const std::string& what) {
  const auto found = entry.find(key);
  if (found == entry.end()) malformed(what, "has no ", key);
  return *found;
}

FileDType dtype_of_entry(const json& entry, const std::string& what) {
  const json& dtype = field(entry, "dtype", what);
  if (!dtype.is_string()) malformed(what, "dtype is ", dtype.dump(), ", expected a string");
  const auto known = file_dtype_named(dtype.get<std::string>());
  if (!known) malformed(what, "unknown dtype ", dtype.dump());
  return *known;
}

Shape shape_of_entry(const json& entry, const std::string& what) {
  const json& sizes = field(entry, "shape", what);
  if (!sizes.is_array()) malformed(what, "shape is ", sizes.dump(), ", expected a list");
  std::vector<std::int64_t> dims;
  std::int64_t product = 1;
  for (const json& size : sizes) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > kMaxCount) {
      malformed(what, "shape is ", sizes.dump(), ", expected whole numbers from 0 to 2^63-1");
    }
    dims.push_back(size.get<std::int64_t>());
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(dims.back(), 1), &product)) {
      malformed(what, "shape ", sizes.dump(), " overflows: more elements than 63 bits can count");
    }
  }
  return Shape(std::move(dims));
}

std::pair<std::uint64_t, std::uint64_t> offsets_of_entry(const json& entry, const std::string& what) {
  const json& offsets = field(entry, "data_offsets", what);
  const bool two = offsets.is_array() && offsets.size() == 2;
  if (!two || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    malformed(what, "data_offsets is ", offsets.dump(), ", expected two whole numbers, 0 or more");
  }
  const std::pair range{offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
  if (range.first > range.second) malformed(what, "data_offsets ", offsets.dump(), " are reversed");
  return range;
}

TensorView view_of(const json& entry, Bytes data, const std::string& what) {
  if (!entry.is_object()) malformed(what, "found ", entry.type_name(), ", expected an object");
  const FileDType dtype = dtype_of_entry(entry, what);
  const Shape shape = shape_of_entry(entry, what);
  const auto [begin, end] = offsets_of_entry(entry, what);
  std::uint64_t wanted = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(shape.numel()), size_of(dtype), &wanted)) {
    malformed(what, dtype, shape, " overflows: more bytes than 64 bits can count");
  }
  if (end - begin != wanted) {
    malformed(what, "data_offsets [", begin, ",", end, "] cover ", end - begin, " bytes, ", dtype, shape,
              " has ", wanted);
  }
  if (end > data.size()) {
    malformed(what, "data_offsets [", begin, ",", end, "] end after the data's ", data.size(), " bytes");
  }
  return {dtype, shape, data.subspan(begin, wanted)};
}

// The tensors must lie end to end from the data's first byte to its last.
void check_coverage(std::vector<Entry> entries, std::uint64_t data_size, const std::string& where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t reached = 0;
  const Entry* previous = nullptr;
  for (const Entry& entry : entries) {
    const std::string what = str(where, ": tensor '", entry.name, "'");
    if (entry.begin < reached) malformed(what, "overlaps tensor '", previous->name, "'");
    if (entry.begin > reached) {
      malformed(what, "starts at byte ", entry.begin, " of the data, leaving a hole from byte ", reached);
    }
    reached = entry.end;
    previous = &entry;
  }
  if (reached == data_size) return;
  malformed(where, data_size - reached, " bytes of data after ",
            previous ? str("the last tensor '", previous->name, "'") : std::string("the header"),
            " belong to no tensor");
}

std::map<std::string, std::string> metadata_of(const json& entry, const std::string& where) {
  const std::string what = where + ": __metadata__";
  if (!entry.is_object()) malformed(what, "found ", entry.type_name(), ", expected an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) malformed(what, "value of '", key, "' is ", value.dump(), ", expected a string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::shared_ptr<const MappedFile> file, Bytes bytes,
                                 const std::string& where)
    : file_(std::move(file)), where_(where) {
  const std::string_view header = header_of(bytes, where);
  const Bytes data = bytes.subspan(kLengthBytes + header.size());
  const json parsed = parse_json(header, where);
  std::vector<Entry> entries;
  for (const auto& [name, entry] : parsed.items()) {
    if (name == "__metadata__") {
      metadata_ = metadata_of(entry, where);
      continue;
    }
    const TensorView view = view_of(entry, data, str(where, ": tensor '", name, "'"));
    const auto begin = static_cast<std::uint64_t>(view.bytes.data() - data.data());
    entries.push_back({begin, begin + view.bytes.size(), name});
    tensors_.emplace(name, view);
  }
  check_coverage(std::move(entries), data.size(), where);
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const Bytes bytes = file->bytes();
  return SafetensorsFile(std::move(file), bytes, path.string());
}

SafetensorsFile SafetensorsFile::from_bytes(Bytes bytes, const std::string& where) {
  return SafetensorsFile(nullptr, bytes, where);
}

const TensorView& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) malformed(where_, "has no tensor '", name, "'");
  return found->second;
}

}  // namespace mixtape
