#!/usr/bin/env bash
# What learns: the same bytes by any number of threads and with a teacher that is streamed; what each choice does.
# usage: tests/program/learning.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
few="--text $work/story --length 33 --validation-rows 8 --report-rows 8 --steps 3 --batch 2 --bits 3"

# stages EXPECTED: the stages that $output tells of, after the fits.
stages() {
  local found
  found=$(sed -n 's/^\(codes by layer\|dwq with codes\|dwq\)  *[0-9.].*/\1/p' <<<"$output" | tr '\n' ',')
  [ "$found" = "$1" ] || complain "expected the stages $1 found $found in: $output"
}
# shellcheck disable=SC2086
for train in scales blocks codes; do
  for threads in 1 2 7; do
    OMP_NUM_THREADS=$threads expect 0 "KL cut by" calibrate --model models/tiny-moe $few --group-size 64 --train $train --out "$work/$threads"
    cmp "$work/1/model.safetensors" "$work/$threads/model.safetensors" || complain "--train $train by 1 and $threads threads differ"
  done
  case $train in
    scales) stages dwq, ;;
    blocks) stages "codes by layer,dwq," ;;
    codes) stages "dwq with codes," ;;
  esac
  expect 0 "KL cut by" calibrate --model models/tiny-moe $few --group-size 64 --train $train --stream-teacher \
    --out "$work/streamed" --html "$work/page.html"
  cmp "$work/1/model.safetensors" "$work/streamed/model.safetensors" || complain "--train $train with a streamed teacher differs"
  python3 tests/program/check_page.py "$work/page.html" "What each stage came to" "Training" "How the distance is spread" "Where the loss sits" "KL alone" \
    "Bits of each matrix" "Experts" "differ most" || complain "--html: $(cat "$work/page.html")"
  python3 - "$work/page.html" <<'END' || complain "the parts' shares of $work/page.html"
import re, sys
tables = re.findall(r"<table>\n<caption>(.*?)</caption>(.*?)</table>", open(sys.argv[1]).read(), re.S)
assert len(tables) == 3 and [name for name, _ in tables][:2] == ["By layer", "By kind"], [name for name, _ in tables]
for name, rows in tables:
    shares = [float(x) for x in re.findall(r">(-?[0-9.]+) %<", rows)]
    assert abs(sum(shares) - 100) < 0.2, (name, shares)
END
  rm -r "$work"/[127] "$work/streamed" "$work/page.html"
done

only story
finish
