#!/usr/bin/env bash
# What a run says before it begins, and how it ends where it came to little.
# usage: tests/program/outcomes.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 120 >"$work/story"
calibrate="calibrate --model $model --group-size 32 --out $work/new --text $work/story --length 33 --batch 2"
train="train --model-config $model/config.json --tokenizer $model --out $work/new --text $work/story --length 33 --batch 2"

# says PATTERN...: $output has a line that matches each.
says() {
  local pattern
  for pattern in "$@"; do grep -qE -- "$pattern" <<<"$output" || complain "expected '$pattern' in: $output"; done
}

# Training that comes to nothing is status 3, and said; what was written is the best state.
expect 3 "the model predicts no better than the tokens' frequencies alone" $train --steps 2
rm -r "$work/new"
expect 3 "" $train --steps 40 --lr 100 --json "$work/json"
says "a loss that is not finite: training ended there|^the validation loss rose from" "frequencies alone: more --steps|the initial weights were written"
grep -q '"best_step"' "$work/json" || complain "--json: $(cat "$work/json")"
rm -r "$work/new" "$work/json"
expect 0 "held-out perplexity" $train --steps 150 --lr 0.003
says "; ratio 0\.[0-9]+$"
rm -r "$work/new"

calibrate_self="calibrate --model $model --group-size 32 --out $work/new --length 33 --batch 2 --data self"
# A rehearsal reads and splits the text, counts rows to be sampled, and knows the recipe's memory.
expect 0 "peak memory  about" $calibrate --dry-run
grep -qE '^time         about [0-9]+(m [0-9]{2})?s$' <<<"$output" || complain "a dry run without a time: $output"
says "^training +[0-9]+ rows, [0-9]+ positions$" "^validation   16 rows, 512 positions$" "^report       32 rows, 1024 positions$" \
  "^steps +[0-9]+ x 2 rows"
expect 0 "peak memory  about" $calibrate --data self --self-rows 64 --dry-run
says "^source +self: 64 rows; [0-9]+ training, [0-9]+ validation, [0-9]+ report$"
# No more rows are sampled than the split uses.
expect 0 "sampled      56 rows of the 64 of --self-rows: the split uses no more" $calibrate_self --self-rows 64 --rows 8 --dry-run
says "^training +8 rows"
[[ $output != *sampling* ]] || complain "a rehearsal sampled: $output"
expect_line 2 "found 8 different rows of text, expected at least 49" calibrate --model "$model" --group-size 32 --out "$work/new" --data self --self-rows 8 --dry-run
expect_line 2 "story: no such file" calibrate --model "$model" --group-size 32 --out "$work/new" --text "$work/no-story" --dry-run
# peak ARGUMENTS...: MB predicted for the packaged model.
peak() {
  "$mixtape" calibrate --model models/tiny-moe --out "$work/new" --text "$work/story" --length 65 --rows 8 --validation-rows 8 \
    --report-rows 2 --batch 2 "$@" --dry-run 2>/dev/null | sed -n 's/^peak memory  about \([0-9]*\).* MB$/\1/p'
}
fast=$(peak --recipe fast) scales=$(peak --train scales) codes=$(peak --train codes)
[ "${fast:-0}" -gt 0 ] && [ "$fast" -le "$scales" ] && [ "$((scales + 20))" -lt "$codes" ] ||
  complain "peak memory of fast, scales, codes: $fast, $scales, $codes MB"

# Fewer rows than asked for, and too few to choose by.
expect 0 "warning: --rows is 5000, found " $calibrate --rows 5000 --dry-run
says "warning: --rows is 5000, found $(sed -n 's/^training *\([0-9]*\) rows.*/\1/p' <<<"$output") for training$"
expect 0 "" $calibrate --rows 20 --validation-rows 8 --steps 20 --dry-run
! grep -q "warning: " <<<"$output" || complain "warned: $output"
expect 0 "warning: --validation-rows is 2: what is best is partly chosen by chance, take 8 or more" $calibrate --validation-rows 2 --dry-run
expect 0 "warning: --batch is 5000, found 20 training rows" calibrate --model "$model" --group-size 32 --out "$work/new" \
  --text "$work/story" --length 33 --rows 20 --batch 5000 --dry-run
says "^steps +[0-9]+ x 20 rows"

# Each stage's change against the best before it, with its error; what is too near to tell is said.
expect 0 "KL cut by" $calibrate --validation-rows 8 --report-rows 8 --steps 4 --json "$work/json"
says "^stage \(validation rows\) +seconds +KL mean +change, paired$" "^least squares, weighted +[0-9.]+ +[0-9.]+ \+-[0-9.]+ +-?[0-9.]+ \+-[0-9.]+"
python3 - "$work/json" <<'END' || complain "stages: $(cat "$work/json")"
import json, sys
stages = json.load(open(sys.argv[1]))["stages"]
best = stages[0]["kl"]["mean"]
assert "change" not in stages[0]
for s in stages[1:]:
    kl = s["kl"]["mean"]
    assert abs(s["change"]["value"] - (kl - best)) < 1e-6 and s["change"]["error"] > 0, s
    assert s["kept"] == (kl < best)
    best = min(best, kl)
END
rm -r "$work/new" "$work/json"
expect 0 "" $calibrate --validation-rows 1 --report-rows 1 --steps 1 --lr 1e-9 --train scales
says "^undecided +[a-z]+.*: its change is within 2 standard errors"
rm -r "$work/new"

# Two results in one place; a plan on standard output is alone there.
expect_line 2 "--save-plan and --json are both -, expected two places" $calibrate --save-plan - --json -
expect_line 2 "--save-plan and --json are both $work/p, expected two places" $calibrate --save-plan "$work/p" --json "$work/p"
expect_line 2 "--json and --save-imatrix are both $work/p, expected two places" $calibrate --json "$work/p" --save-imatrix "$work/p"
expect_line 2 "--save-base and --json are both $work/p, expected two places" eval --model "$model" --text "$work/story" --save-base "$work/p" --json "$work/p"
"$mixtape" $calibrate --save-plan - --dry-run 2>"$work/told" | python3 -c 'import json, sys; json.load(sys.stdin)' ||
  complain "--save-plan - prints more than the plan"
grep -q '^peak memory' "$work/told" || complain "--save-plan -: $(cat "$work/told")"
rm "$work/told"

# A directory that holds no targets is left as it is.
mkdir "$work/full" "$work/empty"
echo precious >"$work/full/file"
targets="$calibrate --top-k 4 --validation-rows 8"
expect_line 2 "$work/full: found a directory of other files, expected a teacher's targets" $targets --target-dir "$work/full"
expect_line 2 "$work/empty: found an empty directory, expected a teacher's targets" $targets --target-dir "$work/empty"
expect_line 2 "$work/story: found no directory, expected a teacher's targets" $targets --target-dir "$work/story"
[ "$(ls "$work/full")" = file ] && [ "$(cat "$work/full/file")" = precious ] || complain "$work/full: $(ls "$work/full")"
rm -r "$work/full" "$work/empty"

only story
finish
