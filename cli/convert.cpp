// mixtape convert: a model as one GGUF file, its codes as they are.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/outputs.h"
#include "cli/quantize_options.h"
#include "cli/terminal.h"
#include "cli/training_hooks.h"
#include "mixtape/io/gguf.h"
#include "mixtape/quant/tensor_providers.h"

namespace mixtape::cli {
namespace {

struct ConvertCommand {
  std::string model, out;
  std::string floats = "auto";
};

DType float_dtype(const ConvertCommand& o, const ModelSource& source) {
  return o.floats == "f32"    ? DType::f32
         : o.floats == "f16"  ? DType::f16
         : o.floats == "bf16" ? DType::bf16
                              : model_dtype(source);
}

// Blocks of a GGUF file don't stay as they are, as codes of a directory do.
void tell_decoded(const std::filesystem::path& path, DType floats) {
  if (!std::filesystem::is_regular_file(path)) return;
  const GgufFile file(path);
  const auto blocks = std::count_if(file.tensors().begin(), file.tensors().end(), [](const GgufTensor& t) {
    return gguf_type_info(t.type).block_elements > 1;
  });
  if (blocks > 0)
    warn(fmt::format("{} tensors of {} are blocks, and are written as {}", blocks, path.string(),
                     str(floats)));
}

void run_convert(const ConvertCommand& o) {
  ModelOutput output(o.out, o.model, true);
  const auto path = find_model(o.model);
  const auto source = open_model(path);
  const QuantizationPlan plan = plan_of_stored(*source);
  const GgufPlan gguf = plan_gguf(*source, plan, float_dtype(o, *source));
  for (const std::string& name : plan.left_out)
    fmt::print("left out     {} (the model has no such tensor)\n", name);
  print_types(plan, gguf);
  tell_decoded(path, float_dtype(o, *source));
  output.require_space(gguf.layout().file_bytes());
  StageDisplay display;
  GgufLoss loss;
  output.write_gguf([&](AtomicFile& file) {
    loss = write_gguf_model(file, *source, gguf, stored_tensors(*source), display.hooks());
    display.close();
  });
  print_loss(loss);
}

}  // namespace

void add_convert(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("convert", "Writes a model as a GGUF file, for llama.cpp.");
  auto o = std::make_shared<ConvertCommand>();
  OptionGroup group(*command, "Model");
  group
      .path("-m,--model,model", o->model, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
  group.path("-o,--out", o->out, "FILE", "GGUF file to write; it must not exist")->required();
  group.choice("--floats", o->floats, {"auto", "f32", "f16", "bf16"},
               "Type of matrices that are not quantized; auto: as the model");
  command->footer(
      "Examples:\n"
      "  mixtape convert -m Qwen3-0.6B-4bit -o Qwen3-0.6B-4bit.gguf\n"
      "  mixtape convert -m Qwen3-0.6B -o Qwen3-0.6B-F16.gguf --floats f16");
  command->callback([o] { run_convert(*o); });
}

}  // namespace mixtape::cli
