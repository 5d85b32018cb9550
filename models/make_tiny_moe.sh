#!/usr/bin/env bash
# Makes models/tiny-moe: samples a corpus from the small llama under tests/data and trains on it.
# usage: models/make_tiny_moe.sh path/to/mixtape
set -euo pipefail
cd "$(dirname "$0")/.."
mixtape=${1:-build/cli/mixtape}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$mixtape" generate --model tests/data/stories260k --samples 4096 --count 255 --temperature 1 --top-p 1 --seed 1 \
  >"$work/corpus.txt"
rm -rf models/tiny-moe models/tiny-moe.json
"$mixtape" train --model-config models/tiny-moe-recipe/config.json --tokenizer tests/data/stories260k --text "$work/corpus.txt" \
  --length 257 --batch 16 --steps "1200" --lr 3e-3 --seed 1 --out models/tiny-moe --json models/tiny-moe.json
