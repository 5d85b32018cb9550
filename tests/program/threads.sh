#!/usr/bin/env bash
# Workers run on every processor, also where OpenMP binds the thread that starts them to one (OMP_PROC_BIND).
# usage: tests/program/threads.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 200 >"$work/story"
log=$work/log
if [ "$(nproc)" -gt 1 ]; then
  OMP_PROC_BIND=true OMP_NUM_THREADS=2 "$mixtape" calibrate --model models/tiny-moe --bits 3 --text "$work/story" \
    --out "$work/new" --batch 2 --length 64 --validation-rows 2 --report-rows 2 --validate-every 1 --steps 100000 --checkpoint-every 0 \
    >"$log" 2>&1 </dev/null &
  process=$!
  wait_for "step     2  validation" "$log"
  free=$(grep -h '^Cpus_allowed_list' "/proc/$process/task/"*/status | grep -c '[-,]')
  [ "$free" -ge 1 ] || complain "all threads are bound to one processor: $(grep -h Cpus_allowed_list "/proc/$process/task/"*/status)"
  kill -TERM $process
  wait $process
fi
# As many as are asked for; the figures are the same.
for threads in 1 3; do
  expect 0 ", $threads thread" eval --threads $threads "$model" --text "$work/story" --length 65
  figures=$(grep '^[a-z]* *[0-9.]* +-' <<<"$output")
  [ -n "$figures" ] && [ "$figures" = "${before:-$figures}" ] || complain "$threads threads: $figures, expected $before"
  before=$figures
done
expect_line 2 "--threads is 0, expected a whole number, 1 to 1024" eval --threads 0 "$model" --text "$work/story"

only story log
finish
