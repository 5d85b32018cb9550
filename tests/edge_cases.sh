#!/usr/bin/env bash
# Every edge case of edge_cases.md has a test named after it, and every ID in a test's name stands there once.
set -euo pipefail
cd "$1"
ids=$(sed -nE 's/^- \*\*([A-Z][0-9]+)\*\* .+\.$/\1/p' tests/edge_cases.md)
tests=$(grep -rhoE 'TEST(_P|_F)?\([A-Za-z0-9]+, ([A-Z][0-9]+_)+' mixtape --include=*_test.cpp | sed 's/.*, //' | tr _ '\n' | sort -u)
failed=0
complain() { echo "$1"; failed=1; }
[ -n "$ids" ] || complain "tests/edge_cases.md names no edge case"
[ "$(wc -l <<<"$ids")" = "$(grep -c '^- ' tests/edge_cases.md)" ] || complain "tests/edge_cases.md: an entry is not '- **ID** Sentence.'"
for id in $(uniq -d <<<"$(sort <<<"$ids")"); do complain "tests/edge_cases.md names $id twice"; done
for id in $ids; do grep -qx "$id" <<<"$tests" || complain "no test is named after edge case $id"; done
for id in $tests; do
  grep -qx "$id" <<<"$ids" || complain "a test is named after $id, which tests/edge_cases.md doesn't describe"
done
exit $failed
