#!/usr/bin/env bash
# Text files as they come: encodings, line ends, sizes. What is wrong with one is said in a line, with status 2, before
# a model is loaded.
# usage: tests/program/texts.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 40 >"$work/story"
few="--length 33 --validation-rows 2 --report-rows 2 --steps 2 --batch 2"
eval="eval --model $model --length 33"
calibrate="calibrate --model $model --group-size 32 --out $work/new $few"
train="train --model-config $model/config.json --tokenizer $model --out $work/new $few"

# Rows of one length everywhere: as many predictions of a row in eval as there are positions in calibrate.
expect 0 "positions        " $eval --text "$work/story" --max-tokens 330
[ "$(awk '/^positions/ { print $2 }' <<<"$output")" = 320 ] || complain "eval: 10 rows of 33 tokens: $output"
expect 0 "validation   2 rows, 64 positions" $calibrate --text "$work/story" --dry-run
expect 0 "warning: --max-tokens is 99999, found " $eval --text "$work/story" --max-tokens 99999
expect_line 2 "for one row; raise --max-tokens, which is 20, or lower --length, which is 33" $eval --text "$work/story" --max-tokens 20
head -n 3 "$work/story" >"$work/text"
expect_line 2 "for one row; give more text, or lower --length, which is 256" eval --model "$model" --length 256 --text "$work/text" --max-tokens 9999

# Marks and line ends that say nothing.
expect 0 "perplexity" $eval --text "$work/story"
reference=$(grep -E '^(positions|mean nll|perplexity)' <<<"$output")
printf '\xef\xbb\xbf' | cat - "$work/story" >"$work/text"
for change in cat 's/$/\r/'; do
  [ "$change" = cat ] || sed "$change" "$work/story" >"$work/text"
  expect 0 "$reference" $eval --text "$work/text"
done

# wrong TEXT: $work/text is refused by every command that reads text.
wrong() {
  for command in "$eval" "$calibrate" "$calibrate --dry-run" "$train"; do
    # shellcheck disable=SC2086
    expect_line 2 "$1" $command --text "$work/text"
    [[ $output != *"input statistics"* && ! -e $work/new ]] || complain "mixtape $command: began: $output"
  done
}
for encoding in utf-16 utf-16-be utf-16-le; do
  python3 -c 'import sys; open(sys.argv[3], "wb").write(open(sys.argv[2]).read().encode(sys.argv[1]))' $encoding "$work/story" "$work/text"
  case $encoding in
    utf-16) wrong "$work/text: found UTF-16 text, expected UTF-8; \`iconv" ;;
    utf-16-be) wrong "$work/text: byte 0 is NUL" ;;
    utf-16-le) wrong "$work/text: byte 1 is NUL" ;;
  esac
done
printf '\xfe\xff\0a' >"$work/text"
wrong "$work/text: found UTF-16 text"
{ cat "$work/story"; printf 'a\0b'; } >"$work/text"
wrong "$work/text: byte $(($(stat -c %s "$work/story") + 1)) is NUL"
printf 'caf\xe9' >"$work/text"
wrong "$work/text: byte 3 begins no valid UTF-8 sequence"
: >"$work/text"
wrong "$work/text: found an empty file, expected text"
printf a >"$work/text"
wrong "$work/text: found 1 token, expected at least 32 for one row"
rm "$work/text"
wrong "$work/text: no such file or directory"
mkdir "$work/text"
wrong "$work/text: found a directory, expected a file"
rmdir "$work/text"

# Of several texts none may be empty, standard input that is read twice among them; devices may never end.
: >"$work/text"
expect_line 2 "$work/text: found an empty file, expected text" $eval --text "$work/story" --text "$work/text"
expect_line 2 "$work/text: found no line, expected chats or texts" $calibrate --chats "$work/text"
rm "$work/text"
output=$(cat "$work/story" | "$mixtape" $eval --text /dev/stdin --text /dev/stdin 2>&1)
[[ $output == *"/dev/stdin: found an empty file, expected text" ]] || complain "standard input twice: $output"
for device in /dev/zero /dev/full /dev/urandom; do
  expect_line 2 "$device: found a device, expected a file, pipe or terminal" $eval --text $device
done
expect_line 2 "/dev/null: found an empty file, expected text" $eval --text /dev/null

# One line of a megabyte is text like any other.
python3 -c 'print("Once upon a time " * 60000)' >"$work/text"
expect 0 "perplexity" $eval --max-tokens 3300 --text "$work/text"
rm "$work/text"

# A text that the system doesn't give is status 1.
echo words >"$work/text"
chmod 000 "$work/text"
chmod 755 "$work"
[ "$(id -u)" != 0 ] || chown 65534 "$work/text" "$work"
if as_user "$mixtape" version >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  output=$(as_user "$mixtape" $eval --text "$work/text" 2>&1)
  found=$?
  [[ $found = 1 && $output == *"$work/text: cannot open: Permission denied"* ]] || complain "a locked text: status $found: $output"
fi
rm -f "$work/text"

only story
finish
