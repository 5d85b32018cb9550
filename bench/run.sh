#!/usr/bin/env bash
# Runs every op's bench and the calibration step; arguments go to the op benches (--benchmark_filter=...).
# Where PyTorch is installed (python3-torch), its training step runs beside ours.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
for bench in build/*_bench; do
  echo "== $(basename "$bench")"
  "$bench" --benchmark_min_time=0.2 "$@" 2>/dev/null
done
echo "== calibration step"
build/bench/calibration
if python3 -c 'import torch' 2>/dev/null; then
  # Its allocator kept from giving pages back: otherwise the peer mostly measures page faults.
  MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_MAX_=0 python3 bench/peers/llama_step.py
else
  echo "PyTorch is not installed: no peer beside the calibration step"
fi
