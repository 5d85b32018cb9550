// Ctrl-C, SIGTERM, SIGHUP, and the others that end a program by default. A signal that was ignored when the program
// started (nohup) stays ignored.
#pragma once

namespace mixtape::cli {

// From now on those signals go to a thread of their own, which removes temporaries and then lets the signal
// end the program. Once, before any other thread starts.
void handle_signals();

// From now on the first of Ctrl-C, SIGTERM and SIGHUP only asks: it prints one line, and interrupted() turns true. The
// second one, and every other signal, ends the program.
void watch_interrupts();
bool interrupted();

// While one lives, the first Ctrl-C only asks and shows `line`, unless that is null; other signals, and a second Ctrl-C,
// end the program. One at a time.
class InterruptScope {
 public:
  explicit InterruptScope(const char* line = nullptr);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool asked() const;
};

// Ends the program by the signal that asked, as a shell expects; see interrupted().
[[noreturn]] void end_by_signal();

// Holds this thread where a signal is about to end the program: errors that come of it are not worth a word.
void wait_if_ending();

}  // namespace mixtape::cli
