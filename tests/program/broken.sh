#!/usr/bin/env bash
# Models of which a file is missing or broken: status 2 and one line from every command that reads it; logits that are
# no numbers.
# usage: tests/program/broken.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
story 40 >"$work/story"

# refused TEXT [COMMAND...]: every command that reads the model in $work/model says so; those named don't read it.
refused() {
  local text=$1 command
  shift
  for command in info eval generate quantize convert calibrate train; do
    [[ " $* " != *" $command "* ]] || continue
    case $command in
      info) expect_line 2 "$text" info "$work/model" ;;
      eval) expect_line 2 "$text" eval -m "$work/model" --text "$work/story" --length 32 ;;
      generate) expect_line 2 "$text" generate -m "$work/model" -p a -n 2 ;;
      quantize) expect_line 2 "$text" quantize -m "$work/model" -o "$work/new" --group-size 32 ;;
      convert) expect_line 2 "$text" convert -m "$work/model" -o "$work/new.gguf" ;;
      calibrate) expect_line 2 "$text" calibrate -m "$work/model" -o "$work/new" --group-size 32 --text "$work/story" ;;
      train) expect_line 2 "$text" train --model-config "$work/model/config.json" --tokenizer "$work/model" -o "$work/new" --text "$work/story" ;;
    esac
  done
  only story model
  rm -r "$work/model"
}
# broken FILE TEXT: a copy of the model whose file holds the text; without one it has no such file.
broken() {
  cp -r "$model" "$work/model"
  chmod -R u+w "$work/model"
  rm -f "$work/model/$1"
  [ $# = 1 ] || echo "$2" >"$work/model/$1"
}

broken config.json
refused "config.json"
broken model.safetensors
refused "found neither model.safetensors nor model.safetensors.index.json" train
broken tokenizer.json
refused "tokenizer.json: " info
broken model.safetensors.index.json '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}'
refused "the index names 1 shard, absent: model-00001-of-00002.safetensors" train
broken model.safetensors 'no tensors'
refused "model.safetensors: header length is " train
broken config.json '{"model_type": }'
refused "config.json: invalid JSON or UTF-8: line 1, column 16: "
[[ $output != *json.exception* ]] || complain "a library's own words: $output"
broken tokenizer.json '{"model": '
refused "tokenizer.json: invalid JSON or UTF-8: line 2, column 1: " info

# NaN among the weights of the last norm: all logits are.
# put VALUE TENSOR: in the place of its column 7.
put() {
  python3 - "$work/model/model.safetensors" "$@" <<'END'
import json, struct, sys
file, value, tensor = sys.argv[1:]
data = bytearray(open(file, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin = 8 + size + json.loads(data[8:8 + size])[tensor]["data_offsets"][0] + 4 * 7
data[begin:begin + 4] = struct.pack("<f", float(value))
open(file, "wb").write(data)
END
}
mkfifo "$work/pipe.gguf"
expect_line 2 "pipe.gguf: found a directory or special file" info "$work/pipe.gguf"
rm "$work/pipe.gguf"
broken nothing
put nan model.norm.weight
for how in "" "--temp 0" "--samples 2"; do
  # shellcheck disable=SC2086
  expect_line 2 "$work/model: sample: found NaN among the model's logits, expected numbers" generate -m "$work/model" -p Once -n 4 $how
done
expect_line 2 "value at row 0, column 7 is nan" eval -m "$work/model" --text "$work/story" --length 32 --save-base "$work/base"
expect_line 2 "model.norm.weight': value at row 0, column 7 is nan" calibrate -m "$work/model" --out "$work/none" --data self --recipe fast --length 33 --rows 4 --self-rows 8 --validation-rows 1 --report-rows 1
named="tensor 'model.norm.weight': value at row 0, column 7 is nan, expected a finite number"
expect_line 2 "expected numbers; $named" generate -m "$work/model" -p Once -n 4
expect_line 2 "$work/model: found NaN among its logits on this text, expected numbers; $named" eval -m "$work/model" --text "$work/story" --length 32
expect_line 2 "the teacher: found NaN among its logits on this text, expected numbers; $named" eval -m "$model" --teacher "$work/model" --text "$work/story" --length 32
# Every command names the tensor, in a matrix as in a norm, NaN as infinity, and writes nothing.
calibrate="calibrate -m $work/model --text $work/story --length 32 --validation-rows 8 --report-rows 8 --batch 2 --steps 2"
for value in nan inf; do
  for tensor in model.norm.weight model.layers.1.mlp.up_proj.weight model.embed_tokens.weight; do
    cp "$model/model.safetensors" "$work/model/model.safetensors"
    put $value $tensor
    named="$work/model: tensor '$tensor': value at row 0, column 7 is $value, expected a finite number"
    # shellcheck disable=SC2086
    for how in "--group-size 32 -o $work/new" "--type q4_0 -o $work/new.gguf"; do
      expect_line 2 "$named" quantize -m "$work/model" $how
      expect_line 2 "$named" $calibrate $how
    done
    [ "$tensor" != model.norm.weight ] || expect_line 2 "${named#*: }" generate -m "$work/model" -p Once -n 4
    for out in new new.gguf; do expect_line 2 "$named" convert -m "$work/model" -o "$work/$out"; done
    expect_line 2 "${named#*: }" eval -m "$work/model" --text "$work/story" --length 32
  done
done
# So in what is quantized already: a scale of a directory, a block of a GGUF file.
cp "$model/model.safetensors" "$work/model/model.safetensors"
for how in "--group-size 32 -o $work/scales" "--type q4_0 -o $work/blocks.gguf"; do
  # shellcheck disable=SC2086
  expect 0 "wrote" quantize -m "$work/model" $how
done
python3 - "$work" <<'END'
import json, re, struct, sys
file = sys.argv[1] + "/scales/model.safetensors"
data = bytearray(open(file, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin = 8 + size + json.loads(data[8:8 + size])["model.layers.1.mlp.up_proj.scales"]["data_offsets"][0]
data[begin:begin + 4] = struct.pack("<f", float("inf"))
open(file, "wb").write(data)
file = sys.argv[1] + "/blocks.gguf"
data = bytearray(open(file, "rb").read())
# A tensor's entry: name, count of dimensions, these, type, offset in what follows the last entry, aligned.
entries = {}
for name in re.finditer(rb"[a-z_0-9.]+\.weight", data):
    dims, = struct.unpack_from("<I", data, name.end())
    if dims in (1, 2):
        end = name.end() + 4 + 8 * dims + 12
        entries[name[0]] = struct.unpack_from("<Q", data, end - 8)[0]
begin = -(-end // 32) * 32 + entries[b"blk.1.ffn_up.weight"]
data[begin:begin + 2] = struct.pack("<H", 0x7c00)  # the first block's scale
open(file, "wb").write(data)
END
expect_line 2 "$work/scales: tensor 'model.layers.1.mlp.up_proj.scales': value at row 0, column 0 is inf, expected a finite number" convert -m "$work/scales" -o "$work/new"
expect_line 2 "is inf, expected a finite number" convert -m "$work/blocks.gguf" -o "$work/new"
expect_line 2 "is inf, expected a finite number" convert -m "$work/blocks.gguf" -o "$work/new.gguf"
expect_line 2 "expected a finite number" convert -m "$work/blocks.gguf" -o "$work/new.gguf" --dequantize
rm -r "$work/model" "$work/scales" "$work/blocks.gguf"

only story
finish
