// mixtape quantize: every matrix by itself, without text.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/disk_space.h"
#include "cli/finite_weights.h"
#include "cli/inputs.h"
#include "cli/model_card.h"
#include "cli/model_options.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/quantize_options.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/importance.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/quant/plan_file.h"
#include "mixtape/quant/tensor_providers.h"

namespace mixtape::cli {
namespace {

struct QuantizeCommand {
  ModelOptions model;
  QuantizeOptions quantize;
  std::string fit;  // mlx or least-squares; empty: by whether there are importance or blocks
  std::string imatrix, json_file;

  void finish(const CLI::App& command) {
    require_files({imatrix});
    refuse_same_place({{"--save-plan", quantize.saved_plan}, {"--json", json_file}});
    if (fit.empty()) fit = imatrix.empty() && quantize.type.empty() ? "mlx" : "least-squares";
    quantize.has_importance = !imatrix.empty();
    quantize.finish(command);
    require(fit != "mlx" || imatrix.empty(), "--imatrix has no effect: --fit mlx");
    require(fit == "mlx" || command.count("--rounding") == 0, "--rounding has no effect: --fit ", fit);
  }
  Importance importance(const OpenedModel& opened, const QuantizationPlan& plan, const Device& device) const {
    if (imatrix.empty()) return {};
    Importance found = importance_of(read_imatrix(imatrix), imatrix, opened.config, plan, device);
    for (const std::string& path : found.unweighted)
      print_fact("unweighted", "{} ({} has no data of it)", path, imatrix);
    return found;
  }
  std::vector<std::string> inputs() const { return {model.path, quantize.plan_file, imatrix}; }
  nlohmann::json record(const OpenedModel& opened, const StorageSize& size, const QuantizationPlan& plan,
                        const Device& device) const {
    nlohmann::json json = model_record("quantize", model.path, opened.config, size, plan);
    nlohmann::json& settings = json["settings"] = quantize_settings(quantize);
    settings["fit"] = fit;
    if (!imatrix.empty()) settings["imatrix"] = imatrix;
    json["device"] = device.name();
    return json;
  }
};

void run_quantize(const QuantizeCommand& o) {
  ModelOutput output = o.quantize.place(o.model);
  ReportFile plan_file = o.quantize.place_for_plan(o.inputs());
  ReportFile report(o.json_file, o.inputs(), o.quantize.out);
  const Device device = open_device(o.model.device);
  const OpenedModel opened = o.model.open();
  const ModelSource& source = *opened.source;
  const QuantizationPlan plan = o.quantize.plan(opened);
  const DType storage = model_dtype(source);
  const std::optional<GgufPlan> gguf = o.quantize.plan_gguf(opened, plan);
  require_finite_floats(source, plan);
  const Importance importance = o.importance(opened, plan, device);
  print_plan(opened, plan, gguf ? &*gguf : nullptr, false);
  plan_file.write(plan_json(plan));
  const StorageSize size = written_size(opened, plan, gguf ? &*gguf : nullptr);
  output.require_space(gguf ? gguf->layout().file_bytes() : static_cast<std::uint64_t>(size.bytes),
                       bytes_beside(source));
  const nlohmann::json record = o.record(opened, size, plan, device);
  const Stopwatch watch;
  StageDisplay display;
  std::vector<std::string> notes;
  const Method fit = least_squares();
  const DType scales = gguf ? DType::f16 : storage;
  const TensorProvider tensors = o.fit == "mlx"
                                     ? rounded_tensors(source, o.quantize.rounding(), scales, device)
                                     : fitted_tensors(source, fit, importance.inputs, scales, device, notes);
  GgufLoss loss;
  const auto write_model = [&] {
    if (!gguf) {
      output.write([&](AtomicDirectory& directory) {
        write_card(directory.path(), o.quantize.out, record);
        write_quantized_model(directory, source, plan, tensors, storage, display.hooks());
        display.close();
      });
      return;
    }
    output.write_gguf([&](AtomicFile& file) {
      loss = write_gguf_model(file, source, *gguf, tensors, display.hooks());
      display.close();
    });
  };
  blaming_weights(source, write_model);
  report_then_tell({[&] { report.write_model(record, o.quantize.out, watch.seconds()); }}, [&] {
    output.tell();
    print_loss(loss);
  });
}

}  // namespace

void add_quantize(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("quantize", "Rounds a model's matrices to few bits.");
  auto o = std::make_shared<QuantizeCommand>();
  o->model.add(*command);
  o->quantize.add(*command);
  OptionGroup group(*command, "Fit");
  group.choice(
      "--fit", o->fit, {"mlx", "least-squares"},
      "mlx: plain rounding, exactly as MLX does; least-squares: scales and biases of least error; if "
      "not given, mlx without --imatrix or --type");
  group.path("--imatrix", o->imatrix, "FILE",
             "Importance of the input channels, llama.cpp's file (GGUF or .dat): their errors are weighted");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape quantize -m Qwen3-0.6B -o Qwen3-0.6B-4bit\n"
      "  mixtape quantize -m model.gguf -o model-3bit --bits 3 --imatrix imatrix.gguf\n"
      "  mixtape quantize -m Qwen3-0.6B -o Qwen3-0.6B-Q4_K_M.gguf --type q4_k_m\n"
      "  mixtape quantize -m Qwen3-0.6B -o out --bits 3 --bits-for '*.down_proj=6'");
  command->callback([o, command] {
    o->finish(*command);
    run_quantize(*o);
  });
}

}  // namespace mixtape::cli
