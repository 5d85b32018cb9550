#!/usr/bin/env bash
# Ctrl-C, SIGTERM and SIGHUP in every phase: the program stops within a batch, leaves nothing, ends by the signal; with
# --write-on-interrupt it writes the best state. Other signals end it at once, and leave nothing.
# usage: tests/program/signals.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
set -m # background jobs don't ignore Ctrl-C
story 400 >"$work/story"
text="--text $work/story --batch 2 --length 64 --validation-rows 2"
few="$text --report-rows 2"
dwq="calibrate --model $model --group-size 32 --out $work/new --checkpoint-every 0"
train="train --model-config $model/config.json --tokenizer $model --out $work/new --checkpoint-every 0"
log=$work/log

# stopped SIGNAL PHASE STATUS TEXT ARGUMENTS...: sent when the log names the phase; the log says the text.
stopped() {
  local signal=$1 phase=$2 status=$3 text=$4 process found
  shift 4
  : >"$log"
  "$mixtape" "$@" >"$log" 2>&1 </dev/null &
  process=$!
  wait_for "$phase" "$log"
  kill -"$signal" $process
  wait $process 2>/dev/null
  found=$?
  if [ $found != "$status" ] || ! grep -q "$text" "$log"; then
    complain "$signal in '$phase' of mixtape $*: status $found, expected $status and '$text' in: $(cat "$log")"
  fi
}

# nothing_left: neither the output nor a temporary.
nothing_left() {
  grep -q '^new' <<<"$(ls "$work")" && complain "left behind: $(ls "$work"); log: $(cat "$log")"
  rm -rf "$work"/new*
}

asks="stopping after this batch"
nothing="nothing was written"
# shellcheck disable=SC2086
{
  stopped INT "sampling" 130 "$nothing" $dwq --data self --self-rows 640 --length 64 --validation-rows 2 --report-rows 2
  nothing_left
  stopped TERM "evaluating initial" 143 "$asks" $dwq $text --report-rows 150
  nothing_left
  stopped HUP "targets" 129 "$nothing" $dwq $few --top-k 8 --target-dir "$work/new.targets"
  nothing_left
  for signal in INT:130 TERM:143 HUP:129; do
    stopped ${signal%:*} "validation loss" ${signal#*:} "$nothing" $dwq $few --steps 100000
    nothing_left
    stopped ${signal%:*} "step    20  validation" 0 "wrote        $work/new" $dwq $few --steps 100000 --write-on-interrupt --validate-every 1 --html "$work/new.html"
    grep -q "$asks" "$log" || complain "no word of the signal: $(cat "$log")"
    [ -e "$work/new/model.safetensors" ] || complain "$signal: --write-on-interrupt wrote nothing"
    python3 tests/program/check_page.py "$work/new.html" "This run was stopped before its end: in '" "is the best one until then, that of " ||
      complain "the page of a stopped run"
    rm -rf "$work/new" "$work/new.html"
  done
  stopped TERM "evaluating result" 0 "wrote        $work/new" $dwq $text --report-rows 150 --steps 20 --validate-every 1 --write-on-interrupt --html "$work/new.html"
  python3 tests/program/check_page.py "$work/new.html" "after all steps, while its result was evaluated" || complain "the page of a run that was stopped late"
  rm -rf "$work/new" "$work/new.html"
  ulimit -c 0
  for signal in QUIT:131 USR1:138 XCPU:152; do
    stopped ${signal%:*} "validation loss" ${signal#*:} "" $dwq $few --steps 100000 --write-on-interrupt
    nothing_left
  done
  stopped INT "validation loss" 130 "$nothing" $train $few --steps 100000
  nothing_left
  for signal in INT:130 TERM:143 HUP:129; do
    stopped ${signal%:*} "Once" ${signal#*:} "" generate --model "$model" --prompt Once -n 1000000
    stopped ${signal%:*} "^device" ${signal#*:} "" generate --model "$model" --prompt Once -n 1000000 --samples 2
  done
  stopped TERM "evaluating" 143 "" eval --model "$model" --text "$work/story" --length 8 --batch 1 --max-tokens 4000
}

# The second one ends the program at once, its temporaries gone.
# shellcheck disable=SC2086
{
  "$mixtape" $dwq --text "$work/story" --length 1024 --batch 6 --validation-rows 1 --report-rows 1 --steps 100000 >"$log" 2>&1 &
  process=$!
  wait_for "step     0" "$log"
  kill -INT $process
  wait_for "$asks" "$log"
  kill -INT $process
  wait $process
  found=$?
  [ $found = 130 ] || complain "two signals: status $found: $(cat "$log")"
  nothing_left
}

# nohup: a hangup that was ignored at the start stays ignored.
# shellcheck disable=SC2086
{
  (trap '' HUP && exec "$mixtape" $dwq $few --steps 100000) >"$log" 2>&1 &
  process=$!
  wait_for "validation loss" "$log"
  kill -HUP $process
  kill -INT $process
  wait $process
  found=$?
  [ $found = 130 ] || complain "nohup: status $found: $(cat "$log")"
  nothing_left
}

only story log
finish
