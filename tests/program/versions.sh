#!/usr/bin/env bash
# A program beside the library of another commit says so and does nothing.
# usage: tests/program/versions.sh SOURCE_DIR MIXTAPE C_COMPILER
source "$(dirname "$0")/lib.sh"
cat >"$work/other.c" <<END
const char* other(void) __asm__("_ZN7mixtape14library_commitEv");
const char* other(void) { return "another"; }
END
"$3" -shared -fPIC "$work/other.c" -o "$work/other.so" || exit 1
expect 0 "mixtape 0." version
for command in version "info $model" "quantize $model --out $work/new"; do
  # shellcheck disable=SC2086
  output=$(LD_PRELOAD=$work/other.so ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 "$mixtape" $command 2>&1)
  found=$?
  [[ $found = 1 && $output == "mixtape: the program is of commit "*", libmixtape of commit another, expected both of one commit" ]] ||
    complain "mixtape $command: status $found: $output"
done
only other.c other.so
finish
