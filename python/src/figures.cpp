// What a run came to.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bindings.h"

namespace mixtape::python {

void bind_figures(nb::module_& module) {
  nb::class_<Estimate>(module, "Estimate", "A figure and its standard error.")
      .def_ro("value", &Estimate::value)
      .def_ro("error", &Estimate::error);

  nb::class_<KlStatistics>(module, "KlStatistics", "KL(teacher || model) over positions, in nats.")
      .def_ro("mean", &KlStatistics::mean)
      .def_ro("mean_error", &KlStatistics::mean_error, "Standard error of the mean.")
      .def_ro("median", &KlStatistics::median)
      .def_ro("p95", &KlStatistics::p95)
      .def_ro("p99", &KlStatistics::p99)
      .def_ro("max", &KlStatistics::max);

  nb::class_<Evaluation>(module, "Evaluation", "A model on given text, alone and against a teacher.")
      .def_ro("positions", &Evaluation::positions)
      .def_ro("perplexity", &Evaluation::perplexity)
      .def_ro("perplexity_error", &Evaluation::perplexity_error)
      .def_ro("kl", &Evaluation::kl, "None without a teacher.")
      .def_ro("top1_agreement", &Evaluation::top1_agreement,
              "Share of positions where both put the same token first.")
      .def_ro("top1_error", &Evaluation::top1_error)
      .def_ro("teacher_perplexity", &Evaluation::teacher_perplexity)
      .def_ro("teacher_perplexity_error", &Evaluation::teacher_perplexity_error)
      .def_ro("perplexity_ratio", &Evaluation::perplexity_ratio,
              "Model over teacher; the error is that of the pairs.");

  module.def(
      "kl_cut",
      [](const Evaluation& before, const Evaluation& after) {
        const KlCut cut = kl_cut(before, after);
        return Estimate{cut.share, cut.error};
      },
      nb::arg("before"), nb::arg("after"),
      "The share by which mean KL fell, both on the same rows, with the standard error of the pairs.");

  nb::class_<StorageSize>(module, "StorageSize", "What a written model takes.")
      .def_ro("bytes", &StorageSize::bytes)
      .def_ro("weights", &StorageSize::weights)
      .def_prop_ro("bits_per_weight", &StorageSize::bits_per_weight);

  nb::class_<StageReport>(module, "StageReport", "One method of a calibration.")
      .def_ro("method", &StageReport::method)
      .def_ro("seconds", &StageReport::seconds)
      .def_ro("kl", &StageReport::kl, "On the validation rows; None if it was not measured.")
      .def_ro("kept", &StageReport::kept, "It was the best one when it ended.")
      .def_ro("notes", &StageReport::notes);

  nb::class_<CalibrationReport>(module, "CalibrationReport",
                                "What a calibration came to, on the report rows.")
      .def_ro("initial", &CalibrationReport::initial, "Of plain rounding.")
      .def_ro("result", &CalibrationReport::result, "Of what was written.")
      .def_ro("stages", &CalibrationReport::stages);

  nb::class_<StageProgress>(module, "Progress", "What a running function tells its `progress` callback.")
      .def_ro("stage", &StageProgress::stage)
      .def_ro("done", &StageProgress::done)
      .def_ro("total", &StageProgress::total)
      .def_ro("unit", &StageProgress::unit)
      .def_ro("loss", &StageProgress::loss)
      .def_ro("validation_loss", &StageProgress::validation_loss)
      .def_ro("tokens_per_second", &StageProgress::tokens_per_second);
}

}  // namespace mixtape::python
