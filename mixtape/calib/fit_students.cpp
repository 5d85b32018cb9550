#include "mixtape/calib/fit_students.h"

#include <algorithm>

#include "mixtape/calib/following.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {
namespace {

class Fitting {
 public:
  Fitting(const Teacher& teacher, const QuantizationPlan& plan, std::span<const Method> methods,
          const RunHooks& hooks)
      : teacher_(teacher), plan_(plan), methods_(methods), hooks_(hooks) {
    for (const Method& m : methods) {
      require(static_cast<bool>(m.fit), "fit: method '", m.name, "' fits nothing");
      follows_ |= m.follows;
    }
    const Student empty{student_config(teacher.model().config(), plan), {}};
    students_.assign(methods.size(), {empty, 0.0, {}});
    for (const ModelTensor& t : tensor_list(empty.config)) place(t);
  }

  Statistics wanted() const {
    Statistics most = Statistics::none;
    for (const Method& m : methods_) most = std::max(most, m.statistics);
    return most;
  }

  void fit(const PlannedModule& module, const InputStatistics* inputs) {
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

  std::vector<FittedStudent> finish() {
    for (const PlannedModule* module : std::vector(waiting_)) fit(*module, nullptr);
    return std::move(students_);
  }

 private:
  // A matrix to be fitted, or a float tensor of every student.
  void place(const ModelTensor& t) {
    const PlannedModule* module = t.name.ends_with(".weight") ? plan_.find(module_path(t.name)) : nullptr;
    if (module && module->stored) {
      waiting_.push_back(module);
      modules_ = std::ssize(waiting_);
      return;
    }
    const std::string from = module ? module->source : t.name;
    for (FittedStudent& s : students_) s.student.parameters.dense.emplace(t.name, teacher_.tensor(from));
  }

  const Teacher& teacher_;
  const QuantizationPlan& plan_;
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
  if (fitting.wanted() != Statistics::none && !rows.empty()) {
    visit_input_statistics(
        teacher, plan, rows, batch_size, fitting.wanted(), hooks,
        [&](const LayerStatistics& layer) {
          if (on_statistics) on_statistics(layer);
          for (const auto& [path, inputs] : layer) fitting.fit(*plan.find(path), &inputs);
        },
        [&](const std::string& path) { return fitting.fitted(path); });
  }
  return fitting.finish();
}

Student fit_student(const Teacher& teacher, const QuantizationPlan& plan, const Method& method,
                    const RunHooks& hooks) {
  return fit_students(teacher, plan, {&method, 1}, {}, 1, hooks).front().student;
}

}  // namespace mixtape
