// One function per subcommand: adds its options to the app; its callback sets `status`.
#pragma once

#include <CLI/CLI.hpp>

namespace mixtape::cli {

// Exit statuses of the program. failed: the system refused memory, a device, or to write or read a file. usage: what
// the user gave is wrong, the command line or what a model or text holds. `stopped` isn't one: the program ends by the
// signal that stopped it, 128+N to a shell.
enum Status : int { ok = 0, failed = 1, usage = 2, not_improved = 3, stopped = -1 };

void add_quantize(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);
void add_convert(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_chat(CLI::App& app, int& status);
void add_train(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_gradcheck(CLI::App& app, int& status);
void add_completions(CLI::App& app);
void add_man(CLI::App& app);
void add_version(CLI::App& app);

}  // namespace mixtape::cli
