// How checkpoints name the weights of experts.
#pragma once

#include <cstdint>
#include <string>

namespace mixtape {

// `stacked` is MLX's name of the stack; for gate_up, which is split in two, only "...mlp.switch_mlp.".
struct ExpertName {
  enum class Kind {
    none,     // not an expert's, or named as MLX does already
    single,   // ...mlp.experts.3.gate_proj.weight: one expert's
    stacked,  // ...mlp.experts.down_proj: all experts'
    gate_up,  // ...mlp.experts.gate_up_proj: all experts', gate and up in one
  };
  Kind kind = Kind::none;
  std::string stacked;
  std::int64_t expert = 0;  // of a single one
};

ExpertName parse_expert_name(const std::string& name);

}  // namespace mixtape
