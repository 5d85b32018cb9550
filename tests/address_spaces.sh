#!/usr/bin/env bash
# The GPU kernels as C++ for OpenCL: clang checks their syntax and address spaces, which are Metal's too.
# usage: tests/address_spaces.sh SOURCE_DIR CLANG
set -uo pipefail
cd "$1"
failed=0
for file in $(find mixtape -name '*_gpu.cu' | sort); do
  "$2" -x cl -cl-std=clc++2021 -fsyntax-only -I. -Itests/address_spaces -Wno-everything "$file" || failed=1
done
exit $failed
