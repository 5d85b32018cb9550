#!/usr/bin/env bash
# Every edge case that is known to have broken other systems has a test named after it.
set -euo pipefail
cd "$1"
ids="A1 A2 A4 A6 A8 A10 A11 A12 B1 B2 C1 C5 C6 C7 C9 C10 C11 C12 C14 C16 D1 D2 D3 D5 E1 E3 E4 F1 F2 F4 F5 G3 G4 G5
H1 H2 H4 H5 H8 H11 H13 H14 H15 I1 I2 I4 I6 I7 I8 I9 J1 J2 J4 J5 J6 K1 K3 K4 K5"
tests=$(grep -rhoE 'TEST(_P|_F)?\([A-Za-z0-9]+, [A-K][0-9]+[A-Za-z0-9_]*' mixtape --include=*_test.cpp | sed 's/.*, /_/; s/$/_/')
failed=0
for id in $ids; do
  grep -q "_${id}_" <<<"$tests" || { echo "no test is named after edge case $id"; failed=1; }
done
exit $failed
