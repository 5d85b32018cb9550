#!/usr/bin/env bash
# Files whose names hold any byte, and standard streams that are closed.
# usage: tests/program/names.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 200 >"$work/story"
few="--group-size 32 --steps 1 --batch 2 --length 64 --validation-rows 8 --report-rows 4"

# A message is one line, and a terminal only shows it.
expect_line 2 'no\nsuch\x1b[31m\xc2\x9b: no such file' info $'no\nsuch\e[31m\xc2\x9b'
expect_line 2 'no\nsuch: no such file' eval -m "$model" --text $'no\nsuch'
for name in "a name" $'line\nbreak' -dash "it's" $'\xff' '$(touch oops)'; do
  mkdir "$work/in" "$work/old"
  cp -r "$model" "$work/old/$name"
  cp "$work/story" "$work/in/$name"
  output=$(cd "$work/in" && # shellcheck disable=SC2086
    "$mixtape" calibrate --model="$work/old/$name" --text="$name" $few --out="$name.new" --json="$name.json" 2>&1)
  [[ $output == *"KL cut by"* ]] || complain "calibrate, '$name': $output"
  # What is said to be tried works as it stands, in the card too.
  tried=$(sed -n 's/^try *mixtape \(.*\)/\1/p' <<<"$output")
  carded=$(sed -n 's/^mixtape \(generate .*\)/\1/p' "$work/in/$name.new/README.md")
  for arguments in "$tried" "$carded"; do
    output=$(cd "$work/in" && eval "\"\$mixtape\" $arguments -n 4" 2>/dev/null)
    [[ $output == "Once upon a time"* ]] || complain "'$name': $arguments: $output"
  done
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/in/$name.json" || complain "'$name': --json"
  left=$(cd "$work/in" && ls | wc -l)
  [ "$left" = "$(printf '%s\n' "$name" "$name.new" "$name.json" | wc -l)" ] || complain "'$name' left $(ls -b "$work/in")"
  rm -r "$work/in" "$work/old"
done

# Names that are no place for a model.
for name in - ./x/. x/..; do
  output=$(cd "$work" && "$mixtape" quantize "$model" --group-size 32 --out "$name" 2>&1) && complain "--out $name: status 0"
  [[ $output == "mixtape: --out is $name, expected a "* ]] || complain "--out $name: $output"
done

# Whatever streams are closed, nothing but the model gets into its files.
"$mixtape" quantize "$model" --group-size 32 --out "$work/whole" >/dev/null 2>&1
for closed in '2>&-' '<&- 2>&-' '<&- >/dev/null 2>&-'; do
  eval "\"\$mixtape\" quantize \"\$model\" --group-size 32 --out \"\$work/new\" $closed" >/dev/null
  cmp "$work/new/model.safetensors" "$work/whole/model.safetensors" || complain "with $closed: another model"
  rm -rf "$work/new"
done
for closed in '>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
  eval "\"\$mixtape\" quantize \"\$model\" --group-size 32 --out \"\$work/new\" $closed" 2>/dev/null
  found=$?
  [ $found = 1 ] || complain "with $closed: status $found"
  eval "\"\$mixtape\" eval \"\$model\" --text \"\$work/story\" --length 32 --max-tokens 64 --json \"\$work/json\" $closed" 2>/dev/null
  [ ! -e "$work/json" ] || python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/json" || complain "with $closed: --json"
  rm -f "$work/json"
done
rm -r "$work/whole"

only story
finish
