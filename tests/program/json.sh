#!/usr/bin/env bash
# --json of every command is what docs/json.schema.json says, and says what the command did.
# usage: tests/program/json.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
few="--text $work/story --length 33"
rows="--batch 2 --validation-rows 2 --report-rows 2"
schema=docs/json.schema.json

# report NAME ARGUMENTS...
report() {
  local name=$1
  shift
  expect 0 "" "$@" --json "$work/$name.json"
}

# shellcheck disable=SC2086
{
  report calibrate calibrate -m "$model" -o "$work/new" --group-size 32 --bits 3 $few $rows --steps 2 --lr 0.002 --html "$work/page.html"
  report fitted calibrate -m models/tiny-moe -o "$work/moe" --recipe fast $few $rows
  report budget calibrate -m "$model" -o "$work/sized.gguf" --recipe fast --fit least-squares --bpw 11 $few $rows --report-text "$work/new/README.md"
  report quantize quantize -m "$model" -o "$work/q4" --group-size 32
  report gguf quantize -m "$model" -o "$work/q.gguf" --type q4_0
  report convert convert -m "$work/q.gguf" -o "$work/mlx"
  report eval eval -m "$work/new" --teacher "$model" --versus "$work/q4" $few
  report alone eval -m "$model" $few
  report compare compare "$work/new" "$work/q4" --teacher "$model" $few
  report info info models/tiny-moe
  report doctor doctor
  report gradcheck gradcheck --op softmax --runs 1
  report generate generate -m "$model" -p Once -n 4 --samples 2
  "$mixtape" train --model-config "$model/config.json" --tokenizer "$model" -o "$work/trained" $few $rows --steps 2 --json "$work/train.json" >"$work/log" 2>&1
  [ $? = 3 ] || complain "train: $(cat "$work/log")"
}
python3 tests/program/check_json.py "$schema" "$work"/*.json || complain "a report is not what $schema says"
python3 - "$work" <<'END' || complain "the reports don't agree"
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
calibrate, evaluated, compared = read("calibrate"), read("eval"), read("compare")
# One figure has one name and one value, whoever measures it.
assert evaluated["result"] == compared["models"][0]["result"]
assert evaluated["kl_difference"] == compared["models"][1]["kl_minus_first"]
assert evaluated["text"] == compared["text"] and read("alone")["text"]["report"] == evaluated["text"]["report"]
assert calibrate["out"]["bytes"] == compared["models"][0]["bytes"]
assert calibrate["out"]["weights"] == read("quantize")["out"]["weights"] == read("train")["out"]["weights"]
assert all(read(name)["mixtape"] == calibrate["mixtape"] for name in ("doctor", "info", "gradcheck", "convert"))
assert calibrate["text"]["train"]["fingerprint"] == read("train")["text"]["train"]["fingerprint"]
# The parts: every place and kind, the matrices of the worst layer, what more bits take.
parts = calibrate["parts"]
assert [p["name"] for p in parts["places"]] == ["model.embed_tokens"] + [f"model.layers.{i}" for i in range(5)], parts
assert any(p["name"] == "mlp.up_proj" for p in parts["kinds"]) and len(parts["modules"]) == 6, parts
worst = max(parts["places"][1:], key=lambda p: p["kl"]["mean"])
assert worst["wider"]["option"] == f"--bits-for '{worst['name']}.*=4'" and worst["wider"]["bytes"] > 0, worst
assert all(m["name"].startswith(worst["name"] + ".") for m in parts["modules"]), parts
assert "parts" not in read("fitted") and read("budget")["modules"]
END
# A report that is none is refused.
python3 - "$work" <<'END'
import json, sys
report = json.load(open(f"{sys.argv[1]}/eval.json"))
for name, change in (("more", {"ppl": 1.0}), ("type", {"device": 3}), ("less", {"result": {"positions": 3}})):
    json.dump({**report, **change}, open(f"{sys.argv[1]}/wrong_{name}.json", "w"))
END
[ "$(python3 tests/program/check_json.py "$schema" "$work"/wrong_*.json | wc -l)" = 3 ] || complain "check_json.py takes anything"
# Names in docs/json.md and the schema are the same.
for name in $(sed -n 's/^| \(`[^|]*`\) |.*/\1/p' docs/json.md | tr -d '`,'); do
  grep -q "\"$name\"" "$schema" || complain "docs/json.md names $name, which $schema doesn't"
done

# mixtape.json has the same names.
python3 - "$work" <<'END' || complain "mixtape.json isn't what --json says"
import json, sys
card, report = json.load(open(f"{sys.argv[1]}/new/mixtape.json")), json.load(open(f"{sys.argv[1]}/calibrate.json"))
assert card["initial"] == report["initial"] and card["text"] == report["text"], card
assert all(report["out"][name] == value for name, value in card["out"].items()), card
END
expect 0 '"command": "generate"' generate -m "$model" -p Once -n 2 --json -
expect_line 1 "--json: $work/story is a file that exists" generate -m "$model" -p Once --json "$work/story"
expect_line 1 "--json: $work/story is a file that exists" convert -m "$model" -o "$work/none" --json "$work/story"
finish
