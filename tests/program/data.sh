#!/usr/bin/env bash
# Text from several sources: shares, what is in the report alone, what the model writes itself, what is left out.
# usage: tests/program/data.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 120 >"$work/story.txt"
for i in $(seq 60); do echo "Lily saw $i birds in the big tree. She was happy and ran home to tell her mom about bird $i."; done >"$work/birds.txt"
sed 's/.*/{"text": "&"}/' "$work/birds.txt" >"$work/birds.jsonl"
few="--batch 2 --steps 2 --validation-rows 4 --report-rows 4"
long="dwq --model $model --out $work/new --group-size 32 $few --length 128"
dwq="dwq --model $model --out $work/new --group-size 32 $few --length 32"

# calibrated TEXT ARGUMENTS...: ends well, or without getting better, and says the text.
calibrated() {
  local text=$1 found
  shift
  output=$("$mixtape" "$@" 2>&1 </dev/null)
  found=$?
  if [[ $found != [03] || $output != *"$text"* ]]; then
    complain "mixtape $*: status $found, expected '$text' in: $output"
  fi
  rm -rf "$work/new"
}
says() { grep -qE -- "$1" <<<"$output" || complain "expected '$1' in: $output"; }
# numbers SOURCE: its training, validation and report rows.
numbers() { sed -nE "s#^source +$1: [0-9]+ rows; ([0-9]+) training, ([0-9]+) validation, ([0-9]+) report.*#\1 \2 \3#p" <<<"$output"; }

# Every source is in every part, and has a row in the report's table.
calibrated "sampled from the model" $dwq --text "$work/story.txt" --text "$work/birds.txt" --chats "$work/birds.jsonl" \
  --data self --self-rows 16 --json "$work/json"
for source in "$work/story.txt" "$work/birds.txt" "$work/birds.jsonl" self; do
  read -r training validation report <<<"$(numbers "$source")"
  [ "${training:-0}" -ge 1 ] && [ "${validation:-0}" -ge 1 ] && [ "${report:-0}" -ge 1 ] || complain "$source: '$(numbers "$source")' in: $output"
done
says "^report rows of "
for name in story.txt birds.txt birds.jsonl self; do says "^$name  +[0-9]+ .* %"; done
[ "$(grep -c '"kl_cut"' "$work/json")" = 5 ] || complain "--json has no row for each source"
rm "$work/json"

# Shares: three rows of one for each of the other, by file name or whole name.
calibrated "" $dwq --text "$work/story.txt" --text "$work/birds.txt" --share story.txt=3 --share "$work/birds.txt=1" --rows 40
[ "$(numbers "$work/story.txt")" = "30 3 3" ] && [ "$(numbers "$work/birds.txt")" = "10 1 1" ] || complain "shares: $output"
calibrated "" $dwq --text "$work/story.txt" --data self --self-rows 20 --share self=1
[ "$(numbers "$work/story.txt")" = "$(numbers self)" ] || complain "equal shares: $output"
# Before anything is sampled.
expect_line 2 "found 8 different rows of text, expected at least 9" $dwq --data self --self-rows 8
[[ $output != *sampling* ]] || complain "too few rows are found after sampling: $output"
expect_line 2 "--share names other.txt, expected one of $work/story.txt, self" $dwq --text "$work/story.txt" --data self --share other.txt=1
[[ $output != *sampling* ]] || complain "a wrong --share is found after sampling: $output"
expect_line 2 "--share is story.txt, expected NAME=NUMBER" $dwq --text "$work/story.txt" --share story.txt
expect_line 2 "--share is story.txt=0, expected NAME=NUMBER with a number above 0" $dwq --text "$work/story.txt" --share story.txt=0
expect_line 2 "--share names tory.txt, expected one of $work/story.txt" $dwq --text "$work/story.txt" --share tory.txt=1
expect_line 2 "--share names story.txt twice" $dwq --text "$work/story.txt" --share story.txt=1 --share story.txt=2
expect_line 2 "story.txt means several sources" $dwq --text "$work/story.txt" --text "$work/../${work##*/}/story.txt" --share story.txt=1

# A file for the report alone; training rows that share its text are left out, and counted.
calibrated "" $dwq --text "$work/story.txt" --report-text "$work/birds.txt" --report-text "$work/birds.jsonl"
says "^source +$work/birds.txt: [0-9]+ rows; 0 training, 0 validation, 4 report"
says "^birds.txt  +4 "
head -n 60 "$work/story.txt" >"$work/part.txt"
calibrated "" $long --text "$work/story.txt" --text "$work/birds.txt" --report-text "$work/part.txt"
says "^source +$work/story.txt: .* that share text with the report left out"
! grep -q "^source *$work/birds.txt:.*share text" <<<"$output" || complain "birds.txt shares no text: $output"
expect_line 2 "share text with the report: " $long --text "$work/part.txt" --report-text "$work/story.txt"
cat "$work/story.txt" "$work/birds.txt" >"$work/both.txt"
calibrated "copies left out" $dwq --text "$work/story.txt" --text "$work/both.txt"
expect_line 2 "(copies: " $dwq --text "$work/story.txt" --text "$work/story.txt"
expect_line 2 "expected no --share or --report-text" $dwq --reference-compat --text "$work/story.txt" --report-text "$work/birds.txt"

expect 3 "  $work/birds.txt: " train --model-config "$model/config.json" --tokenizer "$model" --out "$work/new" $few --length 32 \
  --text "$work/story.txt" --report-text "$work/birds.txt"
rm -r "$work/new"

# What the model writes itself.
for from in start text; do
  calibrated "training" $dwq --data self --self-rows 16 --text "$work/story.txt" --self-from $from
done
expect_line 2 "--self-from is text, expected --text beside it" $dwq --data self --self-rows 16 --self-from text
expect_line 2 "--self-from is chat, expected a model with a chat template" $dwq --data self --self-rows 16 --self-from chat
expect_line 2 "--self-from is chat, expected --data self" $dwq --text "$work/story.txt" --self-from chat
expect_line 2 "--self-from is bos, expected auto, start, chat or text" $dwq --data self --self-from bos
mkdir "$work/chat"
cp "$model"/{config.json,model.safetensors,tokenizer.json} "$work/chat"
echo '{"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"}' \
  >"$work/chat/tokenizer_config.json"
for from in auto chat; do
  calibrated "training" dwq --model "$work/chat" --out "$work/new" --group-size 32 $few --length 32 --data self --self-rows 16 --self-from $from
done

only story.txt birds.txt birds.jsonl part.txt both.txt chat
finish
