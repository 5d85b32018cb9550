#!/usr/bin/env bash
# Every command, and every option that a command's --help names, occurs in a test of the program.
# usage: tests/program/coverage.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
tests=$(cat tests/*.sh tests/program/*.sh tests/CMakeLists.txt docs/numerics.sh | grep -v '^ *#')

expect 0 "Commands:" help
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$output")
[ "$(wc -w <<<"$commands")" -ge 9 ] || complain "found only the commands $commands"
for command in $commands; do
  grep -qE "(^|[^-a-z])$command([^-a-z]|$)" <<<"$tests" || complain "no test runs mixtape $command"
  options=$("$mixtape" help "$command" | grep -E '^  -' | sed 's/   .*//' | grep -oE -e '--?[a-zA-Z][-a-z]*')
  [ -n "$options" ] || complain "mixtape help $command lists no option"
  for option in $options; do
    grep -qE -e "(^|[^-a-zA-Z])$option([^-a-zA-Z]|$)" <<<"$tests" || complain "no test uses $option of mixtape $command"
  done
done
only
finish
