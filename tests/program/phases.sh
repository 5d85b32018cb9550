#!/usr/bin/env bash
# SIGTERM in every phase of the commands that write a model, with and without --write-on-interrupt: how the program
# ends, how soon, and what is on the disk then. Prints a table of it.
# usage: tests/program/phases.sh SOURCE_DIR MIXTAPE C_COMPILER
source "$(dirname "$0")/lib.sh"
set -m # background jobs don't ignore signals
story 400 >"$work/story"
text="--text $work/story --batch 2 --length 64 --validation-rows 2"
calibrate="calibrate --model $model --group-size 32 --out $work/new --checkpoint-every 0" # resume.sh has checkpoints
train="train --model-config $model/config.json --tokenizer $model --out $work/new --checkpoint-every 0"
log=$work/log
"$3" -O1 -shared -fPIC tests/slow_disk/slow_disk.c -o "$work/slow_disk.so" -ldl || exit 1

# left: what the run left on the disk.
left() {
  local found
  found=$(cd "$work" && ls -d new* 2>/dev/null | tr '\n' ' ')
  case $found in
    '') echo nothing ;;
    'new ') "$mixtape" info "$work/new" >/dev/null 2>&1 && echo "the model" || echo "a broken model" ;;
    *) echo "$found" ;;
  esac
}

# phase NAME MARK STATUS LEFT ARGUMENTS...: the signal comes when the log has the mark.
phase() {
  local name=$1 mark=$2 status=$3 expected=$4 process found began has
  shift 4
  : >"$log"
  case $name in
    *writing*) LD_PRELOAD=$work/slow_disk.so SLOW_DISK_MS=40 ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 \
      "$mixtape" "$@" >"$log" 2>&1 </dev/null & ;;
    *) "$mixtape" "$@" >"$log" 2>&1 </dev/null & ;;
  esac
  process=$!
  wait_for "$mark" "$log"
  began=$(date +%s%N)
  kill -TERM $process || complain "$name: had ended before: $(cat "$log")"
  wait $process 2>/dev/null
  found=$?
  took=$((($(date +%s%N) - began) / 1000000))
  has=$(left)
  printf '%-28s %-20s status %3d after %5d ms, left: %s\n' "$name" \
    "$([[ $* == *--write-on* ]] && echo --write-on-interrupt)" $found $took "$has"
  if [ $found != "$status" ] || [ "$has" != "$expected" ]; then
    complain "$name of mixtape $*: status $found and $has, expected $status and $expected; log: $(cat "$log")"
  fi
  rm -rf "$work"/new*
}

option=--write-on-interrupt
short="--steps 20 --validate-every 1"
# shellcheck disable=SC2086
{
  for o in "" $option; do
    phase "calibrate, sampling" "sampling: " 143 nothing $calibrate --data self --self-rows 640 --length 64 --validation-rows 2 --report-rows 2 $o
    phase "calibrate, statistics" "input statistics: " 143 nothing $calibrate $text --report-rows 2 --steps 100000 $o
    phase "calibrate, fitting" "fitting: " 143 nothing $calibrate $text --report-rows 2 --steps 100000 $o
    phase "calibrate, evaluation before" "evaluating initial" 143 nothing $calibrate $text --report-rows 150 $o
    phase "calibrate, targets" "targets: " 143 nothing $calibrate $text --report-rows 2 --top-k 8 --target-dir "$work/new.targets" $o
  done
  phase "calibrate, choosing bits" "measuring modules: " 143 nothing calibrate --model "$model" --out "$work/new" --checkpoint-every 0 $text --report-rows 2 --bpw 10.5
  phase "calibrate, training" "step    20  validation" 143 nothing $calibrate $text --report-rows 2 --steps 100000 --validate-every 1
  phase "calibrate, training" "step    20  validation" 0 "the model" $calibrate $text --report-rows 2 --steps 100000 --validate-every 1 $option
  phase "calibrate, layers" "learning layers: " 143 nothing $calibrate $text --report-rows 2 --train blocks --steps 300
  phase "calibrate, layers" "learning layers: " 0 "the model" $calibrate $text --report-rows 2 --train blocks --steps 300 $option
  phase "calibrate, evaluation after" "evaluating result" 143 nothing $calibrate $text --report-rows 150 $short
  phase "calibrate, evaluation after" "evaluating result" 0 "the model" $calibrate $text --report-rows 150 $short $option
  phase "calibrate, writing" "writing: " 143 nothing $calibrate $text --report-rows 2 $short
  phase "calibrate, writing" "writing: " 0 "the model" $calibrate $text --report-rows 2 $short $option
  phase "quantize, writing" "writing: " 143 nothing quantize --model "$model" --group-size 32 --out "$work/new"
  # 128 million values to be drawn first.
  sed 's/"vocab_size": *[0-9]*/"vocab_size": 2000000/' "$model/config.json" >"$work/large.json"
  for o in "" $option; do
    phase "train, initializing" "^steps  " 143 nothing train --model-config "$work/large.json" --tokenizer "$model" --out "$work/new" $text --report-rows 2 $o
    [ $took -lt 1500 ] || complain "train, initializing: ended after $took ms"
  done
  phase "train, training" "step   500  validation" 143 nothing $train $text --report-rows 2 --steps 5000
  phase "train, training" "step   500  validation" 0 "the model" $train $text --report-rows 2 --steps 5000 $option
  phase "train, writing" "writing: " 143 nothing $train $text --report-rows 2 --steps 20
  phase "train, writing" "writing: " 0 "the model" $train $text --report-rows 2 --steps 20 $option
  phase "train, evaluation" "evaluating result" 0 "the model" $train $text --report-rows 150 --steps 20
  phase "train, evaluation" "evaluating result" 0 "the model" $train $text --report-rows 150 --steps 20 $option
}

only story log slow_disk.so large.json
finish
