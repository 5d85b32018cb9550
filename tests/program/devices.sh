#!/usr/bin/env bash
# Devices that share the rows of each step: the same bytes on every run, nearly the figures of one, and what cannot be
# shared. The processor twice stands for two cards.
# usage: tests/program/devices.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
few="--text $work/story --length 33 --validation-rows 8 --report-rows 8 --steps 3 --batch 3 --bits 3 --model models/tiny-moe --group-size 64"

# shellcheck disable=SC2086
for train in scales blocks codes; do
  for run in first second; do
    expect 0 "KL cut by" calibrate $few --train $train --device cpu,cpu --out "$work/$run"
  done
  [ "$(grep -c '^device       cpu, ' <<<"$output")" = 2 ] || complain "expected a line for each device: $output"
  grep -q '^gradients    added up through host memory$' <<<"$output" || complain "which way is not said: $output"
  cmp "$work/first/model.safetensors" "$work/second/model.safetensors" || complain "--train $train on two devices: two runs differ"
  grep -q 'cpu,cpu' "$work/first/README.md" || complain "the card doesn't name the devices: $(cat "$work/first/README.md")"
  rm -r "$work/first" "$work/second"
done

# Stopped and gone on with, on the same devices alone.
# shellcheck disable=SC2086
{
  long="calibrate $few --steps 40 --train scales --device cpu,cpu --checkpoint-every 0.0005"
  expect 0 "KL cut by" $long --out "$work/whole"
  "$mixtape" $long --validate-every 4 --out "$work/stopped" >"$work/log" 2>&1 </dev/null &
  process=$!
  wait_for "step     8  validation" "$work/log"
  kill -KILL $process
  wait $process 2>/dev/null
  expect_line 2 "its device is cpu,cpu, here cpu" ${long/cpu,cpu/cpu} --validate-every 4 --out "$work/stopped" --resume
  expect 0 "resumes " $long --validate-every 4 --out "$work/stopped" --resume
  cmp "$work/whole/model.safetensors" "$work/stopped/model.safetensors" || complain "a run on two devices that was killed differs"
  rm -r "$work/whole" "$work/stopped"
}

# Pre-training is shared too.
small="train --config tests/data/stories260k/config.json --tokenizer $model --text $work/story --length 33 --validation-rows 4 --report-rows 4 --steps 4 --batch 4"
# shellcheck disable=SC2086
{
  for run in first second; do
    "$mixtape" $small --device cpu,cpu,cpu --out "$work/$run" >"$work/log" 2>&1 </dev/null
    [ -e "$work/$run/model.safetensors" ] || complain "train on three devices: $(cat "$work/log")"
  done
  cmp "$work/first/model.safetensors" "$work/second/model.safetensors" || complain "training on three devices: two runs differ"
  rm -r "$work/first" "$work/second"
  expect_line 2 "--device names 3 devices, which share a batch of 2 rows: expected a row or more for each, see --batch" \
    $small --batch 2 --device cpu,cpu,cpu --out "$work/new"
}

# shellcheck disable=SC2086
{
  expect 0 "device       " calibrate $few --device all --dry-run --out "$work/new"
  expect 0 "peak memory" calibrate $few --device cpu,cpu --dry-run --out "$work/new"
  expect_line 2 "--device names 4 devices, which share a batch of 3 rows" calibrate $few --device cpu,cpu,cpu,cpu --out "$work/new"
  expect 0 "peak memory" calibrate $few --device cpu,cpu,cpu,cpu --train nothing --dry-run --out "$work/new"
  expect_line 2 "device: 'gpu' is unknown" calibrate $few --device cpu,gpu --out "$work/new"
  expect_line 2 "device: '' is unknown" calibrate $few --device cpu, --out "$work/new"
  expect_line 2 "device: 'cpu,cpu' is unknown" eval "$model" --text "$work/story" --device cpu,cpu
}

only story log
finish
