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
assert card["settings"]["bits_for"][0] == "*_proj=3"
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
  refused 2 "quantize: found --plan and --bits, expected one of them" quantize $model --out $work/new --plan "$work/plan" --bits 3
  refused 2 "plan of another model: " quantize models/tiny-moe --out "$work/new" --plan "$work/plan"
  refused 2 "expected a plan" quantize "$model" --out "$work/new" --plan "$model/config.json"
  refused 2 "$work/none: " quantize "$model" --out "$work/new" --plan "$work/none"
  refused 2 "--save-plan: $work/new/plan lies in the directory of --out" $quantize --save-plan "$work/new/plan"
}
sed 's/"model.layers.0.mlp.down_proj": false/"model.layers.0.mlp.down_proj": {"bits": 4, "group_size": 64}/' "$work/plan" >"$work/unfit"
refused 2 "'model.layers.0.mlp.down_proj': rows have 172 weights" quantize "$model" --out "$work/new" --plan "$work/unfit"
rm "$work/unfit"

# --bpw and --size: the plan keeps to the budget, is saved, and makes the same model again.
cat >"$work/budget.py" <<'END'
import json, sys
directory, budget = sys.argv[1], float(sys.argv[2])
with open(directory + "/model.safetensors", "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
tensors = {name: t for name, t in header.items() if name != "__metadata__"}
size = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors.values())
card = json.load(open(directory + "/mixtape.json"))
assert "bits" not in card["settings"], card
weights = 8 * size / card["out"]["bits_per_weight"]
assert abs(weights - round(weights)) < 1e-6 * weights, (size, weights)
if budget < 32: budget *= weights / 8
assert 0.98 * budget < size <= budget, (size, budget)
quantization = json.load(open(directory + "/config.json"))["quantization"]
assert len({json.dumps(v) for v in quantization.values() if isinstance(v, dict)}) > 1, quantization
END
# shellcheck disable=SC2086
{
  budget="calibrate $model --text $work/story --length 32 --validation-rows 2 --report-rows 2 --batch 2 --recipe fast"
  for threads in 1 2 7; do
    OMP_NUM_THREADS=$threads expect 0 "bits per weight" $budget --out "$work/mixed$threads" --bpw 10.5 --bits-for '*.0.*q_proj=8:32' --save-plan "$work/plan$threads"
    cmp "$work/plan1" "$work/plan$threads" || complain "plans by 1 and $threads threads differ"
    same "$work/mixed1" "$work/mixed$threads"
  done
  [[ $output == *"budget       "* && $output == *"measured     "* ]] || complain "the budget: $output"
  python3 "$work/budget.py" "$work/mixed1" 10.5 || complain "the size of --bpw 10.5: $output"
  grep -q '^stories260k at mixed bits, 10.' "$work/mixed1/README.md" || complain "README.md: $(cat "$work/mixed1/README.md")"
  python3 - "$work/plan1" <<'END' || complain "--bits-for beside --bpw: $(cat "$work/plan1")"
import json, sys
plan = json.load(open(sys.argv[1]))["quantization"]
assert plan["model.layers.0.self_attn.q_proj"] == {"bits": 8, "group_size": 32}
END
  expect 0 "KL cut by" $budget --out "$work/again" --plan "$work/plan1"
  same "$work/mixed1" "$work/again"
  expect 0 "KL cut by" $budget --out "$work/sized" --size 340KB --json "$work/report"
  python3 "$work/budget.py" "$work/sized" 340000 || complain "the size of --size 340KB: $output"
  grep -q '"kl_alone"' "$work/report" || complain "--json: $(cat "$work/report")"
  expect 0 "budget       340.0 KB of weights, for " $budget --out "$work/new" --size 340KB --dry-run
  [[ $output == *"peak memory"* ]] || complain "a dry run with a budget: $output"
  rm -r "$work"/mixed? "$work"/plan? "$work/again" "$work/sized" "$work/report" "$work/budget.py"

  # Types of a GGUF file.
  expect 0 "modules whose types are chosen" $budget --out "$work/a.gguf" --size 340KB --save-plan "$work/types"
  grep -q '"mode": *"q' "$work/types" || complain "--save-plan of types: $(cat "$work/types")"
  expect 0 "KL cut by" $budget --out "$work/b.gguf" --plan "$work/types"
  cmp "$work/a.gguf" "$work/b.gguf" || complain "--plan of types makes another file"
  expect 0 "Once" generate "$work/a.gguf" --prompt Once -n 4
  rm "$work"/[ab].gguf "$work/types"

  budget="$budget --out $work/new"
  refused 2 "--bpw 1.5 asks for " $budget --bpw 1.5
  refused 2 "bits per weight" $budget --bpw 16
  refused 2 "--size asks for 10000 bytes of weights: expected " $budget --size 10KB
  refused 2 "--size is 300 Mx, expected a size such as 300MB" $budget --size '300 Mx'
  refused 2 "--size is 0, expected a size" $budget --size 0
  refused 2 "--bpw is 0.5, expected a number, 1 to 32" $budget --bpw 0.5
  refused 2 "found --bpw and --size, expected one" $budget --bpw 4.5 --size 340KB
  refused 2 "found --bpw and --bits, expected one" $budget --bpw 4.5 --bits 4
  refused 2 "found --size and --plan, expected one" $budget --size 340KB --plan "$work/plan"
  refused 2 "--bpw 4 asks for " $budget --bpw 4 --format gguf
  refused 2 "--smaller-groups" $budget --bpw 10.5 --format gguf --smaller-groups
  refused 2 "--save-plan has no effect: --dry-run measures nothing" $budget --size 340KB --dry-run --save-plan -
}

only story plan
finish
