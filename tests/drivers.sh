#!/usr/bin/env bash
# What the program says where the GPU's driver is missing, too old, without a card, or where the card is full or
# lost; the CPU works all the same.
#   drivers.sh SOURCE PROGRAM C_COMPILER
set -euo pipefail
source=$1 program=$2 compiler=$3
model=$source/models/tiny-moe
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

fail() {
  echo "drivers: $*" >&2
  exit 1
}

# with CASE ARGUMENTS...: runs the program with that driver; its output goes to $temp/out.
with() {
  local case=$1
  shift
  mkdir -p "$temp/$case"
  if [ ! -e "$temp/$case/libcuda.so.1" ]; then
    "$compiler" -Wall -Wextra -O1 -shared -fPIC -D"$case" "$source/tests/fake_driver/fake_driver.c" \
      -o "$temp/$case/libcuda.so.1"
  fi
  LD_LIBRARY_PATH="$temp/$case:${LD_LIBRARY_PATH:-}" "$program" "$@" >"$temp/out" 2>&1
}

# expect CASE TEXT: asked for the card, the program fails with one error that has the text, and writes nothing.
expect() {
  local case=$1 text=$2 status=0
  with "$case" quantize --model "$model" --out "$temp/made" --device cuda || status=$?
  [ "$status" = 1 ] || fail "$case: status $status, expected 1; $(cat "$temp/out")"
  [ "$(grep -c '^mixtape: ' "$temp/out")" = 1 ] || fail "$case: expected one error, found: $(cat "$temp/out")"
  grep -q "^mixtape: .*$text" "$temp/out" || fail "$case: expected '$text', found: $(cat "$temp/out")"
  [ ! -e "$temp/made" ] || fail "$case: something was written"
}

expect TOO_OLD "the driver supports CUDA 11.4, expected 12.0 or newer"
expect NO_CARD "the driver does not start: no card was found"
if with LOST doctor && grep -q "built without nvcc" "$temp/out"; then
  expect FULL "built without nvcc"
else
  expect FULL "cannot allocate .* bytes; .* bytes are live, .* of .* are free"
  expect LOST "the card was lost (719)"
fi
# doctor VERDICT CASE: doctor ends well and gives that verdict.
doctor() {
  with "$2" doctor || fail "$2: doctor: $(cat "$temp/out")"
  grep -qE "^verdict +ready, on the processor alone \(.*$1" "$temp/out" || fail "$2: expected '$1' in the verdict of: $(cat "$temp/out")"
}
doctor "the driver supports CUDA 11.4, expected 12.0 or newer" TOO_OLD
doctor "the driver does not start: no card was found" NO_CARD
doctor "built without nvcc|cuda:0 cannot be used, take --device cpu" LOST
for case in TOO_OLD NO_CARD; do
  with "$case" quantize --model "$model" --out "$temp/on_cpu_$case" --device auto || fail "$case: auto: $(cat "$temp/out")"
done
cmp "$temp/on_cpu_TOO_OLD/model.safetensors" "$temp/on_cpu_NO_CARD/model.safetensors"
echo "drivers: ok"
