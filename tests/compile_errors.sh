#!/usr/bin/env bash
# What a wrong type gets from the compiler: a sentence that says what is expected.
# usage: tests/compile_errors.sh SOURCE_DIR CXX
set -euo pipefail
source=$1 cxx=$2
failed=0

# refused STATEMENT SENTENCE: the statement doesn't compile, and the sentence is among the errors.
refused() {
  local errors
  if errors=$("$cxx" -std=c++20 -fsyntax-only -I"$source" -x c++ - 2>&1 <<END
#include "mixtape/ops/elementwise/elementwise.h"
using namespace mixtape;
void f(Var x, const Buffer& buffer, const Device& device) { $1; }
END
  ); then
    echo "compiles: $1"
    failed=1
  elif ! grep -q "$2" <<<"$errors"; then
    echo "$1: no error says '$2':"
    echo "$errors"
    failed=1
  fi
}

operand="beside a Var stands a Var or a number"
refused 'x = x + buffer' "$operand"
refused 'x = std::vector<float>{1.0f} * x' "$operand"
refused 'x /= buffer' "$operand"

element="a buffer holds float, bf16, f16, int32_t, uint32_t, uint8_t or uint16_t"
refused 'Buffer::from(device, {1}, std::vector<double>{1.0})' "$element"
refused 'Buffer::from(device, {1}, std::vector<long>{1})' "$element"
refused 'Buffer::from(device, {2}, {1.0, 2.0})' "$element"
refused 'buffer.to_vector<double>()' "$element"
exit $failed
