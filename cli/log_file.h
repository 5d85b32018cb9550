// --log-file: what goes to standard error, as plain lines with the time, behind what the file holds.
#pragma once

#include <string>

namespace mixtape::cli {

// From now on lines are kept. The first one says which program and command. Throws invalid_argument for a name that a
// file has which is no log of mixtape's, io where the file cannot be opened.
void open_log(const std::string& name, const std::string& command);
bool has_log();
// Does nothing without a log. Where the system takes no more, a warning says so once, and the run goes on without.
void log_line(const std::string& line);

}  // namespace mixtape::cli
