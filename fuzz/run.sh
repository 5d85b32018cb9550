#!/usr/bin/env bash
# fuzz/run.sh SECONDS [TARGET...]: builds the fuzzers and runs each for SECONDS, one on each core. Inputs start
# from fuzz/corpus/<target>; what is found on the way is kept in the build folder. Exits 1 if one of them ends with a
# crash, a leak, more than 2 GB or an input that takes over 20 s; the input lies in build-fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
build=${MIXTAPE_FUZZ_BUILD:-build-fuzz}
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DMIXTAPE_FUZZ=ON -DMIXTAPE_QUICK=ON \
  -DMIXTAPE_TESTS=OFF -DMIXTAPE_BENCH=OFF -DNVCC=OFF >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
ninja -C "$build" fuzzers

[ $# -gt 0 ] || set -- $(ls fuzz/corpus)
export OMP_NUM_THREADS=1
mkdir -p "$build/findings"

fuzz() {
  local target=$1 grown=$build/corpus/$1
  mkdir -p "$grown"
  if "$build/fuzz/${target}_fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 \
    -use_value_profile=1 -print_final_stats=1 -artifact_prefix="$build/findings/$target-" \
    "$grown" "fuzz/corpus/$target" >"$build/$target.log" 2>&1; then
    echo "$target: $(grep -o 'DONE.*' "$build/$target.log" || tail -1 "$build/$target.log")"
  else
    echo "$target: failed" >&2
    grep -E 'ERROR|SUMMARY|Test unit written|terminate|what\(\)' "$build/$target.log" >&2 || tail -20 "$build/$target.log" >&2
    return 1
  fi
}

cores=$(nproc)
failed=0
for target in "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n || failed=1; done
  fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
exit $failed
