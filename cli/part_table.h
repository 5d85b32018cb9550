// What the parts of a student lose, and what more bits for them would take.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "mixtape/calib/kl_by_part.h"

namespace mixtape::cli {

// Nothing without rows, or where the parts cannot be told apart (kl_by_part.h). A stop ends the run, unless what there is of it
// shall be written: then it costs these figures alone.
std::optional<KlByPart> measured_parts(const Teacher& teacher, const Student& student,
                                       const QuantizationPlan& plan, DType storage,
                                       std::span<const TokenRow> rows, std::int64_t batch_size,
                                       bool is_written_on_stop, const RunHooks& hooks);

// A part's next wider format: the option that asks for it, and the bytes that it takes more.
struct WiderPart {
  std::string option;  // "--bits-for 'model.layers.3.*=4'"
  std::int64_t bytes = 0;
};
// Nothing where its matrices have several formats, or one that nothing but float is wider than.
std::optional<WiderPart> wider(const StudentPart& part, const QuantizationPlan& plan, DType storage);

// The part's KL as a share of what all of its list cost, each alone.
double share_of(const PartLoss& part, const std::vector<PartLoss>& all);

// Two lines: the layer, embedding or output layer that loses most, of a layer its worst matrix, and what would help.
void print_worst(const KlByPart& found, const QuantizationPlan& plan, DType storage);

// {"positions", "kl", "places", "kinds", "modules"}
nlohmann::json part_figures(const KlByPart& found, const QuantizationPlan& plan, DType storage);

}  // namespace mixtape::cli
