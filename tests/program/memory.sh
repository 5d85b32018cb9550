#!/usr/bin/env bash
# The resident memory of a calibration whose experts see other numbers of rows in every step stays flat after step 20.
# usage: tests/program/memory.sh SOURCE_DIR MIXTAPE [STEP...]: prints the memory at those steps
source "$(dirname "$0")/lib.sh"
shift 2
[ $# -gt 0 ] || set -- 100 200
story 200 >"$work/story"
log=$work/log

# resident PROCESS: MB
resident() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$1/status"; }

"$mixtape" calibrate --model models/tiny-moe --bits 3 --text "$work/story" --out "$work/new" --batch 2 --length 64 \
  --checkpoint-every 0 --validation-rows 2 --report-rows 2 --validate-every 20 --steps $((${!#} + 40)) >"$log" 2>&1 </dev/null &
process=$!
wait_for "step    20  validation" "$log"
first=$(resident $process)
printf 'step %5d  %5d MB resident\n' 20 "$first"
for step in "$@"; do
  until grep -q "$(printf 'step %5d  validation' "$step")" "$log"; do
    kill -0 $process 2>/dev/null || { complain "ended before step $step: $(cat "$log")"; break; }
    sleep 0.05
  done
  now=$(resident $process)
  printf 'step %5d  %5d MB resident\n' "$step" "$now"
  # 4 MB: what an allocator may still settle by.
  [ "$now" -le $((first + 4)) ] || complain "step $step: $now MB, expected at most 4 more than $first"
done
kill -TERM $process
wait $process
only story log
finish
