# What the scripts that test the program share. Sourced with: SOURCE_DIR MIXTAPE
set -uo pipefail
cd "$1"
mixtape=$(realpath "$2")
model=$PWD/tests/data/stories260k
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
  echo "$*"
  failed=1
}

# expect STATUS TEXT ARGUMENTS...: the program ends with the status and says the text; both streams are in $output.
expect() {
  local status=$1 text=$2 found
  shift 2
  output=$("$mixtape" "$@" 2>&1 </dev/null)
  found=$?
  if [ $found != "$status" ] || [[ $output != *"$text"* ]]; then
    complain "mixtape $*: status $found, expected $status and '$text' in: $output"
  fi
}

# expect_line STATUS TEXT ARGUMENTS...: the same, and the text is in the only line that says what is wrong.
expect_line() {
  expect "$@"
  [ "$(grep -c '^mixtape: ' <<<"$output")" = 1 ] || complain "mixtape ${*:3}: expected one line of error, found: $output"
  [ "$(tail -n 1 <<<"$output" | wc -c)" -lt 400 ] || complain "mixtape ${*:3}: a long line: $output"
}

# wait_for TEXT FILE: until the text is in the file, five minutes at most: in an emulator a step takes its time.
wait_for() {
  local i
  for i in $(seq 3000); do
    grep -q -- "$1" "$2" 2>/dev/null && return
    sleep 0.1
  done
  complain "'$1' didn't come in: $(cat "$2")"
}

# only NAMES...: nothing else is in $work.
only() {
  local left
  left=$(cd "$work" && find . -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | grep -vxF "$(printf '%s\n' "$@")" | tr '\n' ' ')
  [ -z "$left" ] || complain "left behind: $left"
}

# as_user COMMAND...: as somebody without root's rights, who owns $work.
as_user() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
  else
    "$@"
  fi
}

# parity_model NAME PRE: $work/parity is that model of tests/data/parity with a tokenizer, and computes what llama.cpp
# does, which has no setting for the scale of gemma3's scores, phi3's window or gpt_oss's yarn without whole pairs, and
# takes longrope's factors of long sequences for a prompt too: here every prompt is one. (It knows tokens by heart of
# models whose name, the folder's, is phi3.)
parity_model() {
  python3 tests/program/give_tokenizer.py "tests/data/parity/$1" "$work/parity" "$2"
  sed -i -e 's/"query_pre_attn_scalar": 40/"query_pre_attn_scalar": 24/' -e 's/"sliding_window": 6/"sliding_window": null/' \
    -e 's/"truncate": false/"truncate": true/' \
    -e 's/"original_max_position_embeddings": 12/"original_max_position_embeddings": 8/' "$work/parity/config.json"
}

story() { for i in $(seq "$1"); do echo "Once upon a time there was a cat number $i who liked to play."; done; }

finish() { exit $failed; }
