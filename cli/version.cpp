#include "cli/version.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "mixtape/runtime/backend.h"

namespace mixtape::cli {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang";
#else
constexpr const char* kCompiler = "g++";
#endif

}  // namespace

const char* version() { return MIXTAPE_VERSION; }

std::string version_text() {
  std::string backends;
  for (const std::string& kind : registered_backends()) backends += (backends.empty() ? "" : ", ") + kind;
  return fmt::format("mixtape {} ({})\ncompiler     {} {}\nbackends     {}\n", version(), commit(), kCompiler,
                     __VERSION__, backends);
}

void add_version(CLI::App& app) {
  CLI::App* command = app.add_subcommand("version", "Shows version, commit, compiler and backends.");
  command->callback([] { fmt::print("{}", version_text()); });
}

}  // namespace mixtape::cli
