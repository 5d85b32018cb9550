#!/usr/bin/env bash
# The archive that cpack makes of a build: unpacked anywhere it brings all that it needs but glibc and libstdc++.
# usage: tests/package.sh SOURCE_DIR BUILD_DIR CXX
set -euo pipefail
source=$1 build=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "package: $*" >&2
  exit 1
}

cpack --config "$build/CPackConfig.cmake" -G TGZ -B "$work/made" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# As a user may have it: a folder whose name has a space, called through a link from another one.
unpacked="$work/un packed"
mkdir "$unpacked" "$work/bin"
tar -xzf "$work"/made/mixtape-*.tar.gz -C "$unpacked" --strip-components=1
ln -s "$unpacked/bin/mixtape" "$work/bin/mixtape"
program=$work/bin/mixtape
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
files=("$unpacked/bin/mixtape" "$unpacked"/lib*/libmixtape.so.*)
for file in "${files[@]}"; do
  ldd "$file" >"$work/needed"
  ! grep "not found" "$work/needed" || fail "$file lacks a library"
  outside=$(grep " => " "$work/needed" | grep -vF " $unpacked/" | grep -vE '^[[:space:]]*lib(c|m|gcc_s|stdc\+\+)\.so' || true)
  [ -z "$outside" ] || fail "$file takes from the machine: $outside"
done

# What docs/packages.md says of the oldest system that it runs on, which is so where it is built on Debian 12.
if [ "$(getconf GNU_LIBC_VERSION)" = "glibc 2.36" ]; then
  for floor in GLIBC_2.34 GLIBCXX_3.4.29; do
    newest=$(objdump -T "${files[@]}" "$unpacked"/lib*/mixtape/*.so.* | grep -oE "${floor%%_*}_[0-9.]+" | sort -V | tail -1)
    [ "$newest" = "$floor" ] || fail "needs $newest, expected $floor"
  done
fi

# A user's linker takes the package's libraries, not the machine's, those that they need in turn included.
pc=$(dirname "$(find "$unpacked" -name mixtape.pc)")
ln -s "$(dirname "$(dirname "$pc")")" "$work/prefix" # pkg-config's flags hold no space
libs=$(PKG_CONFIG_PATH=$work/prefix/${pc#"$(dirname "$(dirname "$pc")")/"} pkg-config --libs mixtape)
# shellcheck disable=SC2086
"$cxx" -x c++ - -o "$work/user" -Wl,--trace -Wl,--no-as-needed $libs <<<'int main() {}' >"$work/linked"
"$work/user"
outside=$(grep -E '/lib(dnnl|OpenCL|hwy|pcre2-8|utf8proc|fmt|gomp)\.so' "$work/linked" | grep -vF "$work/prefix/" || true)
[ -z "$outside" ] || fail "a user's program was linked with the machine's: $outside"

[ -e "$unpacked/share/man/man1/mixtape.1" ] || fail "the manual page is missing"
[ -n "$(find "$unpacked" -name LICENSE)" ] || fail "LICENSE is missing"
# A text for each library, for nlohmann-json and for CLI11.
libraries=$(find "$unpacked" -path '*/mixtape/*.so.*' | wc -l) texts=$(find "$unpacked" -name '*.copyright' | wc -l)
[ "$texts" -ge $((libraries + 2)) ] || ! command -v dpkg-query >/dev/null ||
  fail "found $texts licences of others, expected $((libraries + 2))"
