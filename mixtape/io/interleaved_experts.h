// Stacked experts whose gate and up stand in turns, in matrices that are transposed or in MXFP4 blocks:
//   ...mlp.experts.gate_up_proj [E,D,2F], gate_up_proj_bias [E,2F], down_proj [E,F,D], down_proj_bias [E,D]
//   in blocks, of a matrix [E,N,K] that is not transposed: ..._blocks u8 [E,N,K/32,16], element 2i of a block in the low
//   half of byte i, 2i + 1 in the high one, and ..._scales u8 [E,N,K/32]
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/io/tensor_view.h"

namespace mixtape {

// One of the tensors that we have of them: ...mlp.experts.{gate,up,down}_proj.weight [E,N,K] and .bias [E,N].
struct ExpertTensor {
  std::string name;
  Shape shape;
  FileDType dtype = FileDType::F32;  // which holds its values exactly
  std::function<std::vector<float>(std::int64_t expert)> values;
};

// A stored tensor by name; null where there is none.
using FindTensor = std::function<const TensorView*(const std::string& name)>;

// What `name` becomes, nothing for scales, which go with their blocks; nullopt where it is no such tensor. Throws format,
// beginning with `where`, for a shape or dtype that is none of those above. The views must outlive what is returned.
std::optional<std::vector<ExpertTensor>> interleaved_experts(const std::string& where,
                                                             const std::string& name, const TensorView& view,
                                                             const FindTensor& find);

}  // namespace mixtape
