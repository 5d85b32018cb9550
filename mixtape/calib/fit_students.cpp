#include "mixtape/calib/fit_students.h"

#include <algorithm>

#include "mixtape/calib/following.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/state_file.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

class Fitting {
 public:
  Fitting(const Teacher& teacher, const QuantizationPlan& plan, std::span<const Method> methods,
          const RunHooks& hooks)
      : teacher_(teacher), methods_(methods), hooks_(hooks) {
    for (const Method& m : methods) {
      require(static_cast<bool>(m.fit), "fit: method '", m.name, "' fits nothing");
      follows_ |= m.follows;
    }
    students_.assign(methods.size(), {unfitted_student(teacher, plan), 0.0, {}});
    for (const ModelTensor& t : tensor_list(students_.front().student.config)) {
      const PlannedModule* module = t.name.ends_with(".weight") ? plan.find(module_path(t.name)) : nullptr;
      if (module && module->stored) waiting_.push_back(module);
    }
    modules_ = std::ssize(waiting_);
  }

  Statistics wanted() const {
    Statistics most = Statistics::none;
    for (const Method& m : methods_) most = std::max(most, m.statistics);
    return most;
  }

  // Nothing is done for a module that was fitted before.
  void fit(const PlannedModule& module, const InputStatistics* inputs) {
    if (std::find(waiting_.begin(), waiting_.end(), &module) == waiting_.end()) return;
    hooks_.throw_if_stopped("fitting");
    const Buffer w = teacher_.source().load(module.source, DType::f32, teacher_.tape().device());
    const Buffer target = follows_ ? target_of(module, w, inputs) : w;
    const QuantizedWeight* previous = nullptr;
    for (std::size_t i = 0; i < methods_.size(); ++i) {
      const Stopwatch watch;
      FittedStudent& s = students_[i];
      const QuantizedWeight fitted =
          methods_[i].fit({module, methods_[i].follows ? target : w, inputs, previous, storage_, s.notes});
      previous = &s.student.parameters.quantized.emplace(module.path, fitted).first->second;
      s.seconds += watch.seconds();
    }
    std::erase(waiting_, &module);
    hooks_.report(
        {.stage = "fitting", .done = modules_ - std::ssize(waiting_), .total = modules_, .unit = "matrices"});
  }

  // By the last method.
  QuantizedWeight fitted(const std::string& path) const {
    return students_.back().student.parameters.quantized.at(path);
  }

  void fit_others() {
    for (const PlannedModule* module : std::vector(waiting_)) fit(*module, nullptr);
  }
  bool is_done() const { return waiting_.empty(); }
  std::vector<FittedStudent> take() { return std::move(students_); }

  // The modules fitted so far.
  void save(const std::filesystem::path& file) const {
    StateFile state;
    for (std::size_t i = 0; i < students_.size(); ++i) {
      const FittedStudent& s = students_[i];
      state.figures["methods"].push_back({{"seconds", s.seconds}, {"notes", s.notes}});
      for (const auto& [path, q] : s.student.parameters.quantized) state.add(str(i, "/", path), q);
    }
    state.save(file);
  }
  void load(const SafetensorsFile& file) {
    for (const PlannedModule* module : std::vector(waiting_)) {
      if (!has_weight(file, "0/" + module->path, *module)) continue;
      for (std::size_t i = 0; i < students_.size(); ++i) {
        students_[i].student.parameters.quantized.emplace(
            module->path, weight_of(file, str(i, "/", module->path), *module, teacher_.tape().device()));
      }
      std::erase(waiting_, module);
    }
    read_figures(file, [&](const nlohmann::json& figures) {
      for (std::size_t i = 0; i < students_.size(); ++i) {
        figures.at("methods").at(i).at("seconds").get_to(students_[i].seconds);
        figures.at("methods").at(i).at("notes").get_to(students_[i].notes);
      }
    });
  }

 private:
  const Teacher& teacher_;
  std::span<const Method> methods_;
  const RunHooks& hooks_;
  DType storage_ = model_dtype(teacher_.source());
  std::vector<FittedStudent> students_;
  std::vector<const PlannedModule*> waiting_;
  std::int64_t modules_ = 0;
  bool follows_ = false;
};

}  // namespace

std::vector<FittedStudent> fit_students(const Teacher& teacher, const QuantizationPlan& plan,
                                        std::span<const Method> methods, std::span<const TokenRow> rows,
                                        std::int64_t batch_size, const RunHooks& hooks,
                                        const std::function<void(const LayerStatistics&)>& on_statistics) {
  Fitting fitting(teacher, plan, methods, hooks);
  const KeptStage kept(hooks, "fits", [&](const std::filesystem::path& file) { fitting.save(file); });
  if (const auto file = kept.find()) fitting.load(*file);
  if (fitting.is_done()) return fitting.take();
  const auto fit_layer = [&](const LayerStatistics& layer) {
    if (on_statistics) on_statistics(layer);
    for (const auto& [path, inputs] : layer) fitting.fit(*plan.find(path), &inputs);
    kept.keep_if_due();
  };
  kept.run([&] {
    if (fitting.wanted() != Statistics::none && !rows.empty()) {
      visit_input_statistics(teacher, plan, rows, batch_size, fitting.wanted(), hooks, fit_layer,
                             [&](const std::string& path) { return fitting.fitted(path); });
    }
    fitting.fit_others();
  });
  return fitting.take();
}

Student fit_student(const Teacher& teacher, const QuantizationPlan& plan, const Method& method,
                    const RunHooks& hooks) {
  return fit_students(teacher, plan, {&method, 1}, {}, 1, hooks).front().student;
}

}  // namespace mixtape
