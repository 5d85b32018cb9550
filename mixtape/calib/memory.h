// How much memory a calibration will take, before it starts.
#pragma once

#include <cstdint>

#include "mixtape/calib/recipe.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// What a calibration does, as far as memory goes.
struct MemoryUse {
  std::int64_t batch_tokens = 0;  // of a training or evaluation batch
  std::size_t fits = 1;           // methods that fit: a student each, until the best one is known
  Statistics statistics = Statistics::none;
  std::int64_t statistics_tokens = 0;  // of all rows that they are gathered from
  Learning learning = Learning::scales;
  std::int64_t held_tokens = 0;      // of all rows whose hidden states Learning::blocks holds
  std::int64_t measured_tokens = 0;  // of validation and report rows: the teacher's last activations are kept
  std::int64_t sampled_rows = 0,
               sampled_length = 0;  // that the model writes beside each other, before the rest
  bool checkpoint_blocks = false;
  bool stream_teacher = false;
};

// Bytes of buffers at the fullest moment: teacher, students, and either what fitting one layer takes, or optimizer
// state, activations kept for the backward pass and the largest scratch tensors. An estimate: within about a third of
// what a run then takes.
double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            const MemoryUse& use, const Device& device);

// Bytes that the same calibration on the CPU takes beside them and beside what the process holds before: the pages of the
// model's `mapped_bytes`, the code of the libraries, and the products that oneDNN compiles and keeps. Experts see other
// numbers of rows in each batch, and every number has a product of its own; every thread keeps its last ones, and scratch
// memory. Measured on two machines with AVX-512, with 2 and 16 threads.
double predicted_host_bytes(const ModelConfig& config, std::uint64_t mapped_bytes, const MemoryUse& use,
                            int threads);

}  // namespace mixtape
