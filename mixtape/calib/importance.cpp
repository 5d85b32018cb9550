#include "mixtape/calib/importance.h"

#include <algorithm>

#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/other_model.h"

namespace mixtape {
namespace {

// Whether the module multiplies anything: an embedding is looked up, but for a tied one, which gives the logits.
bool multiplies(const PlannedModule& module, const ModelConfig& student) {
  return module.kind != TensorKind::embedding || student.tie_word_embeddings;
}

bool gives_logits(const PlannedModule& module) {
  return module.kind == TensorKind::embedding || module.path == "lm_head";
}

std::int64_t matrices_of(const Shape& weight) { return weight.rank() == 3 ? weight[0] : 1; }

// "blk.0.attn_q.weight" -> shape, of every matrix.
std::map<std::string, Shape> matrices_by_gguf_name(const std::vector<ModelTensor>& tensors) {
  std::map<std::string, Shape> shapes;
  for (const ModelTensor& t : tensors) {
    if (t.kind != TensorKind::vector) shapes.emplace(t.gguf_name, t.shape);
  }
  return shapes;
}

std::map<std::string, std::string> gguf_names(const std::vector<ModelTensor>& tensors) {
  std::map<std::string, std::string> names;
  for (const ModelTensor& t : tensors) names.emplace(module_path(t.name), t.gguf_name);
  return names;
}

// A sentence for each weight in which file and model differ.
std::vector<std::string> differences(const Imatrix& imatrix, const std::vector<ModelTensor>& tensors,
                                     const QuantizationPlan& plan) {
  std::vector<std::string> list;
  const std::map<std::string, Shape> shapes = matrices_by_gguf_name(tensors);
  const std::map<std::string, std::string> names = gguf_names(tensors);
  for (const PlannedModule& m : plan.modules) {
    if (m.stored && !gives_logits(m) && !imatrix.weights.contains(names.at(m.path)))
      list.push_back(str("it has no '", names.at(m.path), "'"));
  }
  for (const auto& [name, w] : imatrix.weights) {
    const auto found = shapes.find(name);
    if (found == shapes.end()) {
      list.push_back(str("the model has no '", name, "'"));
      continue;
    }
    const std::int64_t matrices = matrices_of(found->second), values = matrices * found->second.cols();
    const bool fits = std::ssize(w.mean_squares) == values &&
                      (std::ssize(w.tokens) == matrices || std::ssize(w.tokens) == 1);
    if (!fits) {
      list.push_back(str("'", name, "' has ", w.mean_squares.size(), " values in ", w.tokens.size(),
                         " matrices, the model has ", values, " in ", matrices));
    }
  }
  return list;
}

InputStatistics statistics_of(const WeightImportance& w, const Shape& weight, const Device& device) {
  const std::int64_t matrices = matrices_of(weight), cols = weight.cols();
  std::vector<std::int64_t> tokens = w.tokens;
  if (tokens.size() == 1) tokens.assign(static_cast<std::size_t>(matrices), w.tokens[0]);
  const Shape shape = weight.rank() == 3 ? Shape{matrices, cols} : Shape{cols};
  return {std::move(tokens), Buffer::from(device, shape, w.mean_squares), {}};
}

}  // namespace

ImportanceRecord::ImportanceRecord(const ModelConfig& model, const QuantizationPlan& plan) {
  const ModelConfig student = student_config(model, plan);
  gguf_names_ = gguf_names(tensor_list(student));
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored || !multiplies(m, student)) continue;
    const auto matrices = static_cast<std::size_t>(matrices_of(m.shape));
    const auto values = matrices * static_cast<std::size_t>(m.shape.cols());
    imatrix.weights[gguf_names_.at(m.path)] = {std::vector<float>(values),
                                               std::vector<std::int64_t>(matrices)};
  }
}

void ImportanceRecord::add(const LayerStatistics& layer) {
  for (const auto& [path, inputs] : layer)
    imatrix.weights[gguf_names_.at(path)] = {inputs.mean_squares.to_vector<float>(), inputs.tokens};
}

Importance importance_of(const Imatrix& imatrix, const std::string& where, const ModelConfig& model,
                         const QuantizationPlan& plan, const Device& device) {
  const ModelConfig student = student_config(model, plan);
  const std::vector<ModelTensor> tensors = tensor_list(student);
  refuse_other_model(where, "importance", differences(imatrix, tensors, plan));
  const std::map<std::string, std::string> names = gguf_names(tensors);
  Importance found;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const auto entry = imatrix.weights.find(names.at(m.path));
    const bool has_data = entry != imatrix.weights.end() && multiplies(m, student) &&
                          std::any_of(entry->second.tokens.begin(), entry->second.tokens.end(),
                                      [](std::int64_t n) { return n > 0; });
    if (has_data) {
      found.inputs.emplace(m.path, statistics_of(entry->second, m.shape, device));
    } else {
      found.unweighted.push_back(m.path);
    }
  }
  return found;
}

TensorProvider fitted_tensors(const ModelSource& source, const Method& method, const LayerStatistics& inputs,
                              DType storage, const Device& device, std::vector<std::string>& notes) {
  const auto fit = [&, storage, device](const PlannedModule& m) {
    const Buffer w = source.load(m.source, DType::f32, device);
    const auto found = inputs.find(m.path);
    return method.fit({m, w, found == inputs.end() ? nullptr : &found->second, nullptr, storage, notes});
  };
  return {fit, nullptr};
}

}  // namespace mixtape
