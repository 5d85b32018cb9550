// mixtape convert: a model in another kind of files, its codes and blocks as they are.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/disk_space.h"
#include "cli/finite_weights.h"
#include "cli/json_report.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/outputs.h"
#include "cli/quantize_options.h"
#include "cli/quote.h"
#include "cli/stored_forms.h"
#include "cli/text_table.h"
#include "cli/training_hooks.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/quant/affine_of_blocks.h"
#include "mixtape/quant/tensor_providers.h"

namespace mixtape::cli {
namespace {

struct ConvertCommand {
  std::string model, out, format, json_file;
  std::string floats = "auto";
  bool dequantize = false;

  bool is_gguf() const { return is_gguf_output(format, out); }
};

std::optional<DType> stated_dtype(const std::string& floats) {
  if (floats == "f32") return DType::f32;
  if (floats == "f16") return DType::f16;
  if (floats == "bf16") return DType::bf16;
  return std::nullopt;
}

// A line for each format.
void print_formats(const QuantizationPlan& plan, DType floats) {
  std::map<std::string, int> count;
  for (const PlannedModule& m : plan.modules) {
    if (m.stored) ++count[m.stored->name()];
  }
  for (const auto& [format, modules] : count)
    print_fact("codes", "{}: {}", format, counted(modules, "module"));
  print_fact("floats", "{}", str(floats));
}

// One line for all modules that the directory can't hold, and what to do.
void refuse_inexact(const QuantizationPlan& plan, DType floats) {
  const PlannedModule* first = nullptr;
  int others = 0;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored || affine_obstacle(*m.stored, floats).empty()) continue;
    first == nullptr ? void(first = &m) : void(++others);
  }
  if (first == nullptr) return;
  const std::string obstacle = affine_obstacle(*first->stored, floats);
  const bool helps = affine_obstacle(*first->stored, DType::f32).empty();
  fail(ErrorCode::not_supported, first->path, others > 0 ? str(" and ", others, " more") : "",
       others > 0 ? " are not held by an MLX directory as they are: "
                  : " is not held by an MLX directory as it is: ",
       first->stored->name(), ": ", obstacle, "; ", helps ? "--floats f32 holds them, " : "",
       "--dequantize writes floats, mixtape quantize rounds anew");
}

// Of floats where none is stated. Decoded blocks are numbers of f32.
DType floats_of(const ConvertCommand& o, const ModelSource& source) {
  return o.dequantize && gguf_file_of(source) ? DType::f32 : model_dtype(source);
}

void write_directory(const ConvertCommand& o, ModelOutput& output, const ModelSource& source,
                     QuantizationPlan plan, const TensorProvider& tensors) {
  const std::optional<DType> stated = stated_dtype(o.floats);
  const bool is_exact = !o.dequantize && gguf_file_of(source) != nullptr;
  const DType floats = stated ? *stated : is_exact ? exact_dtype(source, plan) : floats_of(o, source);
  refuse_inexact(plan, floats);
  plan = affine_plan(std::move(plan), floats);
  print_formats(plan, floats);
  output.require_space(static_cast<std::uint64_t>(storage_size(source, plan, floats).bytes),
                       bytes_beside(source));
  StageDisplay display;
  output.write([&](AtomicDirectory& directory) {
    write_quantized_model(directory, source, plan, tensors, floats, display.hooks());
    display.close();
  });
}

// What could not be held exactly is told after the place.
GgufLoss write_file(const ConvertCommand& o, ModelOutput& output, const ModelSource& source,
                    const QuantizationPlan& plan, const TensorProvider& tensors) {
  std::optional<DType> floats = stated_dtype(o.floats);
  if (!floats && (o.dequantize || gguf_file_of(source) == nullptr)) floats = floats_of(o, source);
  GgufPlan gguf = plan_gguf(source, plan, floats);
  if (!o.dequantize) carry_tensors(source, gguf);
  print_types(plan, gguf);
  output.require_space(gguf.layout().file_bytes(), 0);
  StageDisplay display;
  GgufLoss loss;
  output.write_gguf([&](AtomicFile& file) {
    loss = write_gguf_model(file, source, gguf, tensors, display.hooks());
    display.close();
  });
  return loss;
}

// As the written model says it.
nlohmann::json record(const ConvertCommand& o, const ModelSource& source) {
  const auto written = open_model(o.out);
  const StoredForm size = total(stored_forms(*written, o.out));
  nlohmann::json json = report_head("convert");
  json.update({{"model", model_json(o.model, source.config())},
               {"out", size_json(size.bytes, size.weights)},
               {"formats", formats_json(plan_of_stored(*written))},
               {"settings", {{"floats", o.floats}, {"dequantize", o.dequantize}}}});
  return json;
}

void run_convert(const ConvertCommand& o) {
  ModelOutput output(o.out, o.model, o.is_gguf());
  ReportFile report(o.json_file, {o.model}, o.out);
  const Stopwatch watch;
  const auto source = open_model(find_model(o.model));
  const QuantizationPlan plan = o.dequantize ? plan_of_decoded(*source) : plan_of_stored(*source);
  for (const std::string& name : plan.left_out)
    print_fact("left out", "{} (the model has no such tensor)", printable(name));
  const TensorProvider tensors = o.dequantize ? decoded_tensors(*source) : stored_tensors(*source);
  require_finite(*source, plan, tensors);
  GgufLoss loss;
  if (o.is_gguf()) {
    loss = write_file(o, output, *source, plan, tensors);
  } else {
    write_directory(o, output, *source, plan, tensors);
  }
  const auto write_report = [&] {
    if (report.wanted()) report.write_model(record(o, *source), o.out, watch.seconds());
  };
  report_then_tell({write_report}, [&] {
    output.tell();
    print_loss(loss);
  });
}

}  // namespace

void add_convert(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("convert", "Writes a model as a GGUF file or an MLX directory, codes as they are.");
  auto o = std::make_shared<ConvertCommand>();
  OptionGroup group(*command, "Model");
  group
      .path("-m,--model,model", o->model, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
  group.path("-o,--out", o->out, "DIR", "Directory or GGUF file to write; it must not exist")->required();
  group.choice("--format", o->format, {"mlx", "gguf"},
               "mlx: a directory; gguf: a file for llama.cpp; if not given, by whether --out ends in .gguf");
  group.choice(
      "--floats", o->floats, {"auto", "f32", "f16", "bf16"},
      "Type of what is not quantized, in a directory of scales too; auto: as the model, and whatever holds "
      "a GGUF file's blocks exactly, f32 where they are decoded");
  group.flag("--dequantize", o->dequantize, "Write floats for codes and blocks");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape convert -m Qwen3-0.6B-4bit -o Qwen3-0.6B-4bit.gguf\n"
      "  mixtape convert -m Qwen3-0.6B -o Qwen3-0.6B-F16.gguf --floats f16\n"
      "  mixtape convert -m Qwen3-0.6B-Q4_1.gguf -o Qwen3-0.6B-MLX\n"
      "  mixtape convert -m Qwen3-0.6B-Q4_K_M.gguf -o Qwen3-0.6B-F32.gguf --dequantize");
  command->callback([o] { run_convert(*o); });
}

}  // namespace mixtape::cli
