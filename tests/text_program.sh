#!/usr/bin/env bash
# What the program makes of a model directory's text files: chat templates, special tokens, ids that end a text.
# Directories are tests/data/stories260k with other small files.
# usage: tests/text_program.sh SOURCE_DIR MIXTAPE
set -uo pipefail
cd "$1"
mixtape=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# model NAME: a new directory that the other files go into.
model() {
  mkdir "$work/$1"
  cp tests/data/stories260k/{config.json,model.safetensors,tokenizer.json} "$work/$1"
  echo "$named, \"chat_template\": \"$plain\"}" >"$work/$1/tokenizer_config.json"
}
named='{"bos_token": "<s>", "eos_token": "</s>"'
plain='{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} [assistant]'

# expect TEXT ARGUMENTS...: the program succeeds, or (3) calibrates without getting better, and says the text.
expect() {
  local text=$1 output status
  shift
  output=$("$mixtape" "$@" 2>&1 </dev/null)
  status=$?
  if [[ $status != [03] || $output != *"$text"* ]]; then
    echo "mixtape $*: status $status, expected '$text' in: $output"
    failed=1
  fi
}
# chat NAME ARGUMENTS...: the template made "<s>Once upon a time" of the prompt "Once"; anything else is continued otherwise.
chat() { expect ", there" generate --model "$work/$1" --chat --prompt Once --count 2 --temperature 0 "${@:2}"; }
dwq() {
  expect "$2" calibrate --model "$work/$1" --out "$work/out-$RANDOM$RANDOM" --group-size 32 --steps 1 --batch 1 \
    --validation-rows 2 --report-rows 2 "${@:3}"
}
chats() {  # COUNT CONTENT [MORE]
  for ((i = 0; i < $1; ++i)); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$2 $i\"}]${3:-}}"
  done
}

model file
echo "$named}" >"$work/file/tokenizer_config.json"
echo '{{ bos_token }}{{ messages[0].content }} upon a time' >"$work/file/chat_template.jinja"
chat file
model both
cp "$work/file/chat_template.jinja" "$work/both"
chat both
chats 12 "Once upon a time" >"$work/chats.jsonl"
dwq both "training" --length 16 --chats "$work/chats.jsonl"

model map
echo '{"chat_template": "{{ bos_token }}{% if eos_token|length == 4 %}Once upon a time{% endif %}"}' >"$work/map/tokenizer_config.json"
echo "$named}" >"$work/map/special_tokens_map.json"
chat map

model date
echo "$named, \"chat_template\": \"{{ bos_token }}{% if strftime_now('%Y') in ['2020', '$(date +%Y)'] %}Once upon a time{% else %}Some other day {{ messages[0].content }}{% endif %}\"}" >"$work/date/tokenizer_config.json"
chat date
chat date --date 2020-02-29
dwq date "2024-07-26 (in the chat template)" --length 16 --chats "$work/chats.jsonl"

model tools
echo "$named, \"chat_template\": [{\"name\": \"default\", \"template\": \"$plain\"},
  {\"name\": \"tool_use\", \"template\": \"{{ messages[0].content }}{{ tools|tojson * 9 }}\"}]}" >"$work/tools/tokenizer_config.json"
chats 12 "Hi" ', "tools": [{"name": "look_up"}]' >"$work/tools.jsonl"
dwq tools "12 of 12 chats, after 64 tokens" --length 64 --chats "$work/tools.jsonl"

model refusing
echo "$named, \"chat_template\": \"{% if 'time 7' in messages[0].content %}{{ raise_exception('never 7') }}{% endif %}\"}" \
  >"$work/refusing/tokenizer_config.json"
output=$("$mixtape" calibrate --model "$work/refusing" --out "$work/none" --group-size 32 --chats "$work/chats.jsonl" 2>&1)
[[ $output == *"chats.jsonl, line 8: chat template, line 1: never 7"* ]] || { echo "refused chat: $output"; failed=1; }

# The text ends at an id that only generation_config.json, or only the tokenizer, names.
model whole
story=$("$mixtape" generate --model "$work/whole" --prompt "Once upon a time" --count 8 --temperature 0 2>/dev/null)
model stops
echo '{"eos_token_id": [2, 432]}' >"$work/stops/generation_config.json"  # a comma
stopped=$("$mixtape" generate --model "$work/stops" --prompt "Once upon a time" --count 8 --temperature 0 2>/dev/null)
[[ $story == "Once upon a time, there"* && $stopped == "Once upon a time," ]] || { echo "stops: $story | $stopped"; failed=1; }
sed -i 's|"</s>"|","|' "$work/whole/tokenizer_config.json"
stopped=$("$mixtape" generate --model "$work/whole" --prompt "Once upon a time" --count 8 --temperature 0 2>/dev/null)
[[ $stopped == "Once upon a time" ]] || { echo "the tokenizer's EOS: $stopped"; failed=1; }

# BOS that only the post-processor names begins every row; a pipe is text like any other.
model bare
echo '{}' >"$work/bare/tokenizer_config.json"
for i in $(seq 40); do echo "Once upon a time there was a girl."; done >"$work/story.txt"
positions=$("$mixtape" eval --model "$work/whole" --text "$work/story.txt" --length 16 2>/dev/null | head -3)
found=$("$mixtape" eval --model "$work/bare" --text <(cat "$work/story.txt") --length 16 2>/dev/null | head -3)
[[ -n $positions && $found == "$positions" ]] || { echo "rows: $found, expected $positions"; failed=1; }

# What Python's json writes.
for begin in '"limit": [0.0, Infinity]' '"noise": NaN' '"hidden_size": 32'; do
  sed "1s/.*/{ $begin,/" tests/data/stories260k/config.json >"$work/bare/config.json"
  expect "llama" info "$work/bare"
done
exit $failed
