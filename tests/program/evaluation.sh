#!/usr/bin/env bash
# What eval says of a model, of two students, and of a teacher that a file holds.
# usage: tests/program/evaluation.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
for bits in 3 4; do expect 0 "wrote" quantize --model "$model" --out "$work/$bits" --bits $bits --group-size 32; done
eval="eval --text $work/story --length 33"

# value NAME: the first figure of the line in $output.
value() { grep -F -- "$1" <<<"$output" | head -n 1 | sed "s/^$1 *//; s/ .*//"; }
near() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { exit !(a - b <= by && b - a <= by) }' || complain "$4: $1, expected $2"; }

expect 0 "same top 1" $eval --model "$work/3" --teacher "$model"
for line in "model / teacher" "KL p99, p99.9" "right token RMS"; do grep -qF -- "$line" <<<"$output" || complain "eval: no line '$line' in: $output"; done

# Two students: the difference is that of the means, the other way round its negative; of one to itself nothing.
expect 0 "KL difference" $eval --model "$work/3" --versus "$work/4" --teacher "$model" --json "$work/json"
difference=$(value "KL difference")
means=$(grep '^KL mean' <<<"$output" | awk '{ print $3 }' | tr '\n' ' ')
near "$difference" "$(awk '{ print $2 - $1 }' <<<"$means")" 2e-6 "KL difference"
grep -q '"kl_difference"' "$work/json" || complain "--json has no kl_difference"
expect 0 "KL difference    +0.000000 +- 0.000000" $eval --model "$work/3" --versus "$work/3" --teacher "$model"
expect_line 2 "expected --teacher or --base too" $eval --model "$work/3" --versus "$work/4"

# A base says what the teacher says, of the second half of each window.
expect 0 "wrote            $work/base" $eval --model "$model" --save-base "$work/base"
near "$(value "KL mean")" 0 2e-5 "the teacher against its own file"
expect 0 "KL mean" eval --model "$work/3" --base "$work/base"
kept=$(grep -E '^(positions|KL|perplexity|teacher)' <<<"$output")
expect 0 "KL mean" $eval --model "$work/3" --base "$work/base"
[ "$(grep -E '^(positions|KL|perplexity|teacher)' <<<"$output")" = "$kept" ] || complain "--base with its --text: $output"
expect 0 "KL mean" $eval --model "$work/3" --teacher "$model" --save-base "$work/again"
[ "$(grep -E '^(positions|KL|perplexity|teacher)' <<<"$output")" = "$kept" ] || complain "--save-base with --teacher: $output, expected $kept"
cmp "$work/base" "$work/again" || complain "--save-base wrote other bytes"
expect 0 "KL difference" eval --model "$work/3" --versus "$work/4" --base "$work/base"

# llama-perplexity keeps its text's own tokens in the file, and runs BOS in the first place of each row.
python3 - "$work/base" "$work/theirs" <<'END'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
length, _, rows = struct.unpack_from("<3i", data, 8)
for row in range(1, rows):
    struct.pack_into("<i", data, 20 + 4 * length * row, 300 + row)
open(sys.argv[2], "wb").write(data)
END
cmp -s "$work/base" "$work/theirs" && complain "the base has one row, expected more"
expect 0 "KL mean" eval --model "$work/3" --base "$work/theirs"
[ "$(grep -E '^(positions|KL|perplexity|teacher)' <<<"$output")" = "$kept" ] || complain "--base of llama-perplexity: $output, expected $kept"

expect_line 2 "--base is the teacher" $eval --model "$work/3" --base "$work/base" --teacher "$model"
expect_line 2 "found no text" eval --model "$model"
expect_line 2 "--length is 2, expected 3 or more with --save-base" eval --text "$work/story" --length 2 --model "$model" --save-base "$work/none"
expect_line 2 "rows of 33 tokens, expected 17" eval --text "$work/story" --length 17 --max-tokens 1000 --model "$work/3" --base "$work/base"
head -c 3000 "$work/base" >"$work/cut"
expect_line 2 "cut: found 3000 bytes, expected" eval --model "$work/3" --base "$work/cut"
expect_line 2 "not a file of log-probabilities" eval --model "$work/3" --base "$work/story"
sed 's/cat/dog/' "$work/story" >"$work/other"
expect_line 2 "made from other text: row 0, token" eval --text "$work/other" --length 33 --model "$work/3" --base "$work/base"
expect_line 1 "is a directory, expected a new name" $eval --model "$model" --save-base "$work/3"
(
  trap '' XFSZ
  ulimit -f 64
  expect_line 1 "none: files may have" $eval --model "$model" --save-base "$work/none"
  exit $failed
) || failed=1

# A model that gives NaN has no figures, as student or as teacher: here the last value of its last tensor is one.
cp -r "$model" "$work/broken"
printf '\000\000\300\177' | dd of="$work/broken/model.safetensors" bs=1 conv=notrunc status=none \
  seek=$(($(wc -c <"$work/broken/model.safetensors") - 4))
expect_line 2 "broken: found NaN among its logits on this text, expected numbers" $eval --model "$work/broken"
expect_line 2 "the teacher: found NaN among its logits" $eval --model "$model" --teacher "$work/broken"

only story other 3 4 json base again cut theirs broken
finish
