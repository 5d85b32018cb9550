#!/usr/bin/env bash
# Runs that were killed, stopped or out of disk go on with --resume and write what an undisturbed run writes, byte for
# byte; checkpoints that are of no use say so in one line, and nothing is lost.
# usage: tests/program/resume.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
set -m # else background jobs ignore Ctrl-C
story 120 >"$work/story"
log=$work/log
base="calibrate --model $model --group-size 32 --text $work/story --length 64 --batch 2 --validation-rows 8 --report-rows 8"
short="$base --steps 40 --validate-every 10"
often="--checkpoint-every 0.0005" # 30 ms

# killed MARK ARGUMENTS...: with kill -9, as soon as the log has the mark. Fails where the run had ended before.
killed() {
  local mark=$1 i
  shift
  : >"$log"
  "$mixtape" "$@" >"$log" 2>&1 </dev/null &
  local process=$!
  for i in $(seq 3000); do
    ! grep -q -- "$mark" "$log" || break
    kill -0 $process 2>/dev/null || break
    sleep 0.01
  done
  grep -q -- "$mark" "$log" || complain "'$mark' didn't come in: $(cat "$log")"
  kill -KILL $process 2>/dev/null
  wait $process 2>/dev/null
  [ $? = 137 ]
}

# same A B: two results, files or directories.
same() { diff -r "$1" "$2" >/dev/null || complain "$1 and $2 differ: $(diff -rq "$1" "$2")"; }

# A run killed in each of its phases, and gone on with, on other numbers of threads.
# shellcheck disable=SC2086
{
  long="$base --data self --self-rows 64 --steps 60 --validate-every 10 --train blocks"
  expect 0 "wrote" $long --out "$work/whole/model" --save-imatrix "$work/whole/imatrix.gguf" $often
  only story whole log
  [ -z "$(find "$work/whole" -name '*.checkpoint*')" ] || complain "a run that ended left its checkpoint"
  options="--out $work/killed/model --save-imatrix $work/killed/imatrix.gguf $often --resume"
  threads=1
  kills=0
  for mark in "sampling: " "input statistics: " "fitting: " "evaluating initial fit: " "evaluating gptq: " "learning layers: " \
    "step    10  validation" "step    40  validation" "evaluating result: "; do
    OMP_NUM_THREADS=$((threads = 3 - threads)) killed "$mark" $long $options || break # so quick that it had ended
    [ ! -e "$work/killed/model" ] || complain "'$mark': wrote"
    : $((++kills))
  done
  [ $kills -ge 7 ] || complain "killed $kills times, expected 7 or more"
  if [ ! -e "$work/killed/model" ]; then
    expect 0 "resumes      $work/killed/model.checkpoint: " $long $options --threads 1 --quiet
    [[ $output != *"step    10"* && $output != *"sampling: "* ]] || complain "done again: $output"
  fi
  same "$work/whole" "$work/killed"
  rm -r "$work/whole" "$work/killed"
}

# A plan that was measured is not measured again; the file is the same.
# shellcheck disable=SC2086
{
  budget="${base/--group-size 32/} --bpw 11.5 --recipe fast"
  expect 0 "wrote" $budget --out "$work/whole.gguf" --save-plan "$work/whole.json"
  for mark in "measuring modules: " "measuring swaps: " "evaluating gptq"; do
    killed "$mark" $budget --out "$work/killed.gguf" --save-plan "$work/killed.json" $often --resume || complain "'$mark': ended"
  done
  ! grep -q "measuring modules" "$log" || complain "measured again: $(cat "$log")"
  [ -s "$work/killed.json" ] || complain "the chosen plan isn't written"
  expect 0 "resumes" $budget --out "$work/killed.gguf" --save-plan "$work/killed.json" --resume
  [[ $output != *"measuring modules: "* ]] || complain "measured again: $output"
  # Another run into a file while one is at work.
  : >"$log"
  "$mixtape" $budget --out "$work/held.gguf" >"$log" 2>&1 </dev/null &
  process=$!
  wait_for "measuring modules: " "$log"
  kill -STOP $process
  expect_line 1 "held.gguf: another run is writing it" $budget --out "$work/held.gguf" --resume
  kill -CONT $process
  while kill -0 $process 2>/dev/null; do sleep 0.1; done # wait would tell that it was held
  [ -s "$work/held.gguf" ] || complain "a run beside which another was refused: $(cat "$log")"
  rm "$work/held.gguf"
  same "$work/whole.gguf" "$work/killed.gguf"
  same "$work/whole.json" "$work/killed.json"
  only story log whole.gguf killed.gguf whole.json killed.json
  rm "$work"/*.gguf "$work"/*.json
}

# SIGTERM: the last line is the command that goes on. An old checkpoint is named with it, and stays.
# shellcheck disable=SC2086
{
  expect 0 "wrote" $short --out "$work/whole/model"
  : >"$log"
  "$mixtape" $short --out "$work/new/model" >"$log" 2>&1 </dev/null &
  process=$!
  wait_for "step    10  validation" "$log"
  kill -TERM $process
  wait $process 2>/dev/null
  found=$?
  command=$(tail -n 1 "$log" | sed -n 's/^go on with   mixtape //p')
  [[ $found = 143 && $command == *" --resume" ]] || complain "SIGTERM: status $found: $(cat "$log")"
  grep -q "nothing was written" "$log" || complain "SIGTERM: $(cat "$log")"
  cp -r "$work/new" "$work/old"
  expect_line 1 "model.checkpoint: holds the work of this run, which goes on with \`mixtape $command\`; remove it" $short --out "$work/new/model"
  expect 1 "(its --steps is 40, here 30), which goes on with \`mixtape $command\`; remove it" $base --steps 30 --validate-every 10 --out "$work/new/model"
  for other in "--seed 1" "--bits 3" "--train scales"; do
    expect_line 2 "model.checkpoint is of another run: its ${other% *} is not given, here ${other#* }" $short $other --out "$work/new/model" --resume
  done
  story 130 | sed 1,9d >"$work/other"
  expect_line 2 "is of another run: its text is another" ${short//$work\/story/$work\/other} --out "$work/new/model" --resume
  cp -r "$model" "$work/model"
  expect_line 1 "holds the work of this run" ${short//$model/$work\/model} --out "$work/new/model" # by content
  head -c 4096 /dev/zero | tr '\0' '\1' | dd of="$work/model/model.safetensors" bs=1 seek=200000 conv=notrunc 2>/dev/null
  expect_line 2 "is of another run: its model is another" ${short//$model/$work\/model} --out "$work/new/model" --resume
  same "$work/new" "$work/old"
  eval "expect 0 'resumes' $command"
  same "$work/new" "$work/whole"

  # What was cut short is done again; a folder that is no checkpoint stays.
  for state in "methods" "stage 3 training"; do
    rm -r "$work/new"
    cp -r "$work/old" "$work/new"
    truncate -s 5000 "$work/new/model.checkpoint/$state.safetensors"
    expect 0 "'$state' is done again" $short --out "$work/new/model" --resume
    same "$work/new" "$work/whole"
  done
  rm -r "$work/new"
  cp -r "$work/old" "$work/new"
  echo "{" >"$work/new/model.checkpoint/run.json"
  expect_line 2 "model.checkpoint/run.json: " $short --out "$work/new/model" --resume
  [[ $output == *"; remove $work/new/model.checkpoint or choose another --out" ]] || complain "a run.json cut short, without advice: $output"
  echo "{}" >"$work/new/model.checkpoint/run.json"
  expect_line 2 "expected an object with command and inputs; remove $work/new/model.checkpoint or choose" $short --out "$work/new/model"
  cp "$work/old/model.checkpoint/run.json" "$work/new/model.checkpoint/run.json"
  cp "$model/model.safetensors" "$work/new/model.checkpoint/methods.safetensors"
  expect_line 2 "methods.safetensors: is no state of a run" $short --out "$work/new/model" --resume
  [[ $output == *"; remove that file to do again what it held" ]] || complain "a state of something else, without advice: $output"
  rm "$work/new/model.checkpoint/methods.safetensors"
  expect 0 "resumes" $short --out "$work/new/model" --resume
  rm -r "$work/new"
  cp -r "$work/old" "$work/new"
  rm "$work/new/model.checkpoint/run.json"
  expect_line 1 "model.checkpoint: is no checkpoint, expected run.json in it" $short --out "$work/new/model"
  [ -e "$work/new/model.checkpoint/methods.safetensors" ] || complain "a folder that is no checkpoint was cleared"
  rm -r "$work/new" "$work/old" "$work/model" "$work/other"
  expect 0 "no checkpoint $work/new/model.checkpoint: the run begins anew" $short --out "$work/new/model" --resume
  same "$work/new" "$work/whole"
  rm -r "$work/new"
}

# A model that is trained from nothing.
# shellcheck disable=SC2086
{
  train="train --model-config $model/config.json --tokenizer $model --text $work/story --length 64 --batch 2 --validation-rows 8 --report-rows 8 --steps 200"
  "$mixtape" $train --out "$work/trained/model" >"$log" 2>&1 </dev/null
  status=$?
  killed "step    40  validation" $train --out "$work/killed/model" $often || complain "train: had ended"
  killed "step   120  validation" $train --out "$work/killed/model" $often --resume || complain "train: had ended"
  expect 1 "model.checkpoint: holds the work of this run" $train --out "$work/killed/model"
  expect $status "resumes      $work/killed/model.checkpoint: training" $train --out "$work/killed/model" --resume
  [[ $output != *"step    40  validation"* ]] || complain "train: done again: $output"
  same "$work/trained" "$work/killed"
  rm -r "$work/trained" "$work/killed"
}

# A disk that is full costs checkpoints, not the run.
mkdir "$work/disk"
if mount -t tmpfs -o size=20m tmpfs "$work/disk" 2>/dev/null; then
  trap 'umount "$work/disk"; rm -rf "$work"' EXIT
  # shellcheck disable=SC2086
  {
    : >"$log"
    "$mixtape" $base --steps 400 --validate-every 10 $often --out "$work/disk/model" >"$log" 2>&1 &
    process=$!
    wait_for "step    10  validation" "$log"
    cat /dev/zero >"$work/disk/filler" 2>/dev/null
    wait_for "warning: no checkpoint of 'stage 3 training', the run goes on: .*No space left on device" "$log"
    rm "$work/disk/filler"
    wait $process || complain "a full disk: $(cat "$log")"
    [ "$(ls "$work/disk")" = model ] || complain "a full disk: $(ls "$work/disk")"
    expect 0 "wrote" $base --steps 400 --validate-every 10 --checkpoint-every 0 --out "$work/new/model"
    same "$work/disk/model" "$work/new/model"
    rm -r "$work/new"
  }
  umount "$work/disk"
  trap 'rm -rf "$work"' EXIT
fi
rmdir "$work/disk"

only story log whole
finish
