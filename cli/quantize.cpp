// mixtape quantize: plain rounding.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/quantize_options.h"

namespace mixtape::cli {

void add_quantize(CLI::App& app, int&) {
  struct Options {
    ModelOptions model;
    QuantizeOptions quantize;
  };
  CLI::App* command = app.add_subcommand("quantize", "Rounds a model's matrices to few bits.");
  auto o = std::make_shared<Options>();
  o->model.add(*command);
  o->quantize.add(*command);
  command->callback([o] {
    AtomicDirectory output(o->quantize.out);
    const OpenedModel opened = o->model.open();
    const QuantizationPlan plan = o->quantize.plan(opened);
    print_plan(opened, plan, false);
    write_rounded_model(output, *opened.source, plan, o->quantize.rounding(), model_dtype(*opened.source),
                        Device::open(o->model.device));
    fmt::print("wrote        {}\n", o->quantize.out);
  });
}

}  // namespace mixtape::cli
