#!/usr/bin/env bash
# compare: one table of several students, in which each figure is what eval says of it.
# usage: tests/program/compare.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
for bits in 3 4; do expect 0 "wrote" quantize --model "$model" --out "$work/$bits" --bits $bits --group-size 32; done
expect 0 "wrote" quantize --model "$model" --out "$work/q.gguf" --type q8_0
text="--text $work/story --length 33"
compare="compare $work/3 $work/4 $work/q.gguf"

# shellcheck disable=SC2086
{
  expect 0 "closest  3: KL lower by" $compare --teacher "$model" $text --json "$work/json" --html "$work/page.html"
  for line in "teacher" "KL minus that of 1" "$work/q.gguf (closest)"; do
    grep -qF -- "$line" <<<"$output" || complain "compare: no '$line' in: $output"
  done
  long=$(grep -v '^device ' <<<"$output" | awk 'length($0) > 80')
  [ -z "$long" ] || complain "compare: wider than 80 columns: $long"
  for bits in 3 4; do
    expect 0 "KL mean" eval $text --model "$work/$bits" --teacher "$model" --json "$work/$bits.json"
  done
  expect 0 "KL difference" eval $text --model "$work/3" --versus "$work/4" --teacher "$model" --json "$work/versus.json"
  python3 - "$work" <<'END' || complain "compare's figures are not eval's"
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}"))
found = read("json")
for model, bits in zip(found["models"], (3, 4)):
    assert model["result"] == read(f"{bits}.json")["result"], model
assert found["models"][1]["kl_minus_first"] == read("versus.json")["kl_difference"]
assert found["models"][0]["kl_minus_first"] == {"value": 0.0, "error": 0.0}
assert found["models"][0]["bits_per_weight"] < found["models"][1]["bits_per_weight"]
assert found["closest"].endswith("q.gguf")
assert isinstance(found["models"][0]["bytes"], int)
assert [m["on_frontier"] for m in found["models"]] == [True, True, True], found
END
  python3 tests/program/check_page.py "$work/page.html" "q.gguf" "KL to the teacher" "Teacher: $model" "Text: $work/story, " \
    "windows of 33 tokens" "Closest, numbered as below: 3: KL lower by" "Sizes are those of the weights" "q.gguf (closest)" || complain "compare --html"
  rm "$work"/*.json "$work/json" "$work/page.html"

  # A file for the teacher says the same twice; a model beside itself is no closer.
  expect 0 "wrote" eval $text --model "$model" --save-base "$work/base"
  expect 0 "closest  2: KL lower by" compare "$work/3" "$work/4" --base "$work/base"
  expect 0 "closest  1 and 2, which are equal on this text" compare -m "$work/3" "$work/3" --base "$work/base" --batch 2 --dtype f32
  expect 0 "closest" $compare --teacher "$model" $text --max-tokens 400 --device cpu --json -

  # What another one is smaller and closer than is off the frontier.
  expect 0 "wrote" quantize --model "$model" --out "$work/q5.gguf" --type q5_0
  expect 0 "closest  2: KL" compare "$work/4" "$work/q5.gguf" --base "$work/base" --json "$work/1.json" --html "$work/page.html"
  python3 -c 'import json, sys
assert [m["on_frontier"] for m in json.load(open(sys.argv[1]))["models"]] == [False, True]' "$work/1.json" || complain "the frontier"
  python3 tests/program/check_page.py "$work/page.html" "beaten in both" "2*" "Teacher: what $work/base holds of it" \
    "Text: the text of $work/base" "Closest, numbered as below: 2: KL" || complain "compare --html of two"
  rm "$work/q5.gguf" "$work/1.json" "$work/page.html"

  # Whichever comes first, and whatever it is stored in, the figures are the same; a base's length is that of its text.
  expect 0 "wrote" quantize --model "$work/q.gguf" --out "$work/narrow" --bits 3 --group-size 32
  expect 0 "activations  f32" compare "$work/narrow" "$work/3" --teacher "$model" $text --json "$work/1.json"
  expect 0 "activations  f32" compare "$work/3" "$work/narrow" --teacher "$model" $text --json "$work/2.json"
  python3 -c 'import json, sys
a, b = (json.load(open(name))["models"] for name in sys.argv[1:])
assert [m["result"] for m in a] == [m["result"] for m in reversed(b)]' "$work/1.json" "$work/2.json" || complain "the order of models counts"
  expect 0 "activations  bf16" compare "$work/3" "$work/narrow" --teacher "$model" $text --dtype bf16
  expect 0 "closest" compare "$work/3" "$work/4" --base "$work/base" --text "$work/story"
  "$mixtape" compare "$work/3" "$work/4" --base "$work/base" >/dev/full 2>"$work/kept" && complain "a full standard output: status 0"
  grep -q evaluating "$work/kept" && complain "a full standard output: found after the work: $(cat "$work/kept")"
  rm -r "$work/narrow" "$work/kept" "$work"/[12].json
  expect_line 2 "$work/story is given twice, expected once" compare "$work/3" "$work/4" --teacher "$model" $text --text "$work/story"

  expect_line 2 "compare: found 1 model, expected two or more" compare "$work/3" --teacher "$model" $text
  expect_line 2 "compare: found no teacher, expected --teacher or --base" $compare $text
  expect_line 2 "compare: found no text" $compare --teacher "$model"
  expect_line 2 "--base is the teacher" $compare --teacher "$model" --base "$work/base"
  expect_line 2 "--length has no effect" $compare --base "$work/base" --length 33
  parity_model qwen3_yarn gpt-2
  expect_line 2 "parity: found a vocabulary of" compare "$work/3" "$work/parity" --teacher "$model" $text
  rm -r "$work/parity"
  expect_line 2 "$work/none: " compare "$work/3" "$work/none" --teacher "$model" $text
  expect_line 2 "--json" $compare --teacher "$model" $text --json "$work/story"
}

only story 3 4 q.gguf base
finish
