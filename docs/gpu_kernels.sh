#!/usr/bin/env bash
# Prints docs/gpu_kernels.txt: every GPU kernel's name, which macros make, and the file it is written in.
# usage: docs/gpu_kernels.sh >docs/gpu_kernels.txt     needs nvcc
set -euo pipefail
export LC_ALL=C  # the order of names
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)

for file in mixtape/backend/gpu/*_gpu.cu mixtape/ops/*/*_gpu.cu mixtape/ops/*/*_cuda.cu; do
  "$nvcc" -E -std=c++17 -I. -arch=sm_90a "$file" | FILE=$file perl -0777 -ne '
    while (/extern "C" __attribute__\(\(global\)\) void ([^{]*)\{/g) {
      my $head = $1;
      $head =~ s/__attribute__\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)//g;
      print "$1 $ENV{FILE}\n" if $head =~ /^\s*(\w+)\(/;
    }'
done | sort -u
