#!/usr/bin/env bash
# The command line: what is refused, in one line and before any work; what --help says.
# usage: tests/program/command_line.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
echo words >"$work/text"
quantize="quantize --model $model --out $work/new --group-size 32"
dwq="calibrate --model $model --out $work/new --group-size 32 --text $work/text"
generate="generate --model $model --prompt Once"

# refused TEXT ARGUMENTS...: status 2, one line.
refused() { expect_line 2 "$@"; }

refused "no command was given"
refused "unknown command 'quantise', did you mean quantize?" quantise
refused "unknown command 'foo', \`mixtape help\` lists them" foo
refused "calibrate: unknown option '--step', did you mean --steps?" calibrate --step 4
refused "eval: unknown option '--lenght', did you mean --length?" eval --lenght 4
refused "eval: unknown option '--lr', \`mixtape help eval\` lists them" eval --lr 4
refused "unknown op 'sofmax', did you mean softmax?" gradcheck --op sofmax
refused "unknown option '-x', \`mixtape help\` lists them" -x
refused "unknown option '-v', did you mean -V?" -v
refused "mixtape: unknown option '--verison', did you mean --version?" --verison
refused "info: 'b' belongs to no option" info a b
refused "calibrate: unknown option '--step', did you mean --steps?" dwq --step 4
refused "calibrate: --text has no value, found --bits behind it" calibrate --text --bits 3
refused "eval: -m has no value" eval -m
refused "quantize: --out has no value" quantize --model "$model" --out=
refused "info: --model is required" info
refused "quantize: --out is required" quantize "$model"
refused "--model is empty" info --model ''
refused "--out is blank" quantize --model "$model" --out ' '
refused "--text is empty" eval --model "$model" --text ''
# shellcheck disable=SC2086
while IFS='|' read -r text arguments; do refused "$text" $arguments; done <<END
--bits is 7, expected 2, 3, 4, 5, 6 or 8|$quantize --bits 7
--bits is 3.5, expected 2, 3|$quantize --bits 3.5
--group-size is 0, expected 32, 64 or 128|quantize --model $model --out $work/new --group-size 0
--rounding is up, expected gpu or cpu|$quantize --mode up
--dtype is f8, expected auto, f32 or bf16|$generate --dtype f8
unknown option '--dtype'|$quantize --dtype f32
quantize: --bits is given twice, expected once|$quantize --bits 3 --q-bits 4
generate: --model is given twice, expected once|$generate $model
generate: --chat takes no value, found --chat=maybe|$generate --chat=maybe
quantize: --out has no value, found --jsn behind it; if that is the value: --out=--jsn|quantize --model $model --out --jsn
--out is -, expected a name: only reports go to standard output|quantize --model $model --group-size 32 --out -
info: --help takes no value, found --help=3|info --help=3
found --bpw and --size, expected one of them|calibrate --model $model --out $work/new --text $work/text --bpw 3 --size 4
expected one of them|$quantize --plan p --bits 4
--date has no effect: expected --chat beside it|$generate --date 2020-01-01
--date is soon, expected YYYY-MM-DD|$generate --chat --date soon
--date is 2024-02-30, expected a day of the calendar|$generate --chat --date 2024-02-30
--date is soon, expected YYYY-MM-DD|chat --model $model --date soon
--date is soon, expected YYYY-MM-DD|$dwq --data self --date soon
--date has no effect: expected --chats beside it|$dwq --date 2020-01-01
--date has no effect: expected --chats beside it|train --model-config c --tokenizer t --out $work/new --text $work/text --date 2020-01-01
--top-p has no effect: --temperature 0|$generate --temp 0 --top-p 0.3
--top-p has no effect: --temperature 0|$generate --temp 0 --top-p 0.5
--self-rows has no effect: expected --data self beside it|$dwq --self-rows 9
--max-tokens has no effect: the windows are those of --base|eval --model $model --base b --max-tokens 9
--length has no effect: the windows are those of --base|eval --model $model --base b --length 9
--json has no effect: --list runs nothing|gradcheck --list --json $work/new
--runs has no effect: --list runs nothing|gradcheck --list --runs 3
--steps is 0, expected a whole number, 1 or more|$dwq --steps 0
--steps is 1e3, expected a whole number|$dwq --steps 1e3
--batch is -1, expected a whole number, 1 or more|$dwq --batch -1
--lr is -1, expected a number|$dwq --lr -1
--lr is 0, expected a number|$dwq --lr 0
--lr is abc, expected a number|$dwq --lr abc
--lr is nan, expected a number|$dwq --lr nan
--lr is inf, expected a number|$dwq --lr inf
--lr is 1e30, expected a number|$dwq --lr 1e30
--temperature is nan, expected a number|$dwq --temperature nan
--temperature is 1e-30, expected a number|$dwq --temperature 1e-30
--top-k is -1, expected a whole number, 0 or more|$dwq --top-k -1
--clip is nan, expected a number|$dwq --clip nan
--clip is -1, expected a number|$dwq --clip -1
--validate-every is -1, expected a whole number|$dwq --validate-every -1
--recipe is worst, expected fast, good or best|$dwq --recipe worst
--fit is rtn, expected mlx, least-squares or gptq|$dwq --fit rtn
--train is all, expected nothing, scales, blocks or codes|$dwq --train all
--steps has no effect: --recipe fast trains nothing|$dwq --recipe fast --steps 5
--lr has no effect: --train nothing|$dwq --train nothing --lr 0.1
--recipe has no effect: --reference-compat says what is done|$dwq --reference-compat --recipe best
no matrix of the model would be quantized|quantize --model $model --out $work/new --group-size 128
--steps is 0, expected a whole number, 1 or more|train --model-config c --tokenizer t --out $work/new --steps 0
--lr is nan, expected a number|train --model-config c --tokenizer t --out $work/new --lr nan
--batch is 0, expected a whole number, 1 or more|train --model-config c --tokenizer t --out $work/new --batch 0
--rows is -1, expected a whole number, 0 or more|$dwq --rows -1
--rows is 99999999999999999999, expected a whole number|$dwq --rows 99999999999999999999
--validation-rows is 9223372036854775807, expected|$dwq --validation-rows 9223372036854775807
--report-rows is 0, expected a whole number, 1 or more|$dwq --report-rows 0
--self-rows is 0, expected a whole number, 1 or more|$dwq --self-rows 0
--length is 8, expected a whole number, 9 to 131073|$dwq --max-seq-length 8
--seed is -1, expected a whole number, 0 to|$dwq --seed -1
--seed is 99999999999999999999999, expected|$dwq --seed 99999999999999999999999
--count is 0, expected a whole number, 1 or more|$generate -n 0
--samples is 0, expected a whole number, 1 or more|$generate --samples 0
--temperature is -1, expected a number, 0 or 0.001 to 100|$generate --temp -1
--top-p is 1.5, expected a number, 0 to 1|$generate --top-p 1.5
--runs is 0, expected a whole number, 1|gradcheck --runs 0
--max-tokens is -1, expected a whole number|eval --model $model --text $work/text --max-tokens -1
is unknown, expected|$quantize --device gpu
END

expect 0 "mixtape 0." version
for word in --version -V; do [ "$("$mixtape" $word)" = "$output" ] || complain "$word doesn't say what version says"; done
[[ $output == *compiler* && $output == *cpu* ]] || complain "version names no compiler or backend: $output"

# help: within 80 columns, with the exit status, and the same by both names.
expect 0 "Commands:" help
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$output")
for command in '' $commands; do
  # shellcheck disable=SC2086
  expect 0 "Exit status: 0 done" $command --help
  [ "$("$mixtape" help $command)$("$mixtape" $command -h)" = "$output$output" ] || complain "help $command differs from $command --help"
  wide=$(awk 'length > 80' <<<"$output")
  [ -z "$wide" ] || complain "$command --help: wider than 80 columns: $wide"
done

only text
finish
