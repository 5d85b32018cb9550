// Which modules of a model are quantized, and how: decided before anything is computed or written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mixtape/io/model_source.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/module_rule.h"
#include "mixtape/quant/quantization_config.h"

namespace mixtape {

struct QuantizationOptions {
  WeightFormat params = {};
  // By module path, before any other rule. A tied model's "lm_head" and "model.embed_tokens" are one matrix:
  // a setting for one counts for both, two different ones untie it.
  std::map<std::string, StoredAs> modules = {};
  // Before `modules`; of several that match a module the last one counts. A tied model's two names are one matrix
  // here, unless `modules` unties them.
  std::vector<ModuleRule> rules = {};
  bool quantize_routers = false;  // to 8 bits in groups of 64, or to Q8_0, instead of keeping them in float
  bool smaller_groups = false;    // where the input size isn't a multiple of the group, try 64 and 32
};

struct PlannedModule {
  std::string path;
  std::string source;  // the tensor in the source: differs from path + ".weight" for an untied lm_head
  Shape shape;         // of the weight [..., N, K]
  TensorKind kind;
  StoredAs stored;
  std::string reason;        // why a matrix stays in float; empty for vectors and quantized modules
  bool by_default = false;   // quantized as QuantizationOptions::params say, by no rule or setting of its own
  StoredAs instead_of = {};  // of which rows are no whole units; none: `stored` is what was asked for
};

struct QuantizationPlan {
  QuantizationConfig config;
  std::vector<PlannedModule> modules;  // everything called <path>.weight, in the order of writing
  std::vector<std::string> others;     // names of other tensors (biases), in the order of writing
  std::vector<std::string> left_out;   // tensors of the source that the model does not have: not written
  bool unties_embeddings = false;

  std::vector<PlannedModule> skipped() const;  // matrices that stay in float
  const PlannedModule* find(const std::string& path) const;
};

// Quantizes every matrix but routers, in groups along the last dimension; norms, convolutions and other
// vectors stay in float. Rows that are no whole blocks of 256 take the type of 32 that llama.cpp takes for
// them. Throws invalid_argument for options that cannot hold: a module that isn't there or isn't a matrix, a rule that
// matches none, a group that the input size of a module with a setting of its own is no multiple of; not_supported for a
// source that is quantized already; format for a tensor of the model that the source lacks, or of another shape,
// naming it.
QuantizationPlan plan_quantization(const ModelSource& source, const QuantizationOptions& options);
// The same for a model of these tensors.
QuantizationPlan plan_quantization(const ModelSource& source, const std::vector<ModelTensor>& tensors,
                                   const QuantizationOptions& options);

// What rows of `cols` weights are stored as where `wanted` is asked for: blocks of 32 for rows that are no whole blocks of
// 256, and with `smaller_groups` the largest group that divides them. None: float.
StoredAs fitting_format(std::int64_t cols, const WeightFormat& wanted, bool smaller_groups);

// What the planned model takes in storage: scales, biases and float tensors in `dtype`.
struct StorageSize {
  std::int64_t bytes = 0;
  std::int64_t weights = 0;  // logical: a code counts once, scales and biases not at all
  double bits_per_weight() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights); }
};
StorageSize storage_size(const ModelSource& source, const QuantizationPlan& plan, DType dtype);

}  // namespace mixtape
