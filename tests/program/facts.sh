#!/usr/bin/env bash
# What the program says of a machine and of a model, what a written model says of itself, and what a run warns of.
# usage: tests/program/facts.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 40 >"$work/story"
few="--length 32 --validation-rows 2 --report-rows 2 --batch 2"
two="--steps 2"
calibrate="calibrate --model $model --group-size 32 --out $work/new"

# says PATTERN...: $output has a line that matches each.
says() {
  local pattern
  for pattern in "$@"; do grep -qE -- "$pattern" <<<"$output" || complain "expected '$pattern' in: $output"; done
}

# doctor: every part that a run needs, speeds, one verdict, in a few seconds.
start=$SECONDS
expect 0 "verdict      ready, on " doctor
[ $((SECONDS - start)) -lt 60 ] || complain "doctor took $((SECONDS - start)) seconds"
says '^processor ' '^memory .* free$' '^CUDA driver ' '^cuBLASLt ' '^NVRTC ' '^oneDNN +[0-9]' '^cpu +[^ ]' \
  '^ +[0-9.e+]+ TFLOP/s \(product of .*\), [0-9.e+]+ GB/s \(copy\)$' \
  '^verdict .* calibrating 1 billion weights on 100,000 tokens takes at least [0-9]'
[ "$(grep -c '^verdict' <<<"$output")" = 1 ] || complain "doctor: $output"
expect 0 "verdict" doctor --json "$work/doctor.json"
python3 - "$work/doctor.json" "$output" <<'END' || complain "doctor --json: $(cat "$work/doctor.json")"
import json, os, sys
facts = json.load(open(sys.argv[1]))
# What the screen says: each line's first word, and what stands behind it.
lines = {line[:12].strip(): line[13:] for line in sys.argv[2].splitlines() if line[:1] != " "}
for name, is_there in facts["instruction_sets"].items():
    assert lines.pop(name) == ("yes" if is_there else "no"), name
for name, found in facts["libraries"].items():
    assert lines.pop(name) == (found or f"none ({facts['missing'][name]})"), name
for device in facts["devices"]:
    assert lines.pop(device["name"]) == device["description"], device
assert lines.pop("verdict").startswith(facts["verdict"] + ": ") and facts["least_seconds"] > 0
is_busy = facts["load_average"] > 0.5 * os.cpu_count()
assert lines.pop("OpenMP") == f"{facts['threads']} thread" + "s" * (facts["threads"] != 1), facts
assert set(lines) == {"processor", "memory"} | ({"busy"} if is_busy else set()), (facts["load_average"], lines)
cpu = facts["devices"][0]
assert cpu["name"] == "cpu" and cpu["product_flops"] > 0 and cpu["product_size"] == 1024 and cpu["copy_bytes_per_second"] > 0, cpu
assert facts["memory_bytes"] >= facts["available_bytes"] > 0 and facts["threads"] > 0, facts
assert "cuBLASLt" in facts["libraries"] and facts["verdict"].startswith("ready"), facts
END
rm "$work/doctor.json"
OMP_NUM_THREADS=1 expect 0 ", 1 thread" doctor
[[ $output != *"1 threads"* ]] || complain "doctor of one thread: $output"

# info: a float model, quantized ones of one and of two widths, without a tokenizer; the same figures as JSON.
expect 0 "context length 512 positions" info "$model"
says '^BOS +<s> \(1\)$' '^EOS +</s> \(2\)$' '^chat template  no$' '^bits per weight 32\.000$' '^size on disk +.*, 4 files$' \
  '^stored as +f32 +[0-9]+ tensors +0\.26 million weights' '^parameters +0\.26 million$'
expect 0 "" quantize models/tiny-moe -o "$work/new" --bits 3 --group-size 64 --quantize-routers
expect 0 "quantized      3 bits, group 64" info "$work/new" --json "$work/info.json"
says '^stored as +3 bits, group 64 +[0-9]+ tensors' '^ +8 bits, group 64 +4 tensors' '^ +bf16 +[0-9]+ tensors'
python3 - "$work/info.json" <<'END' || complain "info --json: $(cat "$work/info.json")"
import json, sys
info = json.load(open(sys.argv[1]))
assert info["quantized"] == {"bits": 3, "group_size": 64}
assert info["context_length"] == 512 and info["eos"] == [{"id": 2, "token": "</s>"}] and info["chat_template"] is False
assert [f["form"] for f in info["stored_as"]] == ["3 bits, group 64", "8 bits, group 64", "bf16"]
assert sum(f["weights"] for f in info["stored_as"]) == info["weights"]
bits = 8 * sum(f["bytes"] for f in info["stored_as"]) / info["weights"]
assert abs(bits - info["bits_per_weight"]) < 1e-9 and 3 < bits < 4
assert info["bytes_on_disk"] > sum(f["bytes"] for f in info["stored_as"])
END
expect 0 '"context_length": 512' info "$work/new" --json -
rm "$work/new/tokenizer.json"
expect 0 "tokenizer      none (" info "$work/new"
rm -r "$work/new" "$work/info.json"
tests/program/make_gguf.py fuzz/corpus/gguf/llama "$work/model.gguf"
expect 0 "context length 64 positions" info "$work/model.gguf"
says '^stored as +BF16 +1 tensors' '^ +Q4_0 +1 tensors' '^ +Q8_0 +4 tensors .* 8\.500 bits$' '^size on disk .*, 1 file$'
rm "$work/model.gguf"

# A written model says how it was made; whoever loads it reads neither file.
# shellcheck disable=SC2086
expect 0 "31 modules" quantize "$model" -o "$work/new" --bits 4 --group-size 32
grep -q '^stories260k at 4 bits in groups of 32, [0-9.]* bits per weight: rounded, by mixtape 0' "$work/new/README.md" || complain "README.md: $(cat "$work/new/README.md")"
grep -q '"command": "quantize"' "$work/new/mixtape.json" || complain "mixtape.json: $(cat "$work/new/mixtape.json")"
rm -r "$work/new"
# shellcheck disable=SC2086
expect 0 "KL cut by" $calibrate --text "$work/story" $few $two --seed 7 --lr 0.002 --json "$work/report.json"
grep -q '^| calibrated | [0-9.]* | [0-9.]* | [0-9.]* % |$' "$work/new/README.md" || complain "README.md: $(cat "$work/new/README.md")"
python3 - "$work/new/mixtape.json" "$work/report.json" <<'END' || complain "mixtape.json: $(cat "$work/new/mixtape.json")"
import json, sys
card, report = (json.load(open(name)) for name in sys.argv[1:])
training = card["training"]
assert card["seed"] == 7 and training["steps"] == 2 and card["settings"]["batch"] == 2 and training["learning_rate"] == 0.002
assert card["mixtape"]["version"].startswith("0.") and not card["interrupted"]
assert card["result"]["kl"]["mean"] < card["initial"]["kl"]["mean"]
assert all(report[key] == value for key, value in card.items() if key not in ("out", "training"))
assert len(report["training"]["losses"]) == 2 and "seconds" not in card and "path" not in card["out"]
END
expect 0 "Once" generate "$work/new" --prompt Once -n 4
cp "$work/new/mixtape.json" "$work/card.json"
rm -r "$work/new"
# shellcheck disable=SC2086
expect 0 "KL cut by" $calibrate --text "$work/story" $few $two --seed 7 --lr 0.002
cmp "$work/new/mixtape.json" "$work/card.json" || complain "mixtape.json differs from run to run"
rm -r "$work/new" "$work/card.json" "$work/report.json"

expect 3 "held-out perplexity" train --model-config "$model/config.json" --tokenizer "$model" --text "$work/story" $few $two --seed 7 --out "$work/new"
grep -q '^llama of 260032 weights, trained from nothing on [0-9]* rows of text by mixtape 0\.' "$work/new/README.md" || complain "README.md: $(cat "$work/new/README.md")"
python3 - "$work/new/mixtape.json" <<'END' || complain "mixtape.json: $(cat "$work/new/mixtape.json")"
import json, sys
card = json.load(open(sys.argv[1]))
assert card["command"] == "train" and card["seed"] == 7 and card["text"]["length"] == 32
assert card["training"]["steps"] == 2 and card["settings"]["batch"] == 2
END
rm -r "$work/new"

# Each module in a format of its own: the default of config.json is no module's.
expect 0 "" quantize models/tiny-moe -o "$work/new" --bits 4 --bits-for '*=3'
expect 0 "quantized      each module in a format of its own" info "$work/new"
rm -r "$work/new"

# Text that the model doesn't know, and rows seen too often.
for i in $(seq 40); do echo "zq$((i * 7919 % 1000))|{#}~@$((i * 104729 % 10007));"; done >"$work/odd"
# shellcheck disable=SC2086
{
  expect 0 "warning: the model's own perplexity on this text is " $calibrate --text "$work/odd" $few $two --lr 0.002
  rm -r "$work/new"
  expect 0 "" $calibrate --text "$work/story" ${few/rows 2/rows 8} $two --lr 0.002
  [[ $output != *warning* ]] || complain "a warning without a reason: $output"
  says '^steps +2 x 2 rows = 0\.[0-9] epochs$'
  rm -r "$work/new"
  expect 0 "warning: each row is seen " $calibrate --text "$work/story" $few --rows 4 --steps 9 --lr 0.002
  says '^steps +9 x 2 rows = 4\.5 epochs$'
  rm -r "$work/new"
  expect 0 "4.0 epochs" $calibrate --text "$work/story" $few --rows 4 --steps 8 --lr 0.002
  [[ $output != *"each row is seen"* ]] || complain "four epochs are warned of: $output"
  rm -r "$work/new" "$work/odd"
}

# Experts take one line before the table; who saw what is in the report.
# shellcheck disable=SC2086
expect 0 "KL cut by" calibrate --model models/tiny-moe --bits 3 --text "$work/story" $few $two --lr 0.002 --out "$work/new" --json "$work/report.json"
[ "$(grep -ciE '^experts|^unseen' <<<"$output")" -le 2 ] || complain "more than two lines on experts: $output"
says '^  model.*: codes kept of experts with too few tokens: ' '^  and [0-9]+ more like these'
[ "$(grep -c '^  ' <<<"$output")" -le 8 ] && [ -z "$(awk '/^  / && length > 100' <<<"$output")" ] || complain "long notes: $output"
[ "$(grep -c 'router' <<<"$output")" -le 3 ] || complain "a line for each router: $output"
grep -q '^calibrated ' <<<"$(grep -A 60 '^experts ' <<<"$output")" || complain "the table isn't below the experts: $output"
grep -q '"expert_tokens": {' "$work/report.json" || complain "no tokens of experts in: $(cat "$work/report.json")"
rm -r "$work/new" "$work/report.json"

only story
finish
