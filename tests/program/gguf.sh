#!/usr/bin/env bash
# GGUF files that are written, and importance in llama.cpp's form.
# usage: tests/program/gguf.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
text="--text $work/story --length 64 --validation-rows 2 --report-rows 2"
moe=models/tiny-moe
quantize="quantize $model --group-size 32"

# Activations in f32: a GGUF file says nothing of their type.
perplexity() { "$mixtape" eval "$1" --text "$work/story" --length 64 --max-tokens 512 --dtype f32 2>/dev/null | sed -n 's/^perplexity *//p' | cut -d' ' -f1; }
# same_perplexity A B: to the rounding of f32 sums in another order.
same_perplexity() {
  local a b
  a=$(perplexity "$1") b=$(perplexity "$2")
  awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; exit !(a > 1 && d * d < 1e-8 * a * a) }' || complain "perplexity of $1: $a, of $2: $b"
}

# Written by the name, or by --format; read again it generates.
# shellcheck disable=SC2086
{
  expect 0 "types        F32" $quantize -o "$work/a.gguf"
  [[ $output == *"Q4_1"* && $output == *"wrote        $work/a.gguf, "* ]] || complain "quantize: $output"
  expect 0 "" $quantize -o "$work/b" --format gguf
  cmp "$work/a.gguf" "$work/b" || complain "--format gguf makes another file"
  expect 0 "Once" generate "$work/a.gguf" --prompt Once -n 4
  expect 0 "" info "$work/a.gguf"
  rm "$work/b"
  expect 0 "" $quantize -o "$work/directory" --format mlx
  [ -e "$work/directory/model.safetensors" ] || complain "--format mlx made no directory"
  rm -r "$work/directory"
  expect 0 "types        F32" quantize "$moe" -o "$work/b" --format GGUF --type Q4_K_M --bits-for '*.v_proj=Q6_K'
  rm "$work/b"
  expect 2 "is planned as Q6_K, which only a GGUF file holds" $quantize -o "$work/b" --bits-for '*.v_proj=q6_k'
  expect 0 "2 bits       stored as Q4_1, which takes the room of 4" $quantize -o "$work/b" --format gguf --bits 2
  expect 0 "rounded      29 of the matrices again: Q8_0 has no biases" quantize $moe -o "$work/c" --format gguf --bits 8
  rm "$work/b" "$work/c"
}

# A model that is converted, quantized or not, is the same model.
# shellcheck disable=SC2086
{
  expect 0 "types        F32" convert "$model" -o "$work/f.gguf" --floats f32
  same_perplexity "$work/f.gguf" "$model"
  expect 0 "" quantize "$moe" -o "$work/mlx" --group-size 32 --bits 5
  # Floats come back as they were, and quantize makes of them what it makes of the directory.
  for pair in "f32:$model" "bf16:$moe"; do
    floats=${pair%%:*} directory=${pair#*:}
    expect 0 "" convert "$directory" -o "$work/direct" --floats $floats
    expect 0 "" convert "$directory" -o "$work/x.gguf" --floats $floats
    expect 0 "floats       $floats" convert "$work/x.gguf" -o "$work/back"
    cmp "$work/direct/model.safetensors" "$work/back/model.safetensors" || complain "convert to $floats and back: other bytes"
    expect 0 "" quantize "$work/direct" -o "$work/q1" --bits 4 --group-size 32
    expect 0 "" quantize "$work/x.gguf" -o "$work/q2" --bits 4 --group-size 32
    cmp "$work/q1/model.safetensors" "$work/q2/model.safetensors" || complain "quantize of $floats: a GGUF file gives other bytes"
    rm -r "$work/direct" "$work/x.gguf" "$work/back" "$work"/q[12]
  done
  expect 0 "" quantize "$moe" -o "$work/x.gguf" --type q8_0
  expect 0 "x.gguf is quantized already (Q8_0): what it holds is taken for the original" quantize "$work/x.gguf" -o "$work/y.gguf" --type q4_k_m
  expect 0 "" quantize "$moe" -o "$work/z.gguf" --type q4_1
  expect 0 "z.gguf is quantized already (mostly Q4_1): what it holds" quantize "$work/z.gguf" -o "$work/z"
  rm -r "$work"/[xyz].gguf "$work/z"
  expect 0 "Q5_1" convert --model "$work/mlx" --out "$work/c.gguf"
  same_perplexity "$work/c.gguf" "$work/mlx"
  rm -r "$work/f.gguf" "$work/c.gguf" "$work/mlx"
}

# What GGUF files store in another way than directories comes back: norms of 1 + w as their sum, multipliers, layers that
# do not rotate, shared matrices, a part of each head that is rotated,
# yarn, factors of long sequences, sinks and biases of experts.
for parity in gemma3_text smollm3 olmo2 granite phi3 phi3_partial qwen3_yarn phi3_longrope gpt_oss; do
  parity_model $parity gpt-2
  expect 0 "types        F32" convert "$work/parity" -o "$work/f.gguf" --floats f32
  same_perplexity "$work/f.gguf" "$work/parity"
  rm -r "$work/f.gguf" "$work/parity"
done

# What mlx-lm does not compute is refused before any work.
parity_model gpt_oss_mxfp4 gpt-2
expect 2 "swiglu_alpha is 1.25, mlx-lm has 1.702 in gpt_oss" calibrate "$work/parity" --data self --bits 3 --out "$work/q" --dry-run
rm -r "$work/parity"

# calibrate writes either form, and importance that quantize takes.
# shellcheck disable=SC2086
{
  expect 0 "llama-cli -m $work/c.gguf" calibrate $model $text --group-size 32 --bits 3 --recipe fast -o "$work/c.gguf" --save-imatrix "$work/i.gguf"
  [[ $output == *"wrote        $work/i.gguf, "* ]] || complain "calibrate: $output"
  expect 0 "Once" generate "$work/c.gguf" --prompt Once -n 4
  expect 0 "" $quantize -o "$work/d.gguf" --bits 3 --imatrix "$work/i.gguf"
  expect 0 "" $quantize -o "$work/e.gguf" --bits 3 --fit least-squares
  expect 0 "" $quantize -o "$work/g.gguf" --bits 3 --fit mlx
  awk -v d="$(perplexity "$work/d.gguf")" -v g="$(perplexity "$work/g.gguf")" 'BEGIN { exit !(d < g) }' ||
    complain "importance made it no better: $(perplexity "$work/d.gguf") against $(perplexity "$work/g.gguf")"
  cmp -s "$work/d.gguf" "$work/e.gguf" && complain "importance changed nothing"
  rm "$work"/[cdeg].gguf
}

# The mixes of llama-quantize. This model's rows of 128 are no blocks of 256: other types, listed; a plan says the same.
# shellcheck disable=SC2086
{
  expect 0 "Q5_0         instead of Q4_K: model.layers.0.mlp.switch_mlp.down_proj and 13 more (rows of 128 are no multiple of 256)" quantize $moe -o "$work/q.gguf" --type q4_k_m --save-plan "$work/plan.json"
  [[ $output == *"Q8_0         instead of Q6_K"* ]] || complain "quantize --type: $output"
  grep -q '"mode": "q5_0"' "$work/plan.json" || complain "the plan names no type: $(head -c 300 "$work/plan.json")"
  expect 0 "" quantize $moe -o "$work/p.gguf" --plan "$work/plan.json" --fit least-squares
  [ "$(wc -c <"$work/p.gguf")" = "$(wc -c <"$work/q.gguf")" ] || complain "--plan makes a file of another size than --type"
  expect 0 "blk.0.attn_q.weight " info "$work/q.gguf" --tensors
  [[ $output == *" Q5_0[128,128]"* ]] || complain "info --tensors: $output"
  expect 0 "" quantize $moe -o "$work/o.gguf" --type q4_0 --bits-for '*.v_proj=q8_0' --fit mlx
  [[ $output == *"Q8_0"* ]] || complain "--bits-for with a type: $output"
  rm "$work"/[pqo].gguf
  expect 0 "llama-cli -m $work/t.gguf" calibrate $moe $text --type q2_k --recipe good --train scales --steps 4 -o "$work/t.gguf"
  expect 0 "Once" generate "$work/t.gguf" --prompt Once -n 4
  rm "$work/t.gguf"
}

# refused STATUS TEXT ARGUMENTS...: in a line, and nothing is left.
refused() {
  expect_line "$@"
  [ ! -e "$work/new.gguf" ] || complain "left behind: $work/new.gguf"
}
# shellcheck disable=SC2086
{
  new="-o $work/new.gguf"
  refused 1 "--out: $work/a.gguf is a file that exists, expected a new name" $quantize -o "$work/a.gguf"
  refused 2 "--imatrix has no effect: --fit mlx" $quantize $new --fit mlx --imatrix "$work/i.gguf"
  refused 2 "--rounding has no effect: --fit least-squares" $quantize $new --imatrix "$work/i.gguf" --rounding cpu
  refused 2 "is importance of another model" quantize $moe $new --imatrix "$work/i.gguf"
  refused 2 "its general.type is not 'imatrix'" $quantize $new --imatrix "$work/a.gguf"
  refused 2 "read as an importance matrix of the older form" $quantize $new --imatrix "$work/story"
  refused 2 "$work/none: " $quantize $new --imatrix "$work/none"
  refused 2 "--type q4_0 is a GGUF file's: --out is '$work/mlx'" quantize $moe -o "$work/mlx" --type q4_0
  refused 2 "--type q4_0 is a GGUF file's" calibrate $moe $text -o "$work/new.gguf" --format mlx --type q4_0
  refused 2 "is planned as Q8_0, which only a GGUF file holds" quantize $moe -o "$work/mlx" --plan "$work/plan.json"
  refused 2 "--rounding has no effect: --type q4_0" quantize $moe $new --type q4_0 --rounding cpu
  refused 2 "found --type and --bits, expected one of them" quantize $moe $new --type q4_0 --bits 4
  refused 2 "--type is q4_x, expected" quantize $moe $new --type q4_x
  rm "$work/plan.json"
  refused 2 "--save-imatrix has no effect: --fit mlx gathers none" calibrate $model $text $new --group-size 32 --fit mlx --save-imatrix "$work/x"
  refused 2 "--save-imatrix: $work/new.gguf lies in the directory of --out" calibrate $model $text $new --group-size 32 --save-imatrix "$work/new.gguf"
  refused 2 "is a file that this run reads" calibrate $model $text $new --group-size 32 --save-imatrix "$work/story"
  refused 1 "is a directory, expected a new name" calibrate $model $text $new --group-size 32 --save-imatrix "$work"
  (
    ulimit -f 64
    refused 1 "(ulimit -f), expected" $quantize $new
    exit $failed
  ) || failed=1
}
# A tokenizer that llama.cpp does not know is refused before the work.
cp -r "$model" "$work/odd"
python3 - "$work/odd/tokenizer.json" <<'END'
import json, sys
t = json.load(open(sys.argv[1]))
t["normalizer"]["normalizers"].append({"type": "Lowercase"})
json.dump(t, open(sys.argv[1], "w"))
END
refused 2 'normalizer {"type":"Lowercase"} has no counterpart in GGUF files' quantize "$work/odd" -o "$work/new.gguf" --group-size 32
rm -r "$work/odd"

# A full disk: refused at the start; nothing half-written is left.
mkdir "$work/disk"
if mount -t tmpfs -o size=1m tmpfs "$work/disk" 2>/dev/null; then
  trap 'umount "$work/disk"; rm -rf "$work"' EXIT
  head -c 950000 /dev/zero >"$work/disk/filler"
  expect 1 "are free on its disk, expected" quantize "$model" --group-size 32 -o "$work/disk/new.gguf"
  expect 1 "are free on its disk, expected" convert "$model" -o "$work/disk/new.gguf"
  [ "$(ls "$work/disk")" = filler ] || complain "a full disk: left $(ls "$work/disk")"
  umount "$work/disk"
  trap 'rm -rf "$work"' EXIT
fi
rmdir "$work/disk"

# The name's end in any case; sizes are of the tensors, as info's.
expect 0 "bits per weight" quantize "$model" --group-size 32 -o "$work/b.GGUF"
told=$(sed -n 's/^quantized .* \([0-9.]*\) bits per weight$/\1/p' <<<"$output")
expect 0 "bits per weight $told" info "$work/b.GGUF"
rm "$work/a.gguf" "$work/i.gguf"

# Blocks stay blocks: in a GGUF file byte by byte, in a directory as codes where MLX has such, else they are refused.
listing() { "$mixtape" info "$1" --tensors | grep -E '^(blk|token|output)'; }
expect 0 "Q4_1" convert "$work/b.GGUF" -o "$work/c.gguf"
cmp <(listing "$work/b.GGUF") <(listing "$work/c.gguf") || complain "convert: other types: $(listing "$work/c.gguf")"
expect 0 "" convert "$work/c.gguf" -o "$work/d.gguf"
python3 - "$work" <<'END' || complain "converted once and twice: other files"
import sys
a, b, c = (open(sys.argv[1] + name, "rb").read() for name in ("/b.GGUF", "/c.gguf", "/d.gguf"))
size = len(a) * 9 // 10  # the tensors' part: the heads differ by the model's name
sys.exit(not (a[-size:] == b[-size:] == c[-size:]))
END
expect 0 "codes        4 bits, group 32: " convert "$work/c.gguf" -o "$work/mlx"
grep -q '"mode": "affine"' "$work/mlx/config.json" || complain "convert: config.json names no quantization"
same_perplexity "$work/mlx" "$work/b.GGUF"
expect 0 "" convert "$work/mlx" -o "$work/e.gguf"
cmp <(listing "$work/b.GGUF") <(listing "$work/e.gguf") || complain "convert to MLX and back: other types"
expect 0 "types        F32 " convert "$work/b.GGUF" -o "$work/f.gguf" --dequantize
same_perplexity "$work/f.gguf" "$work/b.GGUF"
rm -r "$work/mlx"
expect 0 "floats       f32" convert "$work/f.gguf" -o "$work/mlx" --floats f32
grep -q quantization "$work/mlx/config.json" && complain "convert: a float model's config.json names a quantization"
same_perplexity "$work/mlx" "$work/f.gguf"
refused 2 "its scales are f16 numbers, which bf16 does not hold; --floats f32 holds them" convert "$work/b.GGUF" -o "$work/new" --floats bf16
rm -r "$work"/[cdef].gguf "$work/b.GGUF" "$work/mlx"

only story
finish
