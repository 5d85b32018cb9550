// Where a student's KL to its teacher comes from: the KL that each of its parts causes alone, in the teacher. Matrices that
// learned together make up for each other's errors: alone they cost more than together.
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

// Quantized matrices that are looked at together.
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
  Estimate kl;  // of the teacher with the student's matrices there
};

struct KlByPart {
  std::int64_t positions = 0;
  Estimate kl;  // of all parts together on them
  std::vector<PartLoss> places, kinds;
  std::vector<PartLoss> modules;  // each matrix of the layer that loses most
};

// Whether the part is a layer, "model.layers.3".
bool is_layer(const StudentPart& part);
inline bool is_any(const StudentPart&) { return true; }
// Of those that count the one that loses most; null where there is none.
const PartLoss* worst_of(const std::vector<PartLoss>& parts, bool (*counts)(const StudentPart&) = is_any);

// The first rows, the last of them cut, that have `positions` positions in all, or all rows if there are fewer.
std::vector<TokenRow> first_positions(std::span<const TokenRow> rows, std::int64_t positions);

// Over these rows, full vocabulary, temperature 1, the student's matrices as a file in `storage` would hold them. For each
// part what comes after its first layer is run again: about half the layers for each layer, all for each kind and the
// embedding. Memory is that of ModuleKl. Reports parts as the stage "measuring parts". Throws invalid_argument for a plan
// that gives an output layer a format of its own though it is the embedding in the teacher, or rows without a position;
// interrupted between batches.
KlByPart measure_kl_by_part(const Teacher& teacher, const Student& student, const QuantizationPlan& plan,
                            DType storage, std::span<const TokenRow> rows, std::int64_t batch_size,
                            const RunHooks& hooks = {});

}  // namespace mixtape
