#include "mixtape/calib/kl_by_part.h"

#include <algorithm>

#include "mixtape/calib/module_kl.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

const std::string kPartStage = "measuring parts";

void add_to(std::vector<StudentPart>& parts, const std::string& name, const std::string& path) {
  auto found = std::find_if(parts.begin(), parts.end(), [&](const StudentPart& p) { return p.name == name; });
  if (found == parts.end()) found = parts.insert(parts.end(), {name, {}});
  found->modules.push_back(path);
}

std::vector<StudentPart> one_by_one(const StudentPart& part) {
  std::vector<StudentPart> all;
  for (const std::string& path : part.modules) all.push_back({path, {path}});
  return all;
}

class PartMeasurement {
 public:
  PartMeasurement(const Teacher& teacher, ModuleKl::Matrices matrices, std::span<const TokenRow> rows,
                  std::int64_t batch_size, const RunHooks& hooks)
      : matrices_(std::move(matrices)), kl_(teacher, rows, batch_size, hooks), hooks_(hooks) {}

  KlByPart run(const StudentParts& parts) {
    KlByPart found;
    // Until the worst layer is known it counts as one that has a matrix of each kind.
    const std::int64_t others = std::ssize(parts.places) + std::ssize(parts.kinds);
    total_ = others + std::ssize(parts.kinds);
    report();
    const std::vector<float> all = kl_.with(matrices_);
    found.positions = std::ssize(all);
    found.kl = mean_of(all);
    found.places = losses(parts.places);
    const PartLoss* worst = worst_of(found.places, is_layer);
    const std::vector<StudentPart> modules = worst ? one_by_one(worst->part) : std::vector<StudentPart>();
    total_ = others + std::ssize(modules);
    found.kinds = losses(parts.kinds);
    found.modules = losses(modules);
    return found;
  }

 private:
  std::vector<PartLoss> losses(const std::vector<StudentPart>& parts) {
    std::vector<PartLoss> all;
    for (const StudentPart& part : parts) {
      ModuleKl::Matrices matrices;
      for (const std::string& path : part.modules) matrices.emplace(path, matrices_.at(path));
      all.push_back({part, mean_of(kl_.with(matrices))});
      ++done_;
      report();
    }
    return all;
  }

  void report() const {
    hooks_.report({.stage = kPartStage, .done = done_, .total = total_, .unit = "parts"});
  }

  ModuleKl::Matrices matrices_;
  ModuleKl kl_;
  const RunHooks& hooks_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

StudentParts parts_of(const QuantizationPlan& plan) {
  StudentParts parts;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const auto layer = layer_of(m.path);
    add_to(parts.places, layer ? str("model.layers.", *layer) : m.path, m.path);
    if (layer) add_to(parts.kinds, name_in_layer(m.path), m.path);
  }
  return parts;
}

bool is_layer(const StudentPart& part) { return !layer_of(part.name) && layer_of(part.name + "."); }

const PartLoss* worst_of(const std::vector<PartLoss>& parts, bool (*counts)(const StudentPart&)) {
  const PartLoss* worst = nullptr;
  for (const PartLoss& p : parts) {
    if (counts(p.part) && (!worst || p.kl.value > worst->kl.value)) worst = &p;
  }
  return worst;
}

std::vector<TokenRow> first_positions(std::span<const TokenRow> rows, std::int64_t positions) {
  std::vector<TokenRow> taken;
  for (const TokenRow& row : rows) {
    if (positions <= 0) break;
    const auto tokens = std::min(row.size(), static_cast<std::size_t>(positions) + 1);
    taken.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(tokens));
    positions -= static_cast<std::int64_t>(tokens) - 1;
  }
  return taken;
}

KlByPart measure_kl_by_part(const Teacher& teacher, const Student& student, const QuantizationPlan& plan,
                            DType storage, std::span<const TokenRow> rows, std::int64_t batch_size,
                            const RunHooks& hooks) {
  require(!plan.unties_embeddings, kPartStage,
          ": the output layer has a format of its own, expected that of the embedding");
  PartMeasurement measurement(teacher, with_stored_values(student, storage).quantized, rows, batch_size,
                              hooks);
  return measurement.run(parts_of(plan));
}

}  // namespace mixtape
