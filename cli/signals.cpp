#include "cli/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "cli/line_editor.h"
#include "cli/terminal.h"
#include "mixtape/io/temporary.h"

namespace mixtape::cli {
namespace {

constexpr std::array kAsking = {SIGINT, SIGTERM, SIGHUP};
// All that end a program by default and come from outside; faults have to be handled by the thread that they befall.
constexpr std::array kEnding = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGUSR1,
                                SIGUSR2, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF};

std::atomic<bool> only_asks = false, ending = false, in_scope = false;
std::atomic<int> asked = 0;  // the signal
std::atomic<const char*> scope_line = nullptr;

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kEnding) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaddset(&set, signal);
  }
  return set;
}

[[noreturn]] void die_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), signal);
  ::_exit(128 + signal);  // process 1 of a container survives its own signals
}

void wait_for_signals(sigset_t set) {
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (in_scope && signal == SIGINT && asked.exchange(signal) == 0) {
      if (const char* line = scope_line) put_error(line);
      continue;
    }
    const bool may_ask = std::find(kAsking.begin(), kAsking.end(), signal) != kAsking.end();
    if (only_asks && may_ask && asked.exchange(signal) == 0) {
      note(signal == SIGINT ? "stopping after this batch; press Ctrl-C again to quit at once"
                            : "stopping after this batch; a second signal quits at once");
      continue;
    }
    ending = true;
    restore_terminal();
    end_line();
    remove_live_temporaries();
    die_by(signal);
  }
}

}  // namespace

void handle_signals() {
  const sigset_t set = handled_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(wait_for_signals, set).detach();
}

void watch_interrupts() { only_asks = true; }
bool interrupted() { return asked != 0; }

InterruptScope::InterruptScope(const char* line) {
  scope_line = line;
  in_scope = true;
}
InterruptScope::~InterruptScope() {
  in_scope = false;
  cli::asked = 0;
}
bool InterruptScope::asked() const { return cli::asked != 0; }

void end_by_signal() {
  std::fflush(stdout);
  restore_terminal();
  die_by(asked != 0 ? asked.load() : SIGINT);
}

void wait_if_ending() {
  while (ending) ::pause();
}

}  // namespace mixtape::cli
