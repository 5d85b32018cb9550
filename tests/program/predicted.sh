#!/usr/bin/env bash
# The peak of memory that --dry-run predicts, against the peak of the same run; the time that a run predicts, against its own.
# usage: tests/program/predicted.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 400 >"$work/story"

# in_time REPORT: the time was foreseen. Runs of a second or two on a machine that others use: a tenth to ten times.
in_time() {
  python3 - "$1" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
predicted, taken = report["predicted"]["seconds"], report["seconds"]
print(f"{'':90} predicted {predicted:7.2f} s,  taken {taken:7.2f} s")
sys.exit(not taken / 10 < predicted < taken * 10)
END
}

# near PERCENT ARGUMENTS...: the prediction is within so much of what the run takes.
near() {
  local most=$1 predicted taken
  shift
  predicted=$("$mixtape" calibrate --text "$work/story" --out "$work/new" "$@" --dry-run 2>/dev/null |
    sed -n 's/^peak memory  about \([0-9.]*\) MB$/\1/p')
  "$mixtape" calibrate --text "$work/story" --out "$work/new" "$@" --json "$work/json" >/dev/null 2>&1
  taken=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["peak_bytes"] / 1e6)' "$work/json")
  in_time "$work/json" || complain "the predicted time: $*"
  rm -r "$work/new" "$work/json"
  awk -v p="${predicted:-0}" -v t="${taken:-0}" -v most="$most" -v what="$*" 'BEGIN {
    off = t > 0 ? 100 * (p - t) / t : -100
    printf "%-90s predicted %7.1f MB, taken %7.1f MB, %+5.1f %%\n", what, p, t, off
    exit off > most || off < -most }' || complain "predicted $predicted MB, taken $taken MB: $*"
}

moe="--model models/tiny-moe --length 129"
small="--model $model --group-size 32 --length 129 --validation-rows 8 --report-rows 8"
# Up to 13 % was seen on an AMD EPYC; other threads, instruction sets and libraries take other memory.
# shellcheck disable=SC2086
{
  near 30 $small --recipe fast --rows 32
  near 30 $small --batch 4 --steps 3
  near 30 $small --batch 8 --steps 3 --train scales --fit mlx
  near 30 $moe --recipe fast --rows 32 --validation-rows 8 --report-rows 8
  near 30 $moe --batch 4 --steps 3 --validation-rows 8 --report-rows 8
}

only story
finish
