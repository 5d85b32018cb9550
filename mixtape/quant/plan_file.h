// A plan as a JSON file, to be looked at, changed by hand and used for any model of the same shapes:
//   {"quantization": {"bits": 4, "group_size": 64, "mode": "affine", "<path>": {"bits": 6, "group_size": 32} or false},
//    "shapes": {"<path>": [N, K]}}
// "quantization" is as in config.json, but has an entry for every matrix; "shapes" are those of the weights.
#pragma once

#include <string>
#include <vector>

#include "mixtape/io/json_fwd.h"
#include "mixtape/quant/quantization_plan.h"

namespace mixtape {

Json plan_json(const QuantizationPlan& plan);

// Options that store each matrix of a model of `tensors` as the plan does. Throws format, beginning with `where`, for
// what is no plan, and naming modules for a plan of another model (`model` names this one): paths that only one of the
// two has, and shapes that differ.
QuantizationOptions planned_options(const Json& plan, const std::string& where,
                                    const std::vector<ModelTensor>& tensors, bool tied,
                                    const std::string& model);
// From a file, for `source`. Throws io if it cannot be read.
QuantizationOptions read_plan(const std::string& path, const ModelSource& source);

}  // namespace mixtape
