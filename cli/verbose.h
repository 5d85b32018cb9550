// MIXTAPE_VERBOSE=1: a line for each dispatch, and what it launched.
#pragma once

namespace mixtape::cli {

// Prints them to stderr from now on, if the environment asks for it.
void print_dispatches_if_asked();

}  // namespace mixtape::cli
