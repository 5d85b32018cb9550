#!/usr/bin/env bash
# Devices that share the rows of each step: the same bytes on every run, and what cannot be shared. The processor twice
# stands for two cards.
# usage: tests/program/devices.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
rows="--text $work/story --length 33 --validation-rows 8 --report-rows 8"
tiny="calibrate --model models/tiny-moe --group-size 64 --bits 3 $rows"
few="$tiny --steps 3 --batch 3"

# shellcheck disable=SC2086
for train in scales blocks codes; do
  for run in first second; do
    expect 0 "KL cut by" $few --train $train --device cpu,cpu --out "$work/$run"
  done
  [ "$(grep -c '^device       cpu, ' <<<"$output")" = 2 ] || complain "expected a line for each device: $output"
  grep -q '^gradients    added up through host memory$' <<<"$output" || complain "which way is not said: $output"
  cmp "$work/first/model.safetensors" "$work/second/model.safetensors" || complain "--train $train on two devices: two runs differ"
  grep -q '"device": "cpu,cpu"' "$work/first/mixtape.json" || complain "the record has other devices: $(cat "$work/first/mixtape.json")"
  rm -r "$work/first" "$work/second"
done

# Killed and gone on with, on as many devices alone.
# shellcheck disable=SC2086
{
  long="$tiny --steps 60 --batch 3 --validate-every 4 --train scales --checkpoint-every 0.0005"
  expect 0 "KL cut by" $long --device cpu,cpu --out "$work/whole"
  "$mixtape" $long --device cpu,cpu --out "$work/killed" >"$work/log" 2>&1 </dev/null &
  process=$!
  wait_for "step     8  validation" "$work/log"
  kill -KILL $process
  wait $process 2>/dev/null
  expect 2 "its device is cpu,cpu, here cpu" $long --device cpu --out "$work/killed" --resume
  expect 0 "resumes " $long --device cpu,cpu --out "$work/killed" --resume
  cmp "$work/whole/model.safetensors" "$work/killed/model.safetensors" || complain "a run on two devices that was killed differs"
  rm -r "$work/whole" "$work/killed"
}

# Pre-training is shared too.
# shellcheck disable=SC2086
{
  small="train --model-config tests/data/stories260k/config.json --tokenizer $model $rows --steps 4"
  for run in first second; do
    "$mixtape" $small --batch 4 --device cpu,cpu,cpu --out "$work/$run" >"$work/log" 2>&1 </dev/null
    [ -e "$work/$run/model.safetensors" ] || complain "train on three devices: $(cat "$work/log")"
  done
  cmp "$work/first/model.safetensors" "$work/second/model.safetensors" || complain "training on three devices: two runs differ"
  rm -r "$work/first" "$work/second"
  expect_line 2 "--device names 3 devices, which share a batch of 2 rows: expected a row or more for each, see --batch" \
    $small --batch 2 --device cpu,cpu,cpu --out "$work/new"
}

# shellcheck disable=SC2086
{
  expect 0 "device       " $few --device all --dry-run --out "$work/new"
  expect 0 "peak memory" $few --device cpu,cpu --dry-run --out "$work/new"
  expect_line 2 "--device names 4 devices, which share a batch of 3 rows" $few --device cpu,cpu,cpu,cpu --out "$work/new"
  expect 0 "peak memory" $tiny --batch 3 --device cpu,cpu,cpu,cpu --train nothing --dry-run --out "$work/new"
  expect_line 2 "device: 'gpu' is unknown" $few --device cpu,gpu --out "$work/new"
  expect_line 2 "device: '' is unknown" $few --device cpu, --out "$work/new"
  expect_line 2 "device: 'cpu,cpu' is unknown" eval "$model" --text "$work/story" --device cpu,cpu
}

only story log
finish
