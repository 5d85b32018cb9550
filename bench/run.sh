#!/usr/bin/env bash
# Runs every op's bench and the calibration step; arguments go to the op benches (--benchmark_filter=...).
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
for bench in build/*_bench; do
  echo "== $(basename "$bench")"
  "$bench" --benchmark_min_time=0.2 "$@" 2>/dev/null
done
echo "== calibration step"
build/bench/calibration
