#!/usr/bin/env bash
# The program's exit statuses and messages on bad input, and that nothing is half-written.
# usage: tests/program.sh SOURCE_DIR MIXTAPE
set -uo pipefail
cd "$1"
mixtape=$2
model=tests/data/stories260k
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect STATUS TEXT ARGUMENTS...: the program ends with the status and says the text.
expect() {
  local status=$1 text=$2 output found
  shift 2
  output=$("$mixtape" "$@" 2>&1 </dev/null)
  found=$?
  if [ $found != "$status" ] || [[ $output != *"$text"* ]]; then
    echo "mixtape $*: status $found, expected $status and '$text' in: $output"
    failed=1
  fi
}

mkdir "$work/exists"
: >"$work/empty.txt"
printf 'Once upon a time\n%.0s' $(seq 40) >"$work/short.txt"
printf 'bad \xff byte\n' >"$work/latin.txt"

expect 1 "is a directory, expected a new name" quantize --model $model --out "$work/exists"
expect 2 "absent.gguf: no such file or directory" quantize --model "$work/absent.gguf" --out "$work/new"
expect 2 "" quantize --model $model --out "$work/new" --bits 7
expect 2 "" quantize --model $model --out "$work/new" --group-size 0
expect 2 "expected at least" calibrate --model $model --out "$work/new" --group-size 32 --text "$work/short.txt"
expect 2 "found an empty file, expected text" calibrate --model $model --out "$work/new" --group-size 32 --text "$work/empty.txt"
expect 2 "latin.txt" calibrate --model $model --out "$work/new" --group-size 32 --text "$work/latin.txt"
expect 2 "expected one of --text" calibrate --model $model --out "$work/new" --group-size 32
expect 2 "" nonsense
expect 0 "bits per weight" calibrate --model $model --out "$work/new" --group-size 32 --data self --dry-run
expect 0 "31 modules" quantize --model $model --out "$work/rounded" --group-size 32
expect 0 "perplexity" eval --model "$work/rounded" --teacher $model --text "$work/short.txt" --length 32
expect 0 "Once" generate --model "$work/rounded" --prompt "Once" --count 4
MIXTAPE_VERBOSE=1 expect 0 "rms_norm_forward_f32  f32[1," generate --model "$work/rounded" --prompt "Once" --count 4
expect 0 "llama" info $model
expect 0 "processor" doctor
expect 0 ", 0 faults" gradcheck --runs 1
expect 0 "2 ops" gradcheck --op softmax --op log_softmax --runs 2
expect 2 "unknown op 'nonsense'" gradcheck --op nonsense

# A disk that fills up: here a limit on the size of a file. Nothing of the directory may stay.
(
  trap '' XFSZ
  ulimit -f 64
  expect 1 "new: files may have" quantize --model $model --out "$work/new" --group-size 32
  exit $failed
) || failed=1

# Ctrl-C: the step in hand is finished, and the best state written only if asked for.
# interrupt STATUS TEXT ARGUMENTS...
set -m # else background jobs ignore Ctrl-C
interrupt() {
  local status=$1 text=$2 log=$work/interrupt.log process found
  shift 2
  "$mixtape" calibrate --model $model --out "$work/stopped" --group-size 32 --text "$work/story.txt" --length 64 \
    --checkpoint-every 0 --batch 2 --validation-rows 2 --report-rows 2 --steps 100000 --validate-every 1 "$@" >"$log" 2>&1 </dev/null &
  process=$!
  for _ in $(seq 300); do
    grep -q "step     1" "$log" && break
    sleep 0.1
  done
  kill -INT $process
  wait $process
  found=$?
  if [ $found != "$status" ] || ! grep -q "$text" "$log"; then
    echo "interrupted dwq $*: status $found, expected $status and '$text' in: $(cat "$log")"
    failed=1
  fi
  rm "$log"
}
for i in $(seq 400); do echo "Once upon a time there was a cat number $i who liked to play."; done >"$work/story.txt"

# Runs on a few short rows.
few="--length 32 --batch 2 --steps 3 --validation-rows 2 --report-rows 2"
sed 's/float32/float16/' $model/config.json >"$work/half.json"
sed 's/.*/{"text": "&"}/' "$work/story.txt" >"$work/story.jsonl"
train="train --model-config $work/half.json --tokenizer $model --out $work/half $few"
expect 2 "" $train --data self
expect 3 "wrote" $train --text "$work/story.txt"
rm -r "$work/half"
expect 3 "wrote" $train --chats "$work/story.jsonl"
rm -r "$work/half"
echo '{"messages": [{"role": "user", "content": "Hi"}]}' >"$work/chat.jsonl"
expect 2 "no chat template" $train --chats "$work/chat.jsonl"
plain="calibrate --model $model --out $work/few --group-size 32 --text $work/story.txt --length 32 --batch 2 --report-rows 2"
expect 2 "--validation-rows is 9223372036854775807" $plain --validation-rows 9223372036854775807
dwq="$plain --validation-rows 2 --steps 3"
expect 2 "--lr is 1e30" $dwq --lr 1e30
expect 2 "--temperature is nan" $dwq --temperature nan
expect 2 "top_k is 600, expected 0 to the vocabulary's 512" $dwq --top-k 600
expect 0 "KL cut by" $dwq --lr 0.001 --top-k 8 --target-dir "$work/targets"
rm -r "$work/few"
expect 0 "KL cut by" $dwq --lr 0.001 --top-k 8 --target-dir "$work/targets"
rm -r "$work/few"
expect 2 "targets were made from other data, model or settings" $dwq --top-k 9 --target-dir "$work/targets"
expect 0 "last state kept" $dwq --reference-compat --lr 1e-4 --dtype bf16
rm -r "$work/few" "$work/targets" "$work"/half.json "$work"/*.jsonl
interrupt 130 "nothing was written"
[ ! -e "$work/stopped" ] || { echo "Ctrl-C left $work/stopped"; failed=1; }
interrupt 0 "wrote the best state so far" --write-on-interrupt
[ -e "$work/stopped/model.safetensors" ] || { echo "--write-on-interrupt wrote nothing"; failed=1; }

left=$(ls -A "$work" | grep -Ev '^(exists|empty.txt|short.txt|latin.txt|rounded|story.txt|stopped)$' || true)
if [ -n "$left" ]; then
  echo "left behind: $left"
  failed=1
fi
exit $failed
