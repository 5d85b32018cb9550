#!/usr/bin/env bash
# llama.cpp on the files that the program writes, and the program on llama.cpp's. Skipped unless MIXTAPE_LLAMA_CPP names
# the folder of its programs.
# usage: tests/program/llama_cpp.sh SOURCE_DIR MIXTAPE
[ -n "${MIXTAPE_LLAMA_CPP:-}" ] || exit 77
source "$(dirname "$0")/lib.sh"
story 60 >"$work/story"
windows="--text $work/story --length 64 --max-tokens 512 --dtype f32"
exact="-fa off -ctk f32 -ctv f32 -t 1"

# llama PROGRAM WANTED ARGUMENTS...: both streams in $said, until WANTED, a Perl expression, is in it: what the program
# says last may be lost where it ends.
llama() {
  local program=$1 wanted=$2 i
  shift 2
  for i in $(seq 20); do
    said=$(env -u OMP_NUM_THREADS -u OMP_WAIT_POLICY "$MIXTAPE_LLAMA_CPP/$program" "$@" 2>&1 </dev/null)
    grep -qzP -- "$wanted" <<<"$said" && return
  done
  complain "$program $*: did not say '$wanted': $(tail -n 3 <<<"$said")"
}

# mean_kl FILE BASE: llama.cpp's mean over the windows that it told of, to five digits behind the point.
mean_kl() {
  llama llama-perplexity "\n +3 " -m "$1" --kl-divergence --kl-divergence-base "$2" -c 64 $exact
  kl=$(sed -n 's/^ *[0-9]\+ \+[-0-9.]\+ ± \+[-0-9.]\+ \+[-0-9.]\+ ± \+[-0-9.na]\+ \+\([-0-9.]\+\) ± .*/\1/p' <<<"$said" | tail -n 1)
}

# Of every architecture: no warning, the same logits, the same 64 tokens.
# shellcheck disable=SC2086
same_model() {
  local source=$1 file=$work/model.gguf text mine
  expect 0 "F32" convert "$source" -o "$file" --floats f32
  llama llama-completion "generate: n_ctx" -m "$file" -p Once -n 1 -no-cnv -v -t 1
  mine=$(grep -E '^[0-9.]+ [WE] ' <<<"$said" | grep -vE 'training context|trained on only|full capacity')
  [ -z "$mine" ] || complain "$source: llama.cpp warns: $mine"

  expect 0 "wrote" eval "$source" $windows --save-base "$work/base"
  mean_kl "$file" "$work/base"
  awk -v kl="$kl" 'BEGIN { exit !(kl != "" && kl * kl < 1e-9) }' || complain "$source: llama.cpp's KL to the model is $kl, expected 0"

  text=$("$mixtape" generate "$file" --prompt "Once upon a time" -n 64 --temp 0 --dtype f32 2>/dev/null)
  llama llama-completion "generate: n_ctx" -m "$file" -p "Once upon a time" -n 640 -c 1024 --ignore-eos --temp 0 -no-cnv $exact
  [[ $said == *"$text"* ]] || complain "$source: mixtape generates '$text', llama.cpp: $said"
  rm "$file" "$work/base"
}
for pair in llama:gpt-2 llama_tied_bias_rope3:llama-bpe mistral:smollm qwen2:qwen2 qwen3:qwen2 gemma3_text:gpt-2 smollm3:llama-bpe \
  olmo2:gpt-2 granite:gpt-2 phi3:gpt-2 phi3_partial:gpt-2 qwen3_yarn:qwen2 phi3_longrope:gpt-2 gpt_oss:gpt-2; do
  parity_model "${pair%:*}" "${pair#*:}"
  same_model "$work/parity"
  rm -r "$work/parity"
done
same_model "$model"
same_model models/tiny-moe

# decodes_alike NAME: llama.cpp decodes q.gguf as mixtape does; it is removed.
# shellcheck disable=SC2086
decodes_alike() {
  local file
  llama llama-quantize "total time" --allow-requantize "$work/q.gguf" "$work/decoded.gguf" F32 2
  for file in q decoded; do
    expect 0 "" eval "$work/$file.gguf" $windows
    grep -E '^(mean nll|perplexity)' <<<"$output" >"$work/$file"
  done
  cmp "$work/q" "$work/decoded" || complain "$1: llama.cpp decodes another model: $(cat "$work/q" "$work/decoded")"
  rm "$work/q" "$work/decoded" "$work/q.gguf" "$work/decoded.gguf"
}

# Of every type.
for bits in 4 5 8; do
  expect 0 "" quantize models/tiny-moe -o "$work/q.gguf" --group-size 32 --bits $bits
  decodes_alike "$bits bits"
done

# Experts in MXFP4, by llama.cpp.
parity_model gpt_oss gpt-2
expect 0 "" convert "$work/parity" -o "$work/f.gguf" --floats f32
llama llama-quantize "total time" "$work/f.gguf" "$work/q.gguf" MXFP4_MOE
expect 0 "MXFP4 " info "$work/q.gguf"
decodes_alike "MXFP4"
rm -r "$work/f.gguf" "$work/parity"

# Of every mix: the types that llama-quantize chooses for the same model, decoded as mixtape does. One model of rows of
# 256, hardly trained (status 3), one of rows that are no such blocks.
sed -e 's/"hidden_size": 64/"hidden_size": 256/; s/"intermediate_size": 172/"intermediate_size": 512/; s/"head_dim": 8/"head_dim": 32/' \
  -e 's/"num_hidden_layers": 5/"num_hidden_layers": 8/' "$model/config.json" >"$work/wide.json"
expect 3 "wrote" train --model-config "$work/wide.json" --tokenizer "$model" --text "$work/story" --length 64 --validation-rows 2 --report-rows 2 --steps 2 --out "$work/wide"
# shellcheck disable=SC2086
for source in "$work/wide" models/tiny-moe; do
  expect 0 "" convert "$source" -o "$work/f.gguf" --floats f32
  for mix in q2_k q3_k_s q3_k_m q3_k_l q4_0 q4_1 q4_k_s q4_k_m q5_0 q5_1 q5_k_s q5_k_m q6_k q8_0; do
    expect 0 "" quantize "$source" -o "$work/q.gguf" --type $mix
    llama llama-quantize "total time" --dry-run "$work/f.gguf" ${mix^^}
    sed -n 's/^\[.*\] \([^ ]*\) .*(\(q[^)]*\))$/\1 \U\2/p' <<<"$said" | sort >"$work/theirs"
    expect 0 "" info "$work/q.gguf" --tensors
    sed -n 's/^\([^ ]*\.weight\) *\(Q[^[]*\)\[.*/\1 \2/p' <<<"$output" | sort >"$work/ours"
    [ -s "$work/ours" ] || complain "$source as $mix: no tensor is quantized"
    cmp "$work/ours" "$work/theirs" || complain "$source as $mix: $(diff "$work/ours" "$work/theirs")"
    decodes_alike "$mix"
    rm "$work/ours" "$work/theirs"
  done
  rm "$work/f.gguf"
done

# Types chosen by matrix.
expect 0 "modules whose types are chosen" calibrate "$work/wide" --text "$work/story" --length 64 --validation-rows 2 --report-rows 2 --recipe fast --bpw 5 -o "$work/q.gguf"
[[ $output == *"Q4_K"* ]] || complain "no K-quant is chosen: $output"
decodes_alike "chosen types"
rm -r "$work/wide" "$work/wide.json"

# Importance, both ways.
expect 0 "" convert models/tiny-moe -o "$work/f.gguf" --floats f32
# Whether it is better on so little text, its status says, is all one here.
"$mixtape" calibrate models/tiny-moe --text "$work/story" --length 64 --validation-rows 2 --report-rows 2 --group-size 32 --recipe fast \
  -o "$work/c.gguf" --save-imatrix "$work/i.gguf" >/dev/null 2>&1
llama llama-quantize "have 29 importance matrix entries(?s:.*)total time" --imatrix "$work/i.gguf" "$work/f.gguf" "$work/q.gguf" Q4_1 2
[[ $said != *"did not find weights"* ]] || complain "llama-quantize lacks importance: $said"
for form in gguf dat; do
  llama llama-imatrix "" -m "$work/f.gguf" -f "$work/story" -c 64 -t 1 -o "$work/theirs.$form" --output-format $form
  expect 0 "Q4_1" quantize models/tiny-moe -o "$work/d.gguf" --group-size 32 --imatrix "$work/theirs.$form"
  rm "$work/d.gguf"
done

# What llama-perplexity keeps of a model that begins texts with BOS.
llama llama-perplexity "" -m "$work/f.gguf" -f "$work/story" -c 64 --chunks 8 --kl-divergence-base "$work/base" $exact
expect 0 "KL mean          " eval models/tiny-moe --base "$work/base" --dtype f32
awk -v kl="$(sed -n 's/^KL mean *//p' <<<"$output" | cut -d' ' -f1)" 'BEGIN { exit !(kl != "" && kl * kl < 1e-10) }' ||
  complain "llama-perplexity's file of the same model: $output"

only story f.gguf c.gguf i.gguf q.gguf theirs.gguf theirs.dat base
finish
