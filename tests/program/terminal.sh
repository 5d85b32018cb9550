#!/usr/bin/env bash
# What a terminal of any width shows, and logs and pipes get.
# usage: tests/program/terminal.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 100 >"$work/story"
run="calibrate --model $model --group-size 32 --text $work/story --steps 12 --batch 1 --length 64 --validation-rows 2 --report-rows 2"

# on_terminal COLUMNS: runs it on a terminal of that width; what that shows is in $work/shown.
on_terminal() {
  # shellcheck disable=SC2086
  TERM=${TERM_NAME:-xterm} tests/program/on_terminal.py "$1" "$mixtape" $run --out "$work/new$1" >"$work/shown" || complain "at $1 columns: status $?"
  rm -rf "$work/new$1"
}

for columns in 20 33 40 50 80 200; do
  on_terminal $columns
  # A progress line is what stands between a clearing and the next control character.
  lines=$(tr '\r' '\n' <"$work/shown" | grep -a -e $'^\033\\[K' | sed 's/\x1b\[K//' | grep -v 'validation loss')
  # Begin and end of each of four stages, however fast the machine is.
  [ "$(wc -l <<<"$lines")" -ge 8 ] || complain "$columns columns: no progress: $(cat -v "$work/shown")"
  wide=$(awk -v most="$columns" 'length >= most' <<<"$lines")
  [ -z "$wide" ] || complain "$columns columns: wider: $wide"
  for stage in evaluati trainin; do
    grep -q "^$stage.*[0-9]/[0-9]" <<<"$lines" || complain "$columns columns: $stage has lost its name: $lines"
  done
  # From 80 columns on with the time left of the whole run and the loss.
  [ $columns -lt 80 ] || grep -q "^training: 12/12 steps.* left, .*loss [0-9]" <<<"$lines" || complain "$columns columns: no loss: $lines"
  # Tables as wide as 79 columns, or a value a line.
  table=$(tr -d '\r' <"$work/shown" | sed -n '/^stage (validation rows)/,/^KL cut/p')
  [ -n "$table" ] || complain "$columns columns: no table: $(cat "$work/shown")"
  wide=$(awk -v most="$columns" 'length > most' <<<"$table")
  [ $columns -lt 40 ] || [ -z "$wide" ] || complain "$columns columns: a table wider: $wide"
  # All other lines too, but for names and what is to be copied.
  wide=$(tr -d '\r' <"$work/shown" | grep -av -e $'\033' -e '^[a-z]* *mixtape ' -e ' mlx_lm' -e '^wrote ' | awk -v most="$columns" 'length > most')
  [ $columns -lt 50 ] || [ -z "$wide" ] || complain "$columns columns: wider: $wide"
  [ $columns -ge 80 ] || grep -q '^             [a-z0-9]' <<<"$(grep -v mlx_lm "$work/shown")" || complain "$columns columns: no fact is folded: $(cat "$work/shown")"
  if [ $columns -lt 79 ]; then
    grep -qE '^  KL mean +[0-9.]+ \+-[0-9.]+$' <<<"$table" || complain "$columns columns: no value a line: $table"
  else
    grep -qE '^plain rounding( +[0-9.]+( \+-[0-9.]+)?){5}$' <<<"$table" || complain "$columns columns: no rows: $table"
  fi
  grep -q "12/12" <<<"$lines" || complain "$columns columns: the count is cut off: $lines"
done
TERM_NAME=dumb on_terminal 80
grep -q $'\033' "$work/shown" && complain "TERM=dumb: escapes: $(cat -v "$work/shown")"
rm "$work/shown"

# Warnings and errors are folded between words; a narrow table is what a wide terminal has.
tests/program/on_terminal.py 40 "$mixtape" eval "$model" --text "$work/none.txt" --length 33 >"$work/shown"
[ "$(wc -l <"$work/shown")" -ge 2 ] && [ "$(tr -d '\r' <"$work/shown" | grep '^mixtape' | wc -L)" -le 40 ] || complain "an error of 40 columns: $(cat "$work/shown")"
rm "$work/shown"

for bits in 3 4; do "$mixtape" quantize "$model" -o "$work/$bits" --bits $bits --group-size 32 >/dev/null 2>&1; done
for command in "info $work/3 --tensors" "eval $work/3 --teacher $model --text $work/story --length 33 --quiet" \
  "compare $work/3 $work/4 --teacher $model --text $work/story --length 33 --quiet"; do
  # shellcheck disable=SC2086
  tests/program/on_terminal.py 50 "$mixtape" $command >"$work/shown" || complain "$command at 50 columns: status $?"
  wide=$(tr -d '\r' <"$work/shown" | grep -v '/' | awk 'length > 50')
  [ -z "$wide" ] || complain "$command at 50 columns: wider: $wide"
done
rm -r "$work/shown" "$work/3" "$work/4"

# A log holds the lines in their order, without escapes.
# shellcheck disable=SC2086
"$mixtape" $run --out "$work/new" >"$work/log" 2>&1 || complain "a log: $(cat "$work/log")"
# Of each stage its begin and its end, and a line every ten seconds: not one for every tenth of the work.
many=$(sed -n 's/^\([a-z][a-z ,]*\): [0-9]*\/.*/\1/p' "$work/log" | sort | uniq -c | awk '$1 > 4')
[ -z "$many" ] || complain "many progress lines: $many in $(cat "$work/log")"
grep -q $'\033\|\r' "$work/log" && complain "escapes in a log: $(cat -v "$work/log")"
order=$(grep -nE '^device|^quantized|^training  |^evaluating initial|^training: |^evaluating result|^KL cut' "$work/log" | sed 's/:.*//' | tr '\n' ' ')
[ "$order" = "$(tr ' ' '\n' <<<"$order" | sort -n | tr '\n' ' ' | sed 's/^ *//')" ] || complain "a log out of order: $(cat "$work/log")"
grep -q '^device  ' <<<"$(head -n 1 "$work/log")" || complain "the first line isn't the device: $(cat "$work/log")"
wide=$(sed -n '/^stage/,/^KL cut/p' "$work/log" | awk 'length > 79')
[ -z "$wide" ] || complain "tables wider than a terminal: $wide"
first=$(grep -n -m 1 '^training: ' "$work/log" | sed 's/:.*//')
[ "$(grep -n '^training  ' "$work/log" | sed 's/:.*//')" -lt "$first" ] || complain "the plan comes after the work: $(cat "$work/log")"
rm -r "$work/new"

# A reader that is gone ends the program without a word.
# shellcheck disable=SC2086
for command in "info --tensors $model" "gradcheck --list" "$run --out $work/new"; do
  (sleep 0.3 && exec "$mixtape" $command 2>"$work/log") | true
  status=${PIPESTATUS[0]}
  [ "$status" = 1 ] || complain "mixtape $command | true: status $status, expected 1"
  grep -q '^mixtape: ' "$work/log" && complain "mixtape $command | true: $(cat "$work/log")"
done

only story log

# Controls in a text are shown on a terminal, and nothing else is done with them; a file gets them as they are.
"$mixtape" generate -m "$model" -p $'a\x1b[31mb' -n 1 --temp 0 >"$work/table" 2>/dev/null
grep -q $'a\x1b\[31mb' "$work/table" || complain "generate changes bytes: $(cat -v "$work/table")"
tests/program/on_terminal.py 80 "$mixtape" generate -m "$model" -p $'a\x1b[31mb' -n 1 --temp 0 >"$work/table"
grep -qF 'a\x1b[31mb' "$work/table" && ! grep -q $'\x1b\[31m' "$work/table" || complain "generate on a terminal: $(cat -v "$work/table")"
rm "$work/table"

# Without progress the table is all that comes, on a terminal and elsewhere.
story 60 >"$work/story"
errors=$("$mixtape" eval --quiet "$model" --text "$work/story" --length 33 2>&1 >"$work/table")
[ -z "$errors" ] || complain "eval --quiet: found $errors on standard error"
grep -q '^perplexity ' "$work/table" || complain "eval --quiet: $(cat "$work/table")"
errors=$("$mixtape" eval "$model" --text "$work/story" --length 33 2>&1 >/dev/null)
[[ $errors == *evaluating* ]] || complain "eval shows no progress: $errors"
rm "$work/story" "$work/table"

finish
