// mixtape quantize: plain rounding.
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model_card.h"
#include "cli/model_options.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/quantize_options.h"
#include "cli/training_hooks.h"
#include "mixtape/quant/plan_file.h"

namespace mixtape::cli {
namespace {

struct QuantizeCommand {
  ModelOptions model;
  QuantizeOptions quantize;
};

void run_quantize(const QuantizeCommand& o) {
  ModelOutput output(o.quantize.out, o.model.path);
  ReportFile plan_file = o.quantize.place_for_plan({o.model.path, o.quantize.plan_file});
  const Device device = open_device(o.model.device);
  const OpenedModel opened = o.model.open();
  const QuantizationPlan plan = o.quantize.plan(opened);
  print_plan(opened, plan, false);
  plan_file.write(plan_json(plan));
  const DType storage = model_dtype(*opened.source);
  const StorageSize size = storage_size(*opened.source, plan, storage);
  output.require_space(size.bytes);
  StageDisplay display;
  output.write([&](AtomicDirectory& directory) {
    write_card(directory.path(), o.quantize.out,
               model_record("quantize", o.model, o.quantize, size.bits_per_weight()));
    write_rounded_model(directory, *opened.source, plan, o.quantize.rounding(), storage, device,
                        display.hooks());
    display.close();
  });
}

}  // namespace

void add_quantize(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("quantize", "Rounds a model's matrices to few bits.");
  auto o = std::make_shared<QuantizeCommand>();
  o->model.add(*command);
  o->quantize.add(*command);
  command->footer(
      "Examples:\n"
      "  mixtape quantize -m Qwen3-0.6B -o Qwen3-0.6B-4bit\n"
      "  mixtape quantize -m model.gguf -o model-3bit --bits 3 --group-size 32\n"
      "  mixtape quantize -m Qwen3-0.6B -o out --bits 3 --bits-for '*.down_proj=6'");
  command->callback([o] { run_quantize(*o); });
}

}  // namespace mixtape::cli
