#!/usr/bin/env bash
# Bits by module: patterns, plans that are written, read again and refused, and what the written model says.
# usage: tests/program/plans.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 40 >"$work/story"
few="--text $work/story --length 32 --validation-rows 2 --report-rows 2 --steps 2 --batch 2 --lr 0.002"
quantize="quantize $model --out $work/new --group-size 32"
mixed=(--bits-for '*_proj=3' --bits-for '*.layers.0.*=6:64' --bits-for '*.down_proj=float' --bits-for 'lm_head=8')

# same A B: two directories hold the same model.
same() {
  cmp "$1/model.safetensors" "$2/model.safetensors" && cmp "$1/config.json" "$2/config.json" || complain "$1 and $2 differ"
}

# The later pattern wins; the plan is printed and saved; the same plan makes the same model.
# shellcheck disable=SC2086
expect 0 "6 bits, group 64 model.layers.0." $quantize "${mixed[@]}" --save-plan "$work/plan"
[[ $output == *"8 bits, group 32 model.embed_tokens"* && $output == *"3 bits, group 32 model.layers.1."* ]] || complain "the plan: $output"
python3 - "$work/new/config.json" "$work/plan" "$work/new/mixtape.json" <<'END' || complain "config.json: $(cat "$work/new/config.json")"
import json, sys
config, plan, card = (json.load(open(name)) for name in sys.argv[1:])
def stored(path): return config["quantization"].get(path, {"bits": 4, "group_size": 32})
for path, shape in plan["shapes"].items():
    assert len(shape) == 2 and plan["quantization"][path] == stored(path), path
assert stored("model.embed_tokens") == {"bits": 8, "group_size": 32}
assert stored("model.layers.0.self_attn.q_proj") == {"bits": 6, "group_size": 64}
assert stored("model.layers.1.self_attn.q_proj") == {"bits": 3, "group_size": 32}
assert stored("model.layers.0.mlp.down_proj") is False
assert card["bits_for"][0] == "*_proj=3"
END
grep -q '^stories260k at mixed bits, ' "$work/new/README.md" || complain "README.md: $(cat "$work/new/README.md")"
expect 0 "3 bits, group 32" info "$work/new"
expect 0 "Once" generate "$work/new" --prompt Once -n 4
expect 0 "" quantize "$model" --out "$work/again" --plan "$work/plan" --save-plan "$work/plan2"
same "$work/new" "$work/again"
cmp "$work/plan" "$work/plan2" || complain "a plan that was read is written otherwise"
rm -r "$work/again" "$work/plan2"

# calibrate takes both too; a pattern overrides the plan.
# shellcheck disable=SC2086
{
  expect 0 "KL cut by" calibrate "$model" --out "$work/again" $few --plan "$work/plan" --bits-for 'lm_head=6'
  grep -q '"bits": 6' "$work/again/config.json" || complain "calibrate: $(cat "$work/again/config.json")"
  expect 0 '"shapes"' calibrate "$model" --out "$work/other" $few --group-size 32 --bits-for 'lm_head=6' --dry-run --save-plan -
  rm -r "$work/again" "$work/new"
}

# What is refused, in a line.
refused() {
  expect_line "$@"
  [ ! -e "$work/new" ] || complain "left behind: $work/new"
}
# shellcheck disable=SC2086
{
  refused 2 "--bits-for is 'lm_head', expected GLOB=BITS" $quantize --bits-for lm_head
  refused 2 "bits is 7" $quantize --bits-for lm_head=7
  refused 2 "bits for '*.down_prj': matches no matrix of $model, the nearest is 'model.layers.0.mlp.down_proj'" $quantize --bits-for '*.down_prj=6'
  refused 2 "quantize: --bits excludes --plan" quantize $model --out $work/new --plan "$work/plan" --bits 3
  refused 1 "plan of another model: " quantize models/tiny-moe --out "$work/new" --plan "$work/plan"
  refused 1 "expected a plan" quantize "$model" --out "$work/new" --plan "$model/config.json"
  refused 1 "$work/none: " quantize "$model" --out "$work/new" --plan "$work/none"
  refused 2 "--save-plan: $work/new/plan lies in the directory of --out" $quantize --save-plan "$work/new/plan"
}
sed 's/"model.layers.0.mlp.down_proj": false/"model.layers.0.mlp.down_proj": {"bits": 4, "group_size": 64}/' "$work/plan" >"$work/unfit"
refused 2 "'model.layers.0.mlp.down_proj': rows have 172 weights" quantize "$model" --out "$work/new" --plan "$work/unfit"
rm "$work/unfit"

only story plan
finish
