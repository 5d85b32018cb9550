// Where a student's KL to its teacher comes from: how much lower it is where parts of the student are the teacher's own
// again. Matrices that learned together make up for each other's errors, so the parts don't add up to the whole, and
// one that is given back may even do harm.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/evaluation.h"
#include "mixtape/calib/student.h"

namespace mixtape {

// Quantized matrices that are given back together.
struct StudentPart {
  std::string name;                  // "model.layers.3", "mlp.down_proj", "lm_head"
  std::vector<std::string> modules;  // paths
};

struct StudentParts {
  std::vector<StudentPart> places;  // each layer with all its matrices, and each matrix of no layer
  std::vector<StudentPart> kinds;   // what has one name in all layers
};
// In the plan's order.
StudentParts parts_of(const QuantizationPlan& plan);

struct PartLoss {
  StudentPart part;
  Estimate kl;  // of the student minus that of the student with the part given back, by pairs of positions
};

struct KlByPart {
  std::int64_t positions = 0;
  Estimate kl;  // of the student on them
  std::vector<PartLoss> places, kinds;
  std::vector<PartLoss> modules;  // each matrix of the layer that loses most
};

// Whether the part is a layer, "model.layers.3".
bool is_layer(const StudentPart& part);
// The one that loses most; null where there is none.
const PartLoss* worst_of(const std::vector<PartLoss>& parts);
const PartLoss* worst_layer(const KlByPart& found);

// The first rows, the last of them cut, that have `positions` positions in all, or all rows if there are fewer.
std::vector<TokenRow> first_positions(std::span<const TokenRow> rows, std::int64_t positions);

// Whether it can be measured: not where float tensors trained too, or an output layer has its own format though it is
// the embedding in the teacher.
bool has_parts(const Student& student, const QuantizationPlan& plan);

// Over these rows, full vocabulary, temperature 1, the student as a file in `storage` would hold it. For each part what
// comes after its first layer is run again: about half the layers for each layer, all for each kind and the embedding. Memory is that of
// ModuleKl. Reports parts as the stage "measuring parts". Throws invalid_argument for a student that has no parts to
// measure, or rows without a position; interrupted between batches.
KlByPart measure_kl_by_part(const Teacher& teacher, const Student& student, const QuantizationPlan& plan,
                            DType storage, std::span<const TokenRow> rows, std::int64_t batch_size,
                            const RunHooks& hooks = {});

}  // namespace mixtape
