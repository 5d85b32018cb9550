#!/usr/bin/env bash
# bench/run.sh [FILTER]: every op's bench, its peers at the same shapes, and the calibration step. FILTER, a regular
# expression for a bench's program (softmax_bench), leaves the step out. Peers: oneDNN; PyTorch where python3 has it;
# JAX where MIXTAPE_JAX_PYTHON names an interpreter that has it. Writes build/cpu_ops.csv: op,dtype,shape,impl,us,
# best_us,gb_per_s,percent_of_copy,percent_of_copy_best; the last three for ours. us is the median. The copy is
# measured around every row.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${MIXTAPE_BUILD:-build}
filter=${1:-}
out=$build/cpu_ops.csv
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)} OMP_PROC_BIND=${OMP_PROC_BIND:-true}
# A peer's allocator is kept from giving pages back, and takes large ones: otherwise it mostly measures page faults.
tuned=(env GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=0x7fffffffffffffff)
grep -q avx512bw /proc/cpuinfo && tuned+=(ATEN_CPU_CAPABILITY=avx512)

# fact NAME: what /proc/cpuinfo says of the first processor.
fact() { sed -n "/^$1\t*: /{s///p;q}" /proc/cpuinfo; }
processor=$(fact "model name")
family=$(fact "cpu family").$(fact model)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
{
  echo "# $processor (family.model $family), $OMP_NUM_THREADS threads; one run; mixtape at $commit"
  echo "op,dtype,shape,impl,us,best_us,gb_per_s,percent_of_copy,percent_of_copy_best"
} >"$out"

# A row of a bench's own CSV: "forward/f32_8192x128/...",iterations,time,...,counters; the header names the counters.
rows() {
  awk -F, -v op="$1" '
    $1 == "name" { for (i = 1; i <= NF; ++i) { gsub(/"/, "", $i); at[$i] = i }; next }
    /^"/ {
      gsub(/"/, "", $1); split($1, part, "/"); dtype = part[2]; sub(/_.*/, "", dtype)
      shape = part[2]; sub(/^[^_]*_/, "", shape)
      printf "%s_%s,%s,%s,mixtape,%.1f,%.1f,%.1f,%.1f,%.1f\n", op, part[1], dtype, shape, $at["real_time"],
             $at["best_us"], $at["GB/s"], $at["%copy"], $at["%copy_best"]
    }' "$2" >>"$out"
}
for bench in "$build"/*_bench; do
  name=$(basename "$bench" _bench)
  [[ $name =~ $filter ]] || continue
  echo "== $name"
  "$bench" --benchmark_out="$build/bench.csv" --benchmark_out_format=csv 2>/dev/null
  rows "$name" "$build/bench.csv"
done

peer() {
  echo "== $1"
  "${@:2}" "$build/peer.csv" || return 0
  sed 1d "$build/peer.csv" | sed 's/$/,,,/' >>"$out"
}
peer "arithmetic in registers" "$build/bench/registers"
peer oneDNN "$build/bench/onednn_ops"
peers() {
  peer "$1" "${tuned[@]}" "$2" bench/peers/cpu_ops.py
  peer "$1" "${tuned[@]}" "$2" bench/peers/cpu_losses.py
}
if python3 -c 'import torch' 2>/dev/null; then peers PyTorch python3; fi
if [ -n "${MIXTAPE_JAX_PYTHON:-}" ]; then peers JAX "$MIXTAPE_JAX_PYTHON"; fi
echo "== $out"
[ -z "$filter" ] || exit 0

echo "== calibration step"
"$build/bench/calibration"
if python3 -c 'import torch' 2>/dev/null; then
  MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_MAX_=0 python3 bench/peers/llama_step.py
else
  echo "PyTorch is not installed: no peer beside the calibration step"
fi
