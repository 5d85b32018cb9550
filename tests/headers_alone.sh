#!/usr/bin/env bash
# Every header compiles alone, and twice. Most of what a header costs is what it includes: one that includes all of a
# `base` below is compiled on top of that base, read once. What is included first anyway hides nothing that is missing.
# usage: tests/headers_alone.sh SOURCE_DIR COMPILER FLAGS...
set -euo pipefail
cd "$1"
export compiler=$2
shift 2
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT
printf '%s\n' "$@" -O0 -g0 >"$work/flags"

# The largest that fits is taken.
bases=(
  mixtape/testing/op_check.h
  mixtape/autograd/tape.h
  mixtape/backend/gpu/launcher.h
  mixtape/runtime/kernel_registry.h
  mixtape/runtime/buffer.h
  mixtape/core/error.h
  nlohmann/json_fwd.hpp
  complex,vector
  functional,string,vector
  string,vector
  vector
  string
)
headers=$(find mixtape -name '*.h' | grep -vE -e '-inl\.h$|(language|tensor|group_products)_(cuda|opencl)\.h$|/cluster\.h$' | sort)

# "<header> <number of its base, or none>"
# shellcheck disable=SC2086
awk -v bases="${bases[*]}" '
  match($0, /^#include [<"][^>"]*/) { includes[FILENAME] = includes[FILENAME] " " substr($0, 11, RLENGTH - 10) }
  { files[FILENAME] }
  function reach(file, seen, i, parts, n) {
    if (file in seen) return
    seen[file]
    n = split(includes[file], parts, " ")
    for (i = 1; i <= n; ++i) reach(parts[i], seen)
  }
  function base_of(file, seen, i, j, n, words, members, fits) {
    reach(file, seen)
    delete seen[file]
    n = split(bases, words, " ")
    for (i = 1; i <= n; ++i) {
      fits = 1
      for (j = split(words[i], members, ","); j > 0; --j) fits = fits && members[j] in seen
      if (fits) return i - 1
    }
    return "none"
  }
  END { for (file in files) { split("", seen); print file, base_of(file, seen) } }' $headers | sort >"$work/units"
[ "$(wc -l <"$work/units")" = "$(wc -w <<<"$headers")" ]

precompile() {
  local flags
  mapfile -t flags <"$work/flags"
  tr ',' '\n' <<<"$2" | sed 's/.*/#include <&>/' >"$work/base_$1.h"
  "$compiler" "${flags[@]}" -w -x c++-header "$work/base_$1.h" -o "$work/base_$1.h.gch"
}
compile() {
  local flags
  mapfile -t flags <"$work/flags"
  [ "$2" = none ] || flags+=(-include "$work/base_$2.h" -Winvalid-pch)
  printf '#include "%s"\n#include "%s"\n' "$1" "$1" | "$compiler" "${flags[@]}" -fsyntax-only -x c++ - ||
    { echo "$1 does not compile alone"; exit 1; }
}
export -f precompile compile

for i in "${!bases[@]}"; do echo "$i ${bases[i]}"; done |
  xargs -P "$(nproc)" -L 1 bash -euc 'precompile "$0" "$1"'
xargs -P "$(nproc)" -L 1 bash -euc 'compile "$0" "$1"' <"$work/units"
