// mixtape: calibrates quantized language models by gradient.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/help.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/verbose.h"
#include "cli/version.h"
#include "mixtape/core/error.h"
#include "mixtape/core/library_commit.h"

namespace mixtape::cli {
namespace {

// One line, whatever CLI11 made of it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int parse_and_run(CLI::App& app, int argc, char** argv, int& status) {
  std::vector<std::string> words = checked_arguments(app, argc, argv);
  if (words[0] == "--version" || words[0] == "-V") words = {"version"};
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  app.parse(std::move(words));
  return status;
}

Status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::out_of_memory:
    case ErrorCode::device:
    case ErrorCode::io:
      return Status::failed;
    case ErrorCode::interrupted:
      return Status::stopped;
    case ErrorCode::invalid_argument:
    case ErrorCode::index_out_of_range:
    case ErrorCode::not_supported:
    case ErrorCode::format:
      return Status::usage;
  }
  return Status::failed;
}

int report_failure(const std::string& text, int status) {
  wait_if_ending();
  tell_error(text);
  return status;
}

int run(CLI::App& app, int argc, char** argv, int& status) {
  try {
    return parse_and_run(app, argc, argv, status);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    fmt::print("{}", chosen.empty() ? app.help() : chosen[0]->help());
    return Status::ok;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    return report_failure((chosen.empty() ? "" : chosen[0]->get_name() + ": ") + first_line(error.what()),
                          Status::usage);
  } catch (const Error& error) {
    const bool is_stopped = error.code() == ErrorCode::interrupted;
    return report_failure(str(error.what(), is_stopped ? "; nothing was written" : ""),
                          status_of(error.code()));
  }
}

bool has_no_reader(int file) {
  pollfd state{file, POLLOUT, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

// What fmt throws where standard output can't be written, among others. A reader that has seen enough is no news.
int system_failed(const std::system_error& error) {
  if (std::ferror(stdout) == 0) return report_failure(error.what(), Status::failed);
  if (error.code().value() == EPIPE || has_no_reader(STDOUT_FILENO)) return Status::failed;
  return report_failure(str("standard output: ", error.what()), Status::failed);
}

// A library of another commit may lay out the same names differently.
bool is_of_one_commit() { return std::string_view(library_commit()) == commit(); }

int run_program(int argc, char** argv) {
  if (!is_of_one_commit())
    return report_failure(str("the program is of commit ", commit(), ", libmixtape of commit ",
                              library_commit(), ", expected both of one commit"),
                          Status::failed);
  CLI::App app("mixtape calibrates quantized language models by gradient.", "mixtape");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("-V,--version", std::string(version()),
                       "The version, its commit, compiler and backends");
  int status = Status::ok;
  add_calibrate(app, status);
  add_convert(app, status);
  add_quantize(app, status);
  add_eval(app, status);
  add_compare(app, status);
  add_generate(app, status);
  add_chat(app, status);
  add_train(app, status);
  add_info(app, status);
  add_doctor(app, status);
  add_gradcheck(app, status);
  add_completions(app);
  add_man(app);
  add_version(app);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    add_common_options(*command);
  print_dispatches_if_asked();
  try {
    status = run(app, argc, argv, status);
    // What an earlier flush couldn't write is lost: the last one knows nothing of it.
    const bool is_flushed = std::fflush(stdout) == 0;
    if (!is_flushed || std::ferror(stdout) != 0)
      throw std::system_error(is_flushed ? EIO : errno, std::generic_category(), "cannot write");
  } catch (const std::system_error& error) {
    return system_failed(error);
  } catch (const std::exception& error) {
    return report_failure(error.what(), Status::failed);
  }
  return status;
}

}  // namespace
}  // namespace mixtape::cli

int main(int argc, char** argv) {
  using namespace mixtape::cli;
  prepare_streams();
  handle_signals();
  const int status = run_program(argc, argv);
  if (status == Status::stopped) end_by_signal();
  return status;
}
