#include "mixtape/quant/plan_file.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/quant/other_model.h"

namespace mixtape {
namespace {

// By canonical path.
std::map<std::string, Shape> matrix_shapes(const std::vector<ModelTensor>& tensors) {
  std::map<std::string, Shape> shapes;
  for (const ModelTensor& t : tensors) {
    if (t.kind != TensorKind::vector) shapes.emplace(canonical_path(module_path(t.name)), t.shape);
  }
  return shapes;
}

// The file's two objects name the same modules.
void check_complete(const QuantizationConfig& config, const Json& shapes, const std::string& where) {
  for (const auto& [path, stored] : config.modules) {
    if (!shapes.contains(path)) fail(ErrorCode::format, where, ": shapes has no '", path, "'");
  }
  for (const auto& [path, shape] : shapes.items()) {
    if (!config.modules.contains(path)) fail(ErrorCode::format, where, ": quantization has no '", path, "'");
  }
}

// A sentence for each module in which the plan's shapes and the model's differ.
std::vector<std::string> differences(const Json& found, std::map<std::string, Shape> wanted,
                                     const std::string& model) {
  std::vector<std::string> list;
  for (const auto& [path, shape] : found.items()) {
    const auto own = wanted.find(canonical_path(path));
    if (own == wanted.end()) {
      list.push_back(str(model, " has no '", path, "'"));
    } else {
      if (shape != Json(own->second.dims())) {
        list.push_back(str("'", path, "' is ", shape.dump(), ", ", model, " has ", own->second));
      }
      wanted.erase(own);
    }
  }
  for (const auto& [path, shape] : wanted) list.push_back(str("the plan has no '", path, "'"));
  return list;
}

}  // namespace

Json plan_json(const QuantizationPlan& plan) {
  QuantizationConfig config{.defaults = plan.config.defaults, .modules = {}};
  Json shapes = Json::object();
  for (const PlannedModule& m : plan.modules) {
    if (m.kind == TensorKind::vector) continue;
    config.modules.emplace(m.path, m.stored);
    shapes[m.path] = m.shape.dims();
  }
  return {{"quantization", config.to_json()}, {"shapes", shapes}};
}

QuantizationOptions planned_options(const Json& plan, const std::string& where,
                                    const std::vector<ModelTensor>& tensors, bool tied,
                                    const std::string& model) {
  for (const char* key : {"quantization", "shapes"}) {
    if (!plan.is_object() || !plan.contains(key) || !plan[key].is_object())
      fail(ErrorCode::format, where, ": expected a plan, with an object '", key, "'");
  }
  const QuantizationConfig config = QuantizationConfig::parse(plan["quantization"], where);
  const Json& shapes = plan["shapes"];
  check_complete(config, shapes, where);
  std::map<std::string, Shape> wanted = matrix_shapes(tensors);
  // A plan that unties.
  if (tied && shapes.contains("lm_head")) wanted.emplace("lm_head", wanted.at("model.embed_tokens"));
  refuse_other_model(where, "a plan", differences(shapes, std::move(wanted), model));
  return {.params = config.defaults, .modules = config.modules};
}

QuantizationOptions read_plan(const std::string& path, const ModelSource& source) {
  const ModelConfig config = source.config();
  return planned_options(parse_json(read_text(path), path), path, tensor_list(config),
                         config.tie_word_embeddings, source.where());
}

}  // namespace mixtape
