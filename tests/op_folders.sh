#!/usr/bin/env bash
# Every op folder is complete, and stands in ops.cmake once.
set -euo pipefail
cd "$1/mixtape/ops"
failed=0
for folder in */; do
  op=${folder%/}
  for piece in .h .cpp _cpu.cpp _oracle.h _test.cpp _bench.cpp; do
    if [ ! -f "$op/$op$piece" ]; then
      echo "mixtape/ops/$op lacks $op$piece"
      failed=1
    fi
  done
  if [ "$(grep -Ec "^mixtape_op\($op[ )]" ops.cmake)" != 1 ]; then
    echo "ops.cmake names $op $(grep -Ec "^mixtape_op\($op[ )]" ops.cmake) times, expected once"
    failed=1
  fi
  for word in "Shapes:" "Errors:"; do
    grep -q "$word" "$op/$op.h" || { echo "$op.h: the contract lacks '$word'"; failed=1; }
  done
done
exit $failed
