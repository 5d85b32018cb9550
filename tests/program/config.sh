#!/usr/bin/env bash
# Options from a file (--config), and the log of a run (--log-file).
# usage: tests/program/config.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
file=$work/run.toml

# says LINES...: the file of options.
says() { printf '%s\n' "$@" >"$file"; }

# made BITS: the model that the last command wrote.
made() {
  expect 0 "$1 bits" info "$work/new"
  rm -rf "$work/new"
}

says '# three bits' "model = \"$model\"" 'bits = 3' 'group-size = 32' '[eval]' 'length = 40' '[quantize]' 'rounding = cpu'
expect 0 "wrote        $work/new" quantize --config "$file" --out "$work/new"
made 3
expect 0 "wrote" quantize "--config=$file" --out "$work/new" --bits 4 # the command line wins, by whatever name
made 4
expect 0 "wrote" quantize --out "$work/new" --q-bits 4 --config "$file" -m "$model"
made 4
expect 2 "quantize: --out is required" quantize --config "$file"
sed -i 's/$/\r/' "$file" # lines of Windows
expect 0 "wrote" quantize --config "$file" --out "$work/new"
made 3

# Lists, flags, and what an option of the command line excludes.
says "text = [\"$work/story\", \"$work/other\"]" 'dry-run = true' 'stream-teacher = false' 'group-size = 32' 'length = 32' 'bits = 3' \
  'validation-rows = 2' 'report-rows = 2'
story 80 | sed 1,20d >"$work/other"
expect 0 "peak memory" calibrate "$model" --out "$work/new" --config "$file"
[[ $output == *"$work/story"*"$work/other"* ]] || complain "a list: $output"
says "text = $work/story" 'dry-run = true' 'bits = 3' 'length = 32' 'validation-rows = 2' 'report-rows = 2'
expect 0 "peak memory" dwq "$model" --out "$work/new" --config "$file" --bpw 11.5
expect 0 "peak memory" dwq "$model" --out "$work/new" --config "$file" --group-size 32
: >"$file"
expect 0 "wrote" quantize "$model" --group-size 32 --out "$work/new" --config "$file" # an empty file says nothing
rm -r "$work/new"

# refused TEXT LINES...: status 2, one line, which names the file.
refused() {
  local text=$1
  shift
  says "$@"
  expect_line 2 "$file: $text" quantize "$model" --out "$work/new" --config "$file"
}
refused "unknown option '--bit', did you mean --bits?" 'bit = 3'
refused "unknown option '--frobnicate', \`mixtape help quantize\` lists them" 'frobnicate = 3'
refused "unknown option '--frobnicate'" '[quantize]' 'frobnicate = 3'
refused "unknown option '--config'" "config = $file"
refused "unknown option '--help'" 'help = true'
refused "unknown section 'quantise', did you mean quantize?" '[quantise]' 'bits = 3'
refused "unknown section 'quantize.more'" "[quantize.more]" "bits = 3"
refused "--bits is 7, expected 2, 3, 4, 5, 6 or 8" 'bits = 7'
refused "--q-bits is many, expected 2" 'q-bits = many'
refused "--mode is up, expected gpu or cpu" 'mode = up'
refused "--threads is 0, expected a whole number, 1 to 1024" 'threads = 0'
refused "--q-bits is given twice, expected once" 'bits = 3' 'q-bits = 4'
refused "--bits has 2 values, expected one" 'bits = 3 4'
refused "--bits has no value" 'bits = ""'
refused "--smaller-groups is maybe, expected true or false" 'smaller-groups = maybe'
refused "found JSON, expected lines such as bits = 3" '{"bits": 3}'
expect_line 2 "$work/absent: no such file or directory" quantize "$model" --out "$work/new" --config "$work/absent"
expect_line 2 "$work: found a directory, expected a file" quantize "$model" --out "$work/new" --config "$work"
expect_line 2 "quantize: --config has no value" quantize "$model" --out "$work/new" --config
expect_line 2 "--config is given twice" quantize "$model" --out "$work/new" --config "$file" --config "$file"
head -c 3000 tests/data/stories260k/model.safetensors >"$file"
expect_line 2 "$file: found a NUL byte" quantize "$model" --out "$work/new" --config "$file"
expect_line 2 "unknown option '--config'" --config "$file"
expect_line 2 "(a model's config.json is --model-config)" train --config "$model/config.json" --tokenizer "$model" --text "$work/story" \
  --out "$work/new"
says 'op = softmax' 'runs = 1' # every command has it
expect 0 "1 op," gradcheck --config "$file"

# The log has what goes to standard error, and progress though it isn't shown; the table stays where it was.
log=$work/log
run="eval $model --text $work/story --length 33 --log-file $log"
# shellcheck disable=SC2086
{
  expect 0 "perplexity" $run --quiet
  [[ $output != *evaluating* ]] || complain "--quiet with a log: $output"
  grep -qE '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} mixtape [0-9].*: mixtape eval --model .* --quiet' <<<"$(head -n 1 "$log")" || complain "the log begins: $(cat "$log")"
  grep -qE '^[0-9: -]{20}evaluating: [0-9]+/[0-9]+ tokens' "$log" || complain "no progress in the log: $(cat "$log")"
  ! grep -q perplexity "$log" || complain "the table is in the log: $(cat "$log")"
  before=$(wc -l <"$log")
  expect 2 "no such file or directory" ${run/$work\/story/$work\/absent}
  [ "$(wc -l <"$log")" = $((before + 2)) ] || complain "a second run's log: $(cat "$log")"
  grep -q "mixtape: $work/absent: no such file or directory" <<<"$(tail -n 1 "$log")" || complain "an error isn't in the log: $(cat "$log")"
  # On a terminal, plain lines all the same.
  rm "$log"
  TERM=xterm tests/program/on_terminal.py 60 "$mixtape" $run >"$work/shown"
  grep -q $'\033' "$work/shown" || complain "no terminal: $(cat "$work/shown")"
  ! grep -q $'\033\|\r' "$log" || complain "escapes in a log: $(cat -v "$log")"
  grep -q 'evaluating: .* tokens' "$log" || complain "no progress in the log: $(cat "$log")"
  # The log of another run goes on; nothing is put behind what is no log.
  for other in "$work/story" "$model/model.safetensors" "$model/config.json"; do
    cp "$other" "$work/kept"
    expect_line 2 "--log-file: $work/kept is no log of mixtape, expected one or a new name" ${run/$log/$work\/kept}
    cmp -s "$other" "$work/kept" || complain "$other was written over"
  done
  expect_line 2 "--log-file: $work is a directory, expected a file" ${run/$log/$work}
  expect_line 1 "--log-file: $work/nodir/log: cannot open: No such file or directory" ${run/$log/$work\/nodir\/log}
  expect_line 2 "--log-file is empty" eval "$model" --log-file ''
  expect 0 "perplexity" ${run/$log/\/dev\/null}
  # A disk that is full costs the log, which one line says; so does a limit on its size.
  expect 0 "perplexity" ${run/$log/\/dev\/full}
  [ "$(grep -c "^mixtape: warning: --log-file: /dev/full: cannot write: No space left on device; the log ends here" <<<"$output")" = 1 ] ||
    complain "a full disk: $output"
  (
    ulimit -f 1
    for _ in 1 2 3 4 5 6; do expect 0 "perplexity" $run; done
    [[ $output == *"--log-file: $log: cannot write: File too large; the log ends here"* ]] || complain "a log of a limited size: $output"
    exit $failed
  ) || failed=1
}
only story other run.toml log shown kept
finish
