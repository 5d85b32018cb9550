#!/usr/bin/env bash
# chat: answers, what it remembers, commands, Ctrl-C.
# usage: tests/program/chat.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
cp -r "$model" "$work/model"
python3 - "$work/model/tokenizer_config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config["chat_template"] = ("{% for m in messages %}{% if m.role == 'system' and m.content == 'refuse' %}"
                           "{{ raise_exception('no system here') }}{% endif %}{{ m.content }} {% endfor %}")
json.dump(config, open(sys.argv[1], "w"))
END
chat="chat -m $work/model --temp 0 -n 6 --device cpu --dtype f32"
# talk TEXT ARGUMENTS...: what is answered to the text, without what goes to standard error.
talk() {
  local text=$1 found
  shift
  output=$(printf "$text" | "$mixtape" "$@" 2>"$work/errors")
  found=$?
  [ $found = "${status:-0}" ] || complain "mixtape $*: status $found, expected ${status:-0}: $(cat "$work/errors")"
}

# shellcheck disable=SC2086
{
  talk 'Once upon a time\n' $chat
  first=$output
  [ "$first" = "$("$mixtape" generate -m "$work/model" --chat -p 'Once upon a time' --temp 0 -n 6 2>/dev/null)" ] ||
    complain "chat and generate --chat answer differently: $first"
  # The second answer knows the first: it is not what a new conversation says. /clear forgets; a line may go on.
  talk 'Once upon a time\nThe dog\n' $chat
  both=$output
  talk 'Once upon a time\n/clear\nThe dog\n' $chat
  [ "$(head -n 1 <<<"$both")" = "$first" ] || complain "a second message changes the first answer: $both"
  [ "$both" != "$output" ] || complain "/clear forgets nothing, or nothing was remembered: $output"
  talk 'The dog\n' $chat
  alone=$output
  talk 'Once upon a time\n/clear\n\n  \nThe dog\n/exit\nOnce\n' $chat
  [ "$output" = "$first"$'\n'"$alone" ] || complain "after /clear: $output, expected $first and $alone"
  talk 'Once upon \\\na time\n' $chat
  [ -n "$output" ] && [ "$(wc -l <<<"$output")" = "$(wc -l <<<"$first")" ] || complain "a line that goes on: $output"

  # Another answer by another draw, the same by the most probable token; none before the first.
  talk 'Once upon a time\n/again\n' $chat
  [ "$output" = "$first"$'\n'"$first" ] || complain "/again at temperature 0: $output"
  status=2 talk '/again\n/what\n/help\n' $chat
  for line in "there is no answer yet" "unknown command /what" "/clear  begin anew"; do
    grep -qF -- "$line" "$work/errors" || complain "chat: no '$line' in: $(cat "$work/errors")"
  done
  talk 'Once upon a time\n/again\n' chat -m "$work/model" -n 12 --temperature 2 --seed 5
  [ "$(sed -n 1p <<<"$output")" != "$(sed -n 2p <<<"$output")" ] || complain "/again draws the same: $output"

  # Beside another model, each under its name; what is drawn from follows the flags.
  talk 'Once upon a time\n' $chat --against "$work/model"
  [ "$output" = "[$work/model]"$'\n'"$first"$'\n'"[$work/model]"$'\n'"$first" ] || complain "--against: $output"
  talk 'Once upon a time\n' chat -m "$work/model" -n 6 --dtype f32 --top-k 1
  [ "$output" = "$first" ] || complain "--top-k 1: $output, expected $first"
  talk 'Once upon a time\n' chat -m "$work/model" -n 6 --dtype f32 --min-p 1 --top-p 1
  [ "$output" = "$first" ] || complain "--min-p 1: $output, expected $first"
  talk 'Once upon a time\n' $chat --repeat-penalty 1e2 --repeat-last-n 8
  penalized=$output
  [ "$output" != "$first" ] || complain "--repeat-penalty changes nothing: $output"
  talk 'Once upon a time\n' $chat --repetition-penalty 1e2 --repetition-context-size 8
  [ "$output" = "$penalized" ] || complain "mlx-lm's names: $output, expected $penalized"
  talk 'Once upon a time\n' $chat --system-prompt 'The big red dog said no to the mom.' --date 2024-07-26
  [ "$output" != "$first" ] || complain "--system changes nothing: $output"

  # A text that is no UTF-8 is not heard; the context has an end.
  status=2 talk 'caf\xe9\nOnce upon a time\n' $chat
  [ "$output" = "$first" ] && grep -q "no valid UTF-8" "$work/errors" || complain "not UTF-8: $output, $(cat "$work/errors")"
  long=$(printf 'cat %.0s' $(seq 600))
  status=2 talk "$long\nOnce upon a time\n" $chat
  [ "$output" = "$first" ] && grep -q "the model's context has 512: no answer; /clear begins anew" "$work/errors" ||
    complain "a long message: $output, $(cat "$work/errors")"
  grep -qF "[cut: -n 6]" "$work/errors" || complain "a cut answer: $(cat "$work/errors")"
  talk '/etc/passwd says\n /what\n' $chat
  [ "$(wc -l <<<"$output")" = 2 ] || complain "messages that begin with a slash: $output"
  "$mixtape" $chat </tmp >/dev/null 2>"$work/errors"
  [ $? = 1 ] && grep -q "standard input: cannot read: Is a directory" "$work/errors" || complain "a directory: $(cat "$work/errors")"

  expect_line 2 "found no chat template, expected one" chat -m "$model"
  expect_line 2 "no system here" $chat --system refuse
  expect_line 2 "--top-k has no effect: --temperature 0" $chat --top-k 3
  expect_line 2 "--repeat-last-n has no effect: --repeat-penalty is 1" $chat --repeat-last-n 3
  expect_line 2 "--repeat-penalty is 0, expected a number" $chat --repeat-penalty 0
  expect_line 2 "--min-p is 2, expected a number, 0 to 1" chat -m "$work/model" --min-p 2
  expect 0 "" $chat
}

# Lines are edited on a terminal.
python3 tests/program/typed.py "$mixtape" "$work/model" "$first" || complain "a chat on a terminal"

python3 tests/program/stopped.py "$mixtape" "$work/model" || complain "Ctrl-C in a chat"

only model errors
finish
