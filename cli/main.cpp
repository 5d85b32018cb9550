// mixtape: calibrates quantized language models by gradient.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/verbose.h"
#include "mixtape/core/error.h"

int main(int argc, char** argv) {
  using namespace mixtape::cli;
  CLI::App app("Calibrates quantized language models by gradient.", "mixtape");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int status = Status::ok;
  add_quantize(app, status);
  add_dwq(app, status);
  add_eval(app, status);
  add_generate(app, status);
  add_train(app, status);
  add_info(app, status);
  add_doctor(app, status);
  add_gradcheck(app, status);
  print_dispatches_if_asked();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? Status::ok : Status::usage;
  } catch (const mixtape::Error& error) {
    fmt::print(stderr, "mixtape: {}\n", error.what());
    return error.code() == mixtape::ErrorCode::invalid_argument ? Status::usage : Status::failed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "mixtape: {}\n", error.what());
    return Status::failed;
  }
  return status;
}
