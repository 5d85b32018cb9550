#!/usr/bin/env bash
# grep -q ends at the first match; a command that still writes to it dies of SIGPIPE, or doesn't, by chance, and under
# pipefail the pipe fails with it. So no script ends a pipe with it; grep -q PATTERN <<<"$(COMMAND)" reads no pipe.
set -uo pipefail
cd "$1"
found=$(grep -rnE '[^|]\| *(! *)?grep -[a-zA-Z]*q' run .ci tests bench docs fuzz models --include=*.sh --include=run)
[ -z "$found" ] || { echo "a pipe ends with grep -q: $found"; exit 1; }
