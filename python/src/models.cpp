// Models: rounded, measured, calibrated.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "python/src/bindings.h"

namespace mixtape::python {
namespace {

using Path = std::filesystem::path;
using Progress = std::optional<std::function<void(const StageProgress&)>>;

// What the callback raises, KeyboardInterrupt too, ends the run.
RunHooks hooks_of(const Progress& progress) {
  RunHooks hooks;
  if (progress) hooks.progress = *progress;
  hooks.should_stop = [] {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return false;
  };
  return hooks;
}

struct OpenedModel {
  explicit OpenedModel(const Path& path)
      : source(open_model(path)),
        tokenizer(Tokenizer::from_json(source->tokenizer_json(), source->tokenizer_config_json())) {}
  std::unique_ptr<ModelSource> source;
  Tokenizer tokenizer;
};

StorageSize quantize(const Path& model, const Path& out, std::int32_t bits, std::int32_t group_size,
                     Rounding rounding, const std::string& device, const Progress& progress) {
  const auto source = open_model(model);
  const QuantizationPlan plan = plan_quantization(*source, {.params = {bits, group_size}});
  refuse_for_mlx(*source, plan);
  AtomicDirectory directory(out);
  const DType storage = model_dtype(*source);
  write_rounded_model(directory, *source, plan, rounding, storage, Device::open(device), hooks_of(progress));
  return storage_size(*source, plan, storage);
}

Evaluation evaluate_model(const Path& model, const std::vector<Path>& text,
                          const std::optional<Path>& teacher, std::int64_t length, std::int64_t max_tokens,
                          std::int64_t batch_size, const std::string& device, const Progress& progress) {
  const OpenedModel opened(model);
  const auto teacher_source = teacher ? open_model(*teacher) : nullptr;
  std::vector<const ModelSource*> sources = {opened.source.get()};
  if (teacher_source) sources.push_back(teacher_source.get());
  const DType dtype = common_compute_dtype(sources);
  const std::vector<TokenRow> rows = text_rows(text, opened.tokenizer, length - 1, max_tokens).rows;
  check_ids(rows, opened.source->config().vocab_size);
  Tape tape(Device::open(device));
  const Teacher measured(*opened.source, dtype, false, tape);
  std::optional<Teacher> reference;
  if (teacher_source) reference.emplace(*teacher_source, dtype, false, tape);
  return evaluate(measured.model(), reference ? &reference->model() : nullptr, tape, rows, batch_size,
                  hooks_of(progress));
}

CalibrationReport calibrate_model(const Path& model, const Path& out, const std::vector<Path>& text,
                                  std::int32_t bits, std::int32_t group_size, Effort effort,
                                  std::int64_t length, std::int64_t rows, std::int64_t validation_rows,
                                  std::int64_t report_rows, std::uint64_t seed, const std::string& device,
                                  const Progress& progress) {
  const OpenedModel opened(model);
  const ModelSource& source = *opened.source;
  const QuantizationPlan plan = plan_quantization(source, {.params = {bits, group_size}});
  refuse_for_mlx(source, plan);
  AtomicDirectory directory(out);
  const SourceSplit split = split_sources(text_sources(text, opened.tokenizer, length - 1),
                                          {rows, validation_rows, report_rows, seed});
  Tape tape(Device::open(device));
  const RunHooks hooks = hooks_of(progress);
  const CalibrationOptions options =
      calibration_options(effort, source.config(), length - 1, tape.device(), seed);
  Calibration calibration = calibrate(source, plan, split.data, options, tape, hooks);
  write_student(directory, source, calibration.student, plan, model_dtype(source), hooks);
  return std::move(calibration.report);
}

}  // namespace

void bind_models(nb::module_& module) {
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  nb::enum_<Effort>(module, "Effort", "How much work a calibration may cost.")
      .value("fast", Effort::fast, "All fits, no training.")
      .value("good", Effort::good, "And training.")
      .value("best", Effort::best, "And four times the steps.");

  module.def(
      "quantize", &quantize, nb::arg("model"), nb::arg("out"), nb::kw_only(), nb::arg("bits") = 4,
      nb::arg("group_size") = 64, nb::arg("rounding") = Rounding::gpu, nb::arg("device") = "auto",
      nb::arg("progress") = nb::none(), NoGil(),
      "Rounds each matrix of a model by itself, without text, and writes the directory `out`, which must not "
      "exist.");
  module.def("evaluate", &evaluate_model, nb::arg("model"), nb::arg("text"), nb::arg("teacher") = nb::none(),
             nb::kw_only(), nb::arg("length") = 512, nb::arg("max_tokens") = 0, nb::arg("batch_size") = 4,
             nb::arg("device") = "auto", nb::arg("progress") = nb::none(), NoGil(),
             "Perplexity on text files, and against a teacher KL and top-1 agreement, with standard errors. "
             "`length`: "
             "tokens of a window; `max_tokens`: of the text, 0: all.");
  module.def(
      "calibrate", &calibrate_model, nb::arg("model"), nb::arg("out"), nb::arg("text"), nb::kw_only(),
      nb::arg("bits") = 4, nb::arg("group_size") = 64, nb::arg("effort") = Effort::good,
      nb::arg("length") = 513, nb::arg("rows") = 0, nb::arg("validation_rows") = 16,
      nb::arg("report_rows") = 32, nb::arg("seed") = 0, nb::arg("device") = "auto",
      nb::arg("progress") = nb::none(), NoGil(),
      "Makes the quantized copy of a model that is nearest to it, and writes the directory `out`, which must "
      "not exist. `length`: tokens of a row; `rows`: of training, 0: all. Ctrl-C stops it within a batch; "
      "nothing is written then.");
}

}  // namespace mixtape::python
