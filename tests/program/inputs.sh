#!/usr/bin/env bash
# Where input comes from, what is warned of, and options by all their names.
# usage: tests/program/inputs.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 40 >"$work/story"
few="--length 32 --validation-rows 2 --report-rows 2 --steps 2"
plain="eval --model $model --length 32"

# same TEXT: $output has the line of the reference.
expect 0 "perplexity" $plain --text "$work/story"
reference=$(grep '^perplexity' <<<"$output")
same() { grep -qF -- "$reference" <<<"$output" || complain "$1: expected '$reference' in: $output"; }

# Pipes, by any name.
# shellcheck disable=SC2086
{
  output=$("$mixtape" $plain --text /dev/stdin < <(cat "$work/story") 2>&1)
  same "--text /dev/stdin"
  output=$("$mixtape" $plain --text <(cat "$work/story") 2>&1)
  same "--text <(...)"
  mkfifo "$work/fifo"
  cat "$work/story" >"$work/fifo" &
  output=$("$mixtape" $plain --text "$work/fifo" 2>&1)
  same "--text FIFO"
  rm "$work/fifo"
}
expect 0 "" $plain --text "$work/story" --batch-size 3 --device cpu
same "--batch-size"

# The prompt of standard input; --chat needs a template.
reference=$("$mixtape" generate "$model" --prompt 'Once upon' -n 8 --temp 0 2>/dev/null)
[ "$(wc -w <<<"$reference")" -gt 4 ] || complain "generate: $reference"
for arguments in "" "-p -"; do
  # shellcheck disable=SC2086
  output=$(echo 'Once upon' | "$mixtape" generate -m "$model" $arguments --max-tokens 8 --temperature 0 2>/dev/null)
  [ "$output" = "$reference" ] || complain "generate $arguments, from a pipe: $output"
done
expect_line 2 "no chat template" generate --model "$model" --chat --prompt Hi
cp -r "$model" "$work/chats"
python3 - "$work/chats/tokenizer_config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config["chat_template"] = "{{ messages[0].content }}"
json.dump(config, open(sys.argv[1], "w"))
END
expect 0 "" generate --model "$work/chats" --chat --prompt Once -n 2
for chat in "" --chat; do
  # shellcheck disable=SC2086
  expect_line 2 "--prompt: byte 1 begins no valid UTF-8 sequence" generate --model "$work/chats" $chat --prompt $'a\xff'
done
rm -r "$work/chats"

# A model of the Hugging Face cache, or the command that gets it there.
snapshot=$work/hub/models--some--tiny/snapshots/0123
mkdir -p "$snapshot" "$work/hub/models--some--tiny/refs"
printf 0123 >"$work/hub/models--some--tiny/refs/main"
cp "$model"/* "$snapshot"
export HF_HUB_CACHE=$work/hub
expect 0 "llama" info some/tiny
expect_line 2 "hf download some/other" info some/other
unset HF_HUB_CACHE
export HF_HOME=$work
expect 0 "llama" info --model some/tiny
unset HF_HOME
rm -r "$work/hub"

# Lines of JSON aren't text; rows longer than the model's context are worth a word.
sed 's/.*/{"text": "&"}/' "$work/story" >"$work/story.jsonl"
dwq="calibrate --model $model --group-size 32 --out $work/new"
expect_line 2 "name it with --chats" $dwq --text "$work/story.jsonl" $few
expect_line 2 "name it with --chats" eval --model "$model" --text "$work/story.jsonl"
expect 0 "warning: --length is 600, the model was made for 512 positions" eval --model "$model" --text "$work/story" --max-seq-length 600
rm "$work/story.jsonl"

# Frequencies that change with the length are computed up to the length where they begin to.
cp -r "$model" "$work/dynamic"
sed -i 's/"rope_theta": 10000.0/&, "rope_scaling": {"rope_type": "dynamic", "factor": 2}/' "$work/dynamic/config.json"
expect 0 "perplexity" eval --model "$work/dynamic" --text "$work/story" --length 513
expect_line 2 "a sequence of 513 tokens, with rope type dynamic expected 512" eval --model "$work/dynamic" --text "$work/story" --length 514
rm -r "$work/dynamic"

# Other names and rarer options, each with a result.
# shellcheck disable=SC2086
{
  expect 0 "31 modules" quantize "$model" -o "$work/new" --q-bits 3 --q-group-size 64 --smaller-groups --quantize-routers
  rm -r "$work/new"
  expect 0 "wrote  " quantize -m "$model" --mlx-path "$work/new" --bits 2 --group-size 32 --rounding cpu
  rm -r "$work/new"
  expect 0 "KL cut by" $dwq --text "$work/story" $few --batch-size 2 --learning-rate 0.002 --checkpoint --stream-teacher --clip 1 --validate-every 1
  rm -r "$work/new"
  expect 0 "try          mixtape generate -m $work/new" $dwq --text "$work/story" $few --batch 2 --lr 0.002 --grad-checkpoint
  rm -r "$work/new"
  expect 0 "peak memory" $dwq --text "$work/story" $few --dry-run
  train="train --model-config $model/config.json --tokenizer $model --text $work/story --out $work/new $few --batch-size 2"
  expect 3 "held-out perplexity" $train --learning-rate 0.001
  sha256sum <"$work/new/model.safetensors" >"$work/f32"
  rm -r "$work/new"
  expect 3 "held-out perplexity" $train --learning-rate 0.001 --dtype bf16
  sha256sum <"$work/new/model.safetensors" | cmp -s - "$work/f32" && complain "train --dtype bf16 trains as f32 does"
  rm -r "$work/new" "$work/f32"
}

only story
finish
