#!/usr/bin/env bash
# bench/formats.sh MIXTAPE LLAMA_QUANTIZE TEXTS MODEL WORK OUT.csv: a model in many formats beside each other. Rounds, fits and
# calibrates MODEL (a GGUF file of floats) into MLX's formats and GGUF's types, and measures each result's KL to it on texts
# that no stage has seen.
#   MIXTAPE, LLAMA_QUANTIZE  the programs
#   TEXTS    folder of moby_dick.txt and tiny_stories.txt (calibration), wikitext2_test.txt and tinyshakespeare.txt
#   WORK     folder for what is made on the way
#   OUT.csv  rows are appended: model,form,setting,method,bytes,bits_per_weight, and KL and its error of either text
# DEVICE=cuda, SELF_ROWS=768 (rows sampled from the model) and MAX_TOKENS=32768 (of each text that are measured) may be set.
set -euo pipefail
[ $# = 6 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
mixtape=$1 llama_quantize=$2 texts=$3 model=$4 work=$5 out=$6
device=${DEVICE:-auto}
mkdir -p "$work"
data=(--data self --self-rows "${SELF_ROWS:-768}" --text "$texts/moby_dick.txt" --text "$texts/tiny_stories.txt" --report-rows 2)

imatrix=$work/imatrix.gguf
[ -e "$imatrix" ] || "$mixtape" calibrate -m "$model" -o "$work/imatrix_model.gguf" --type q8_0 --recipe fast \
  --fit least-squares --save-imatrix "$imatrix" --device "$device" "${data[@]}" >"$work/imatrix.log" 2>&1

# Mean KL of the student on a text, and its error.
kl() {
  "$mixtape" eval -m "$1" --teacher "$model" --device "$device" --dtype f32 --batch 16 --text "$texts/$2" \
    --max-tokens "${MAX_TOKENS:-32768}" --json - 2>/dev/null |
    python3 -c 'import json, sys; kl = json.load(sys.stdin)["kl"]; print("%.4g,%.4g" % (kl["mean"], kl["mean_error"]))'
}

# row FORM SETTING METHOD OPTION...
row() {
  local form=$1 setting=$2 method=$3 student=$work/student
  shift 3
  [ "$form" = mlx ] || student=$student.gguf
  rm -rf "$student"
  case $method in
    llama-quantize) "$llama_quantize" --imatrix "$imatrix" "$model" "$student" "$2" ;;
    rounding) "$mixtape" quantize -m "$model" -o "$student" "$@" --fit mlx ;;
    fit) "$mixtape" quantize -m "$model" -o "$student" "$@" --imatrix "$imatrix" ;;
    *) "$mixtape" calibrate -m "$model" -o "$student" "$@" --recipe "$method" --device "$device" "${data[@]}" ;;
  esac >"$work/log" 2>&1 || { [ $? = 3 ] || { cat "$work/log" >&2; return 1; }; }
  local bits bytes
  bits=$("$mixtape" info "$student" | awk '/^bits per weight/ {print $4}')
  bytes=$(find "$student" \( -name '*.safetensors' -o -name '*.gguf' \) -printf '%s\n' | awk '{s += $1} END {print s}')
  echo "$(basename "${model%.gguf}"),$form,$setting,$method,$bytes,$bits,$(kl "$student" wikitext2_test.txt),$(kl "$student" tinyshakespeare.txt)" |
    tee -a "$out"
}

for format in 2:64 2:32 3:64 3:32 4:64 4:32 5:64 6:64; do
  bits=${format%:*} group=${format#*:}
  for method in rounding fast good; do row mlx "$bits bits g$group" $method --bits "$bits" --group-size "$group"; done
done
for bpw in 2.75 3.5 4.5; do row mlx "chosen $bpw" good --bpw $bpw; done
for bpw in 3.5 4.5 5.5; do row gguf "chosen $bpw" good --bpw $bpw; done
for type in q2_k q3_k_m q4_0 q4_k_m q5_k_m q6_k q8_0; do
  for method in llama-quantize fit good best; do row gguf $type $method --type $type; done
done
