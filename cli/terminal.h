// Lines to standard error, and what the terminal behind it can do.
#pragma once

#include <cstddef>
#include <string>

namespace mixtape::cli {

// Standard output by lines, so that a log holds them in order; writing into a closed pipe or past a limit on
// file sizes becomes an error instead of a signal; standard streams that are closed stay so. Once, first in main.
void prepare_streams();

// Whether a line of standard error can be rewritten in place.
bool can_rewrite_line();
// Columns of the terminal behind standard error: what it says, else COLUMNS, else 80; 20 or more.
int terminal_width();
// Columns of the terminal that standard output is; many where it is none.
int output_width();

// Standard error is for people: where nobody can read it any more, the run goes on.
void put_error(const std::string& text);
// From now on no progress is shown: of what goes to standard error warnings and errors stay.
void be_quiet();
bool is_quiet();

// `text` in lines of at most `width` columns, broken between words; those after the first begin at column `indent`.
std::string folded(std::string text, std::size_t width, std::size_t indent = 0);

// A line of its own, on a terminal as many as its words take; a progress line that stands there is cleared first.
void note(const std::string& line);
// "mixtape: ..."
void tell_error(const std::string& text);
// From now on errors alone go to standard error, by this name: "mixtape: rank 1: ..."; nothing to standard output.
void tell_errors_alone(const std::string& name);
// "mixtape: warning: ..."
void warn(const std::string& text);

// `line` in place of the progress line that stands there, cut to the width.
void rewrite_line(const std::string& line);
// Ends the progress line that stands there, if any.
void end_line();

}  // namespace mixtape::cli
