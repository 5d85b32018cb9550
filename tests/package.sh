#!/usr/bin/env bash
# The archive that cpack makes of a build: unpacked anywhere it brings all that it needs but glibc and libstdc++.
# usage: tests/package.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "package: $*" >&2
  exit 1
}

cpack --config "$build/CPackConfig.cmake" -G TGZ -B "$work/made" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mkdir "$work/unpacked"
tar -xzf "$work"/made/mixtape-*.tar.gz -C "$work/unpacked" --strip-components=1
program=$work/unpacked/bin/mixtape
unset LD_LIBRARY_PATH

# says TEXT ARGUMENTS...: the program ends well and prints a line that begins so.
says() {
  local text=$1 output
  shift
  output=$("$program" "$@" 2>&1) || fail "$*: $output"
  grep -q "^$text" <<<"$output" || fail "$*: expected '$text', found: $output"
}
says "mixtape 0" --version
says "verdict *ready" doctor
says "" info "$source/models/tiny-moe"

# Every library is one of the package's, or of those that are on every machine.
for file in "$program" "$work"/unpacked/lib*/libmixtape.so.*; do
  ldd "$file" >"$work/needed"
  ! grep "not found" "$work/needed" || fail "$file lacks a library"
  outside=$(awk '$2 == "=>" {print $1, $3}' "$work/needed" | grep -v " $work/unpacked/" |
    grep -vE '^lib(c|m|gcc_s|stdc\+\+)\.so' || true)
  [ -z "$outside" ] || fail "$file takes from the machine: $outside"
done
[ -e "$work/unpacked/share/man/man1/mixtape.1" ] || fail "the manual page is missing"
[ -n "$(find "$work/unpacked" -name LICENSE)" ] || fail "LICENSE is missing"
