#!/usr/bin/env bash
# Every op folder is complete and stands in ops.cmake once, its contract has all parts, and every tape function
# has registered checks.
set -euo pipefail
cd "$1/mixtape/ops"
failed=0
for folder in */; do
  op=${folder%/}
  for piece in .h .cpp _oracle.h _check.cpp _test.cpp _bench.cpp; do
    if [ ! -f "$op/$op$piece" ]; then
      echo "mixtape/ops/$op lacks $op$piece"
      failed=1
    fi
  done
  compgen -G "$op/*_cpu.cpp" >/dev/null || { echo "mixtape/ops/$op lacks host kernels, *_cpu.cpp"; failed=1; }
  if [ "$(grep -Ec "^mixtape_op\($op[ )]" ops.cmake)" != 1 ]; then
    echo "ops.cmake names $op $(grep -Ec "^mixtape_op\($op[ )]" ops.cmake) times, expected once"
    failed=1
  fi
  grep -q "\"mixtape/ops/$op/$op.h\"" ../mixtape.h || { echo "mixtape/mixtape.h lacks $op"; failed=1; }
  grep -q "{\"$op[_\"]" ../../tests/argument_rows.cpp || { echo "tests/argument_rows.cpp lacks $op"; failed=1; }
  # Each marker begins a line of the contract; what continues it is indented.
  for header in "$op/$op.h" $(grep -lE '^// Errors:' "$op"/*.h | grep -v "^$op/$op.h$" || true); do
    contract=$(sed '/#pragma once/,$d' "$header")
    for marker in "Shapes:" "Saved for backward:" "Deterministic" "Accuracy" "Errors:"; do
      grep -q "^// $marker" <<<"$contract" || { echo "$header: no line begins with '// $marker'"; failed=1; }
    done
    if grep -E '[^/ ] +(Saved for backward:|Deterministic[.:]|Accuracy[:,]|Errors:)' <<<"$contract"; then
      echo "$header: a marker stands within a line of the contract"
      failed=1
    fi
  done
  checked=$(cat /dev/null "$op"/*_check.cpp 2>/dev/null | sed -n 's/^MIXTAPE_OP_CHECKS(\([a-z0-9_]*\),.*/\1/p' || true)
  [ -n "$checked" ] || { echo "mixtape/ops/$op registers no checks"; failed=1; }
  for function in $(sed -nE 's/^[A-Z][A-Za-z]+ ([a-z0-9_]+)\(.*\b(Quantized)?Var>?&.*/\1/p' "$op"/*.h | sort -u); do
    grep -qx "$function" <<<"$checked" || { echo "mixtape/ops/$op registers no checks of $function"; failed=1; }
  done
done
exit $failed
