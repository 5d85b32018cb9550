#include "mixtape/io/interleaved_experts.h"

#include <cstddef>

#include "mixtape/core/error.h"
#include "mixtape/io/mxfp4.h"

namespace mixtape {
namespace {

// Of one expert's matrix [N,K] the rows `first`, `first + step`, ...
struct Rows {
  std::int64_t first = 0, step = 1;
};

// The matrices [N,K] of all experts.
struct Matrices {
  std::int64_t experts = 0, rows = 0, cols = 0;
  FileDType dtype = FileDType::F32;
  std::function<std::vector<float>(std::int64_t expert, Rows)> read;
};

std::vector<float> floats_of(const std::string& name, const TensorView& view, std::int64_t expert) {
  return load(name, slice(view, expert, expert + 1), DType::f32, Device::cpu()).to_vector<float>();
}

// Stored as [E,K,N]; biases are [E,N], with a K of 1.
Matrices transposed(const std::string& where, const std::string& name, const TensorView& view, bool is_bias) {
  const Shape& s = view.shape;
  if (s.rank() != (is_bias ? 2 : 3)) {
    fail(ErrorCode::format, where, ": tensor '", name, "': has shape ", s, ", expected ",
         is_bias ? "[E,N]" : "[E,K,N]");
  }
  Matrices m{s[0], s.cols(), is_bias ? 1 : s[1], view.dtype, nullptr};
  m.read = [name, view, n = m.rows, k = m.cols](std::int64_t expert, Rows rows) {
    const std::vector<float> stored = floats_of(name, view, expert);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(n / rows.step * k));
    for (std::int64_t row = rows.first; row < n; row += rows.step) {
      for (std::int64_t col = 0; col < k; ++col)
        values.push_back(stored[static_cast<std::size_t>(col * n + row)]);
    }
    return values;
  };
  return m;
}

void decode_row(std::span<const std::byte> codes, std::span<const std::byte> scales,
                std::vector<float>& values) {
  constexpr std::size_t kBytes = kMxfp4Block / 2;
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const float scale = mxfp4_scale(std::to_integer<std::uint8_t>(scales[block]));
    for (std::size_t i = 0; i < kBytes; ++i) {
      const auto pair = std::to_integer<unsigned>(codes[block * kBytes + i]);
      values.push_back(mxfp4_value(pair) * scale);
      values.push_back(mxfp4_value(pair >> 4) * scale);
    }
  }
}

Matrices of_blocks(const std::string& where, const std::string& name, const TensorView& blocks,
                   const TensorView* scales) {
  const Shape& s = blocks.shape;
  if (blocks.dtype != FileDType::U8 || s.rank() != 4 || s[3] != kMxfp4Block / 2) {
    fail(ErrorCode::format, where, ": tensor '", name, "': is ", blocks.dtype, s,
         ", expected U8[E,N,K/32,16]");
  }
  const std::string of_scales = name.substr(0, name.rfind('_')) + "_scales";
  if (scales == nullptr) fail(ErrorCode::format, where, ": tensor '", of_scales, "' is missing");
  const Shape wanted{s[0], s[1], s[2]};
  if (scales->dtype != FileDType::U8 || scales->shape != wanted) {
    fail(ErrorCode::format, where, ": tensor '", of_scales, "': is ", scales->dtype, scales->shape,
         ", expected U8", wanted);
  }
  Matrices m{s[0], s[1], s[2] * kMxfp4Block, FileDType::BF16, nullptr};
  m.read = [codes = blocks.bytes, powers = scales->bytes, n = m.rows, k = m.cols](std::int64_t expert,
                                                                                  Rows rows) {
    const auto bytes = static_cast<std::size_t>(k / 2), count = static_cast<std::size_t>(k / kMxfp4Block);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(n / rows.step * k));
    for (std::int64_t row = rows.first; row < n; row += rows.step) {
      const auto at = static_cast<std::size_t>(expert * n + row);
      decode_row(codes.subspan(at * bytes, bytes), powers.subspan(at * count, count), values);
    }
    return values;
  };
  return m;
}

ExpertTensor tensor_of(const Matrices& m, const std::string& name, bool is_bias, Rows rows) {
  const std::int64_t count = m.rows / rows.step;
  return {name, is_bias ? Shape{m.experts, count} : Shape{m.experts, count, m.cols}, m.dtype,
          [read = m.read, rows](std::int64_t expert) { return read(expert, rows); }};
}

// "gate_up_proj" and "" or "_bias", "_blocks", "_scales" of "...mlp.experts.gate_up_proj_bias".
struct PackedName {
  std::string at, matrix, kind;
};
std::optional<PackedName> parse_packed_name(const std::string& name) {
  const std::string experts = ".mlp.experts.";
  const std::size_t found = name.find(experts);
  if (found == std::string::npos) return std::nullopt;
  const std::size_t begin = found + experts.size();
  for (const std::string matrix : {"gate_up_proj", "down_proj"}) {
    for (const std::string kind : {"", "_bias", "_blocks", "_scales"}) {
      if (name.substr(begin) == matrix + kind) return PackedName{name.substr(0, begin), matrix, kind};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<ExpertTensor>> interleaved_experts(const std::string& where,
                                                             const std::string& name, const TensorView& view,
                                                             const FindTensor& find) {
  const std::optional<PackedName> parts = parse_packed_name(name);
  if (!parts) return std::nullopt;
  std::vector<ExpertTensor> tensors;
  if (parts->kind == "_scales") return tensors;
  const bool is_bias = parts->kind == "_bias";
  const Matrices m = parts->kind == "_blocks"
                         ? of_blocks(where, name, view, find(parts->at + parts->matrix + "_scales"))
                         : transposed(where, name, view, is_bias);
  const std::string ending = is_bias ? ".bias" : ".weight";
  if (parts->matrix == "down_proj") {
    tensors.push_back(tensor_of(m, parts->at + "down_proj" + ending, is_bias, {}));
    return tensors;
  }
  if (m.rows % 2 != 0) {
    fail(ErrorCode::format, where, ": tensor '", name, "': has ", m.rows, " rows, expected an even number");
  }
  tensors.push_back(tensor_of(m, parts->at + "gate_proj" + ending, is_bias, {0, 2}));
  tensors.push_back(tensor_of(m, parts->at + "up_proj" + ending, is_bias, {1, 2}));
  return tensors;
}

}  // namespace mixtape
