#!/usr/bin/env bash
# Completions and the manual page say what --help says.
# usage: tests/program/completions.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
for shell in bash zsh fish; do
  "$mixtape" completions $shell >"$work/$shell" || complain "completions $shell: status $?"
  if command -v $shell >/dev/null; then $shell -n "$work/$shell" || complain "completions $shell: no script of it"; fi
done
"$mixtape" completions --shell bash | cmp - "$work/bash" || complain "--shell bash prints something else"
expect_line 2 "--shell is csh, expected bash, zsh or fish" completions csh

# offers WANTED WORDS...: what bash offers for the last word.
offers() {
  local wanted=$1 found
  shift
  found=$(bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mixtape; echo "${COMPREPLY[*]}"' "$work/bash" "$@")
  [ "$found" = "$wanted" ] || complain "bash offers '$found' for '$*', expected '$wanted'"
}
offers "calibrate convert compare chat completions" mixtape c
offers "eval" mixtape help ev
offers "fast good best" mixtape calibrate --recipe ""
offers "q4_0 q4_1 q4_k_s q4_k_m" mixtape quantize --type q4
offers "--recipe" mixtape calibrate --rec
offers "" mixtape eval ""

expect 0 '.TH MIXTAPE 1' man
page=$output
for command in $("$mixtape" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  grep -qF ".SS mixtape $command" <<<"$page" || complain "the manual has no $command"
  for option in $("$mixtape" help "$command" | grep -oE '^  (-[a-zA-Z], )?--[a-z][-a-z0-9]*' | grep -oE -e '--[a-z].*'); do
    grep -qF -e "${option//-/\\-}" <<<"$page" || complain "the manual has no $option of $command"
    grep -qF -e "$option" "$work/bash" || complain "bash does not know $option of $command"
    grep -qF -e "$option" "$work/zsh" || complain "zsh does not know $option of $command"
    grep -qE -e "-l ${option#--} " "$work/fish" || complain "fish does not know $option of $command"
  done
done

only bash zsh fish
finish
