#!/usr/bin/env bash
# Who may include whom: each folder under mixtape/ lists the folders that it may name in an #include.
set -euo pipefail
cd "$1"
failed=0

# check FOLDER ALLOWED...: every "mixtape/..." include of FOLDER's files starts with an allowed prefix.
check() {
  local folder=$1 file include allowed ok
  shift
  while IFS=: read -r file include; do
    ok=0
    for allowed in "$@"; do case $include in "$allowed"*) ok=1 ;; esac; done
    if [ $ok = 0 ]; then
      echo "$file includes $include; $folder may include only: $*"
      failed=1
    fi
  done < <(find "$folder" -name '*.h' -o -name '*.cpp' -o -name '*.cu' | sort | grep -Ev '_(test|bench)\.cpp$|_check\.(h|cpp)$' |
             xargs -r grep -Ho '#include "mixtape/[^"]*"' | sed 's/#include "//; s/"$//' || true)
}

base="mixtape/core/ mixtape/runtime/"
check mixtape/core mixtape/core/
check mixtape/runtime $base
check mixtape/autograd $base mixtape/autograd/
check mixtape/backend/cpu $base mixtape/backend/cpu/
check mixtape/backend/gpu $base mixtape/backend/gpu/ mixtape/backend/sim/machine.h
check mixtape/backend/cuda $base mixtape/backend/gpu/ mixtape/backend/cuda/
check mixtape/backend/sim $base mixtape/backend/gpu/ mixtape/backend/sim/
# An op may include the headers of the ops that ops.cmake says it uses, of no other.
while read -r op uses; do
  # shellcheck disable=SC2046,SC2086
  check mixtape/ops/$op $base mixtape/autograd/ $(printf 'mixtape/ops/%s/ ' $op $uses) mixtape/backend/cpu/ mixtape/backend/gpu/
done < <(sed -nE 's/^mixtape_op\(([^)]*)\)$/\1/p' mixtape/ops/ops.cmake)
check mixtape/io $base mixtape/io/
# A model type is named in its own file alone.
if grep -rlE '"(llama|mistral|qwen[0-9a-z_]*|gemma[0-9a-z_]*|smollm3|olmo2|granite|phi3|gpt_oss)"' mixtape/nn mixtape/quant mixtape/calib mixtape/io cli --include=*.cpp --include=*.h |
  grep -vE '_test\.cpp$|^mixtape/io/(architectures/|gguf_(tokenizer|tokenizer_writer|pre_tokenizer)\.)'; then
  echo "names a model type: that belongs to its file in mixtape/io/architectures"
  failed=1
fi
check mixtape/quant $base mixtape/autograd/ mixtape/io/ mixtape/quant/ mixtape/ops/quantize/ mixtape/ops/block_scales/ mixtape/ops/fit_blocks/ mixtape/ops/elementwise/
check mixtape/nn $base mixtape/autograd/ mixtape/ops/ mixtape/io/ mixtape/quant/ mixtape/nn/
check mixtape/calib $base mixtape/autograd/ mixtape/ops/ mixtape/io/ mixtape/quant/ mixtape/nn/ mixtape/calib/
check mixtape/testing $base mixtape/autograd/ mixtape/testing/

# backend/cpu is seen only by an op's host kernels, backend/gpu only by its GPU kernels and their launchers.
if grep -l '#include "mixtape/backend/cpu/' -r mixtape/ops | grep -Ev '_(cpu(-inl)?|test|bench)\.(cpp|h)$' ||
  grep -l '#include "mixtape/backend/gpu/' -r mixtape/ops | grep -Ev '_(gpu|cuda|test|bench)\.(cpp|h|cu)$'; then
  echo "only <op>_cpu, <op>_gpu and <op>_cuda files may include a backend"
  failed=1
fi
exit $failed
