#!/usr/bin/env bash
# Where results go: what can't be written is refused before the work begins, what isn't a regular file is written
# into, nothing is lost or left.
# usage: tests/program/outputs.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
set -m # else background jobs ignore Ctrl-C
story 60 >"$work/story"
text="--text $work/story"
quantize="quantize --model $model --group-size 32"
dwq="calibrate --model $model --group-size 32 $text --steps 1 --batch 1 --length 64 --validation-rows 2 --report-rows 2"
train="train --model-config $model/config.json --tokenizer $model $text --steps 1 --batch 1 --length 64 --validation-rows 2 --report-rows 2"
eval="eval --model $model $text --length 32 --max-tokens 64"
: >"$work/plain"
mkdir "$work/exists"
ln -s nowhere "$work/dangling"
mkfifo "$work/pipe"

# refused TEXT ARGUMENTS...: status 1 or 2 before a model is read; the device's line isn't printed yet.
refused() {
  local text=$1
  shift
  output=$("$mixtape" "$@" 2>&1 </dev/null) && complain "mixtape $*: not refused"
  [[ $output == *"$text"* ]] || complain "mixtape $*: expected '$text' in: $output"
  [[ $output != *"device  "* ]] || complain "mixtape $*: refused only after: $output"
}

# shellcheck disable=SC2086
for command in "$quantize" "$dwq" "$train"; do
  refused "--out: $work/exists is a directory, expected a new name" $command --out "$work/exists"
  refused "is a directory, expected a new name" $command --out "$work/exists/"
  refused "is a file that exists, expected a new name" $command --out "$work/plain"
  refused "is a link, expected a new name" $command --out "$work/dangling"
  refused "--out: /dev/null is a device, expected a new name" $command --out /dev/null
  refused "is a FIFO, expected a new name" $command --out "$work/pipe"
  refused "Not a directory" $command --out "$work/plain/below/new"
  refused "--out is $work/x.SafeTensors, which would be a directory, expected a name without .safetensors" $command --out "$work/x.SafeTensors"
done
# shellcheck disable=SC2086
for command in "$dwq --out $work/new" "$train --out $work/new" "$eval" "gradcheck --op softmax --runs 1"; do
  refused "--json: $work/plain is a file that exists, expected a new name" $command --json "$work/plain"
  refused "--json: $work/dangling is a link, expected a new name" $command --json "$work/dangling"
  refused "is a directory, expected a new name" $command --json "$work/exists"
  refused "Not a directory" $command --json "$work/plain/report.json"
done
# shellcheck disable=SC2086
{
  for end in safetensors bin gguf; do
    refused "--out is $work/x.$end, which would be a directory, expected a name without .$end" convert "$model" --out "$work/x.$end" --format mlx
  done
  for end in gguf safetensors; do
    refused "--out is $work/.$end, expected a name before .$end" $quantize --out "$work/.$end"
  done
  for out in convert\ "$model" "$quantize" "$dwq"; do
    refused "--out is $work/x.gguf/, which would be a directory, expected a file's name" $out --out "$work/x.gguf/"
  done
  refused "--json is $work/x/, which would be a directory, expected a file's name" $eval --json "$work/x/"
  refused "--save-plan is $work/x/, which would be a directory" $quantize --out "$work/new" --save-plan "$work/x/"
  expect_line 2 "--save-base is $work/x/, which would be a directory" $eval --save-base "$work/x/"
  refused "--save-imatrix is $work/x/, which would be a directory" $dwq --out "$work/new" --save-imatrix "$work/x/"
  refused "--html is $work/x/, which would be a directory" $dwq --out "$work/new" --html "$work/x/"
  refused "--out is $work/x.gguf, which would be a directory" $train --out "$work/x.gguf"
  refused "--out is $work/x.bin, which would be a GGUF file, expected a name that ends in .gguf" $quantize --out "$work/x.bin" --format gguf
  cp -r "$model" "$work/model"
  refused "lies in the directory of the model" quantize --model "$work/model" --out "$work/model/new"
  refused "lies in the directory of the model" quantize --model "$work/model" --out "$work/model"
  refused "lies in the directory of --out" $dwq --out "$work/new" --json "$work/new/report.json"
  refused "lies in the directory of --out" $dwq --out "$work/new" --target-dir "$work/new/targets" --top-k 4
  refused "Not a directory" $dwq --out "$work/new" --target-dir "$work/plain/targets" --top-k 4
  refused "--target-dir" $dwq --out "$work/new" --target-dir "$work/targets"
  # What the run reads is never written over, under whatever name.
  ln -s story "$work/alias"
  mine="--model $work/model --text $work/story --length 32 --max-tokens 64"
  for file in "$work/model/model.safetensors" "$work/model/config.json"; do
    refused "lies in the directory of the model" eval $mine --json "$file"
    refused "lies in the directory of the model" info --model "$work/model" --json "$file"
    refused "lies in the directory of the model" calibrate --model "$work/model" $text --out "$work/new" --json "$file"
  done
  for file in "$work/story" "$work/alias"; do
    refused "is a file that this run reads" eval $mine --json "$file"
    refused "is a file that this run reads" $dwq --out "$work/new" --json "$file"
    refused "is a file that this run reads" $train --out "$work/new" --json "$file"
  done
  refused_late() {
    output=$("$mixtape" "$@" 2>&1 </dev/null) && complain "mixtape $*: not refused"
  }
  refused_late eval $mine --save-base "$work/story"
  refused_late eval $mine --save-base "$work/model/model.safetensors"
  cmp -s "$model/model.safetensors" "$work/model/model.safetensors" && [ -s "$work/story" ] || complain "an input was written over"
  rm -r "$work/model" "$work/alias"
}

# Without rights: a folder that nobody may write to.
mkdir "$work/locked"
chmod 555 "$work/locked"
chmod 755 "$work"
# shellcheck disable=SC2086
{
  [ "$(id -u)" != 0 ] || chown -R 65534 "$work"
  for command in "$quantize --out $work/locked/new" "$dwq --out $work/locked/new" "$eval --json $work/locked/report.json"; do
    as_user "$mixtape" version >/dev/null 2>&1 || break # that user may not even start the program
    output=$(as_user "$mixtape" $command 2>&1) && complain "mixtape $command: wrote to a locked folder"
    [[ $output == *"cannot create: Permission denied"* && $output != *"device  "* ]] || complain "mixtape $command: $output"
  done
}
chmod 755 "$work/locked"
rmdir "$work/locked"

# One rule for every file: what stands there is refused, a device that would be replaced too.
# shellcheck disable=SC2086
for place in "$work/plain" "$work/dangling" "$work/pipe" /dev/null; do
  refused "--save-imatrix: $place is a" $dwq --out "$work/new" --save-imatrix "$place"
  refused "--out: $place is a" $quantize --format gguf --out "$place"
  refused "--out: $place is a" convert "$model" --out "$place"
  expect_line 1 "--save-base: $place is a" $eval --save-base "$place"
done
# shellcheck disable=SC2086
expect_line 2 "--save-base is -, expected a name: only reports go to standard output" $eval --save-base -
# shellcheck disable=SC2086
refused "--save-plan: $work/plain is a file that exists" $quantize --out "$work/new" --save-plan "$work/plain"
[ -c /dev/null ] && [ ! -s "$work/plain" ] || complain "an output was replaced"

# Missing parents are made; the result says where it is.
# shellcheck disable=SC2086
{
  expect 0 "wrote        $work/a/b/new, " $quantize --out "$work/a/b/new"
  [ -e "$work/a/b/new/model.safetensors" ] || complain "a/b/new lacks weights"
  expect 0 "" $eval --json "$work/a/c/report.json"
  grep -q '"perplexity"' "$work/a/c/report.json" || complain "a/c/report.json lacks figures"
  rm -r "$work/a"
}

# What isn't a regular file takes the report and stays what it is.
kind() { stat -c %F "$1"; }
# shellcheck disable=SC2086
{
  expect 0 "" $eval --json /dev/null
  [ "$(kind /dev/null)" = "character special file" ] || complain "/dev/null is a $(kind /dev/null)"
  expect 1 "/dev/full: cannot write: No space left on device; the result is in " $eval --json /dev/full
  [ "$(kind /dev/full)" = "character special file" ] || complain "/dev/full is a $(kind /dev/full)"
  kept=${output##*the result is in }
  grep -q '"perplexity"' "$kept" || complain "the report isn't in $kept"
  rm -f "$kept"

  mkfifo "$work/fifo"
  cat "$work/fifo" >"$work/through" &
  expect 0 "" $eval --json "$work/fifo"
  wait
  grep -q '"perplexity"' "$work/through" || complain "nothing came through the FIFO"
  [ "$(kind "$work/fifo")" = fifo ] || complain "the FIFO is a $(kind "$work/fifo")"

  if mknod "$work/device" c 1 3 2>/dev/null; then
    if : 2>/dev/null >"$work/device"; then # not on a file system without devices
      expect 0 "" $eval --json "$work/device"
    fi
    [ "$(kind "$work/device")" = "character special file" ] || complain "the device is a $(kind "$work/device")"
  fi

  "$mixtape" $eval --json - 2>"$work/told" >"$work/log" || complain "--json -"
  grep -q '^positions' "$work/told" && grep -q '"perplexity"' "$work/log" || complain "--json -: $(cat "$work/log" "$work/told")"
  python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/log" || complain "--json - prints more than the report"
  rm "$work/told"
  "$mixtape" $eval --json /dev/stdout 2>/dev/null >"$work/log"
  grep -q '^positions' "$work/log" && grep -q '"perplexity"' "$work/log" || complain "--json /dev/stdout: $(cat "$work/log")"
  rm -f "$work/fifo" "$work/through" "$work/device" "$work/log"
  # Results that were told are not lost with a report, nor one report with another.
  told() {
    local text=$1
    shift
    expect 1 "/dev/full: cannot write: No space left on device; the result is in " "$@"
    [[ $output == *"$text"*"mixtape: /dev/full: cannot write"* ]] || complain "mixtape $*: no '$text' before the error: $output"
    rm -f "${output##*the result is in }"
  }
  told "perplexity " $eval --json /dev/full
  output=$("$mixtape" info "$model" --json - 2>&1 >/dev/full </dev/null)
  [[ $output == *"mixtape: standard output: cannot write: No space left on device; the result is in "* ]] ||
    complain "--json - to a full standard output: $output"
  rm -f "${output##*the result is in }"
  told "architecture" info "$model" --json /dev/full
  told "verdict  " doctor --json /dev/full
  told "wrote  " convert "$model" --out "$work/new" --json /dev/full
  rm -r "$work/new"
  told "wrote  " $quantize --out "$work/new" --json /dev/full
  rm -r "$work/new"
  told "held-out perplexity" $train --out "$work/new" --json /dev/full
  rm -r "$work/new"
  told "KL cut by" $dwq --out "$work/new" --json /dev/full --html "$work/page.html"
  [ -s "$work/page.html" ] || complain "a report on a full disk took the other with it"
  rm -r "$work/new" "$work/page.html"
  told "KL cut by" $dwq --out "$work/new" --json "$work/json" --html /dev/full
  "$mixtape" quantize "$model" --out "$work/q" --bits 4 --group-size 32 >/dev/null 2>&1
  told "closest  " compare "$work/new" "$work/q" --teacher "$model" $text --length 32 --html /dev/full
  rm -r "$work/new" "$work/q" "$work/json"
}

# Standard output that can't be written is an error.
"$mixtape" info "$model" >/dev/full 2>"$work/log" && complain "info >/dev/full: status 0"
grep -q "standard output: .*No space left on device" "$work/log" || complain "info >/dev/full: $(cat "$work/log")"
# Text that comes piece by piece is not lost without a word either; a reader that left is no news.
"$mixtape" generate -m "$model" -p Once -n 20 >/dev/full 2>"$work/log" && complain "generate >/dev/full: status 0"
grep -q "standard output: .*No space left on device" "$work/log" || complain "generate >/dev/full: $(cat "$work/log")"
"$mixtape" generate -m "$model" -p Once -n 400 2>"$work/log" | head -c 3 >/dev/null
[ "${PIPESTATUS[0]}" = 1 ] || complain "generate | head: status ${PIPESTATUS[0]}"
! grep -q "^mixtape: " "$work/log" || complain "generate | head: $(cat "$work/log")"
rm "$work/log"

# A reader that leaves before the table: the model, the report and the page are there, and no checkpoint.
# shellcheck disable=SC2086
for command in "${dwq/steps 1/steps 20} --html $work/page.html" "${train/steps 1/steps 20}"; do
  "$mixtape" $command --out "$work/new" --json "$work/report.json" 2>"$work/log" | sed /^steps/q >/dev/null
  [ "${PIPESTATUS[0]}" = 1 ] || complain "$command | sed: status ${PIPESTATUS[0]}: $(cat "$work/log")"
  python3 -m json.tool "$work/report.json" >/dev/null || complain "$command | sed: no report: $(cat "$work/log")"
  [ -e "$work/new/model.safetensors" ] || complain "$command | sed: no model: $(cat "$work/log")"
  [[ $command == train* ]] || grep -q '</html>' "$work/page.html" || complain "$command | sed: no page"
  rm -rf "$work/new" "$work/report.json" "$work/page.html" "$work/log"
done

# Two runs into one place: the second is refused at its start. What a killed run left is named and removed.
# shellcheck disable=SC2086
{
  story 400 >"$work/long"
  long="calibrate --model $model --group-size 32 --checkpoint-every 0 --text $work/long --steps 100000 --batch 2 --length 64 --validation-rows 2 --report-rows 2"
  "$mixtape" $long --out "$work/one" --json "$work/held" >"$work/log" 2>&1 &
  process=$!
  wait_for "validation loss" "$work/log"
  refused "another run is writing it: $work/one.tmp-" $quantize --out "$work/one"
  refused "held: another run is writing it" $quantize --out "$work/two" --json "$work/held"
  kill -KILL $process
  wait $process 2>/dev/null
  ls -d "$work"/one.tmp-* >/dev/null || complain "the killed run left nothing to sweep"
  expect 0 "warning: removed $work/one.tmp-" $quantize --out "$work/one"
  rm -r "$work/one" "$work/log" "$work"/held.tmp-*
}

# A limit on the size of files is known before the work, as is a full disk.
# shellcheck disable=SC2086
(
  ulimit -f 64
  expect 1 "(ulimit -f), expected" $quantize --out "$work/new"
  expect 1 "(ulimit -f), expected" $dwq --out "$work/new"
  exit $failed
) || failed=1

# The place is gone when the work is done: the result is kept beside it. $1: the run, whose log has $2 when it works.
taken() {
  "$mixtape" $1 --out "$work/late" >"$work/log" 2>&1 &
  local process=$!
  wait_for "$2" "$work/log"
  mkdir "$work/late"
  ${3:-:} $process
  wait $process && complain "$1: status 0"
  local kept
  kept=$(sed -n 's/^mixtape: .*output directory exists; the result is in //p' "$work/log")
  [ -e "$kept/model.safetensors" ] || complain "$1: not kept: $(cat "$work/log")"
  rm -rf "$work/late" "$kept" "$work/log"
}
# shellcheck disable=SC2086
taken "$long --write-on-interrupt --validate-every 1" "validation loss" "kill -INT"

# A disk that is full: refused at the start if it is full then; if it fills later, the result is kept elsewhere.
mkdir "$work/disk"
if mount -t tmpfs -o size=60m tmpfs "$work/disk" 2>/dev/null; then
  trap 'umount "$work/disk"; rm -rf "$work"' EXIT
  # shellcheck disable=SC2086
  {
    head -c 62800000 /dev/zero >"$work/disk/filler"
    expect 1 "are free on its disk, expected" $quantize --out "$work/disk/new"
    beside=$(sed -n 's/.*expected .*, \([0-9.]*\) KB of them for tokenizer and config$/\1/p' <<<"$output")
    # Room for the model, if not for a large one's tokenizer.
    head -c 62000000 /dev/zero >"$work/disk/filler"
    expect 0 "wrote" $quantize --out "$work/disk/new"
    # What was said of tokenizer and config is no less than what is written, and four times that at most.
    written=$(cat "$work"/disk/new/*.json "$work/disk/new/README.md" | wc -c)
    awk -v said="$beside" -v written="$written" 'BEGIN { said *= 1000; exit !(said >= written && said <= 4 * written) }' ||
      complain "a full disk: $beside KB for tokenizer and config, $written bytes were written"
    rm -r "$work/disk/new" "$work/disk/filler"
    "$mixtape" $long --write-on-interrupt --out "$work/disk/new" >"$work/log" 2>&1 &
    process=$!
    wait_for "validation loss" "$work/log"
    cat /dev/zero >"$work/disk/filler" 2>/dev/null
    kill -TERM $process
    wait $process && complain "a full disk: status 0"
    kept=$(sed -n 's/^mixtape: .*No space left on device; the result is in //p' "$work/log")
    [ -e "$kept/model.safetensors" ] || complain "a full disk: not kept: $(cat "$work/log")"
    [ "$(ls "$work/disk")" = filler ] || complain "a full disk: left $(ls "$work/disk")"
    rm -rf "$kept" "$work/log"
  }
  umount "$work/disk"
  trap 'rm -rf "$work"' EXIT
fi
rmdir "$work/disk"

only story long plain exists dangling pipe
finish
