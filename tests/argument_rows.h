// The public functions, each with one valid call: what arguments_test.cpp spoils.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

using Buffers = std::vector<Buffer>;

struct ArgumentRow {
  std::string name;
  // "x f32 T,C; y* f32 T,C": name, dtype, dimensions. A dimension is a letter that stands for one size, also
  // as T*2, K/8 or E+1, or a number. Marks of the name: * written, ? may be null, ~ any value dtype, # any
  // dtype, ^ any rank.
  std::string arguments;
  std::function<void(CommandEncoder&, const Buffers&)> call;
  // "dx=dy dx=x": an output and what may be the same buffer.
  std::string aliases = "";
};

// Functions that write to buffers they are given.
std::vector<ArgumentRow> rows_of_calls();
// Functions that make their outputs, most of them on the tape.
std::vector<ArgumentRow> rows_of_makers();

}  // namespace mixtape
