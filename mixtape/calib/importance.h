// Importance in llama.cpp's files (io/imatrix.h) as the statistics that fits take, and the other way round.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mixtape/calib/method.h"
#include "mixtape/io/imatrix.h"

namespace mixtape {

// Gathers what visit_input_statistics visits.
class ImportanceRecord {
 public:
  // Of the modules that the plan quantizes, without data yet: as large as the whole will be. `model`: the teacher's.
  ImportanceRecord(const ModelConfig& model, const QuantizationPlan& plan);

  void add(const LayerStatistics& layer);
  Imatrix imatrix;  // datasets and chunks are the caller's

 private:
  std::map<std::string, std::string> gguf_names_;  // by module path
};

struct Importance {
  LayerStatistics inputs;               // without second moments
  std::vector<std::string> unweighted;  // modules that the plan quantizes and the file has no data of
};

// `where`: the file. A matrix may lack importance that is only looked up, or gives the logits (llama.cpp leaves them
// out unless asked), or whose counts are all 0. Throws format, naming weights and sizes, for importance of another
// model: weights that only one of the two has, or that have other sizes.
Importance importance_of(const Imatrix& imatrix, const std::string& where, const ModelConfig& model,
                         const QuantizationPlan& plan, const Device& device);

// Matrices fitted one by one when they are asked for, with importance where there is some, to scales and biases that
// `storage` holds. All must outlive the
// result; what the user should hear is added to `notes`.
TensorProvider fitted_tensors(const ModelSource& source, const Method& method, const LayerStatistics& inputs,
                              DType storage, const Device& device, std::vector<std::string>& notes);

}  // namespace mixtape
