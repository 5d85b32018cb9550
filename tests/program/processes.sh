#!/usr/bin/env bash
# Processes of one run, as a launcher starts them: the same bytes as of as many devices of one process, and what ends them.
# usage: tests/program/processes.sh SOURCE_DIR MIXTAPE
source "$(dirname "$0")/lib.sh"
set -m # else background jobs ignore Ctrl-C
story 60 >"$work/story"
rows="--text $work/story --length 33 --validation-rows 8 --report-rows 8"
tiny="calibrate --model models/tiny-moe --group-size 64 --bits 3 $rows"
few="$tiny --steps 3 --batch 3"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# start RANK SIZE ARGUMENTS...: in the background, with streams in $work/out.RANK and $work/err.RANK; $port is the run's.
start() {
  local rank=$1 size=$2
  shift 2
  : >"$work/out.$rank" # what a run before said is not waited for
  : >"$work/err.$rank"
  env RANK="$rank" LOCAL_RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR=localhost MASTER_PORT="$port" \
    MIXTAPE_JOIN_SECONDS="${patience:-60}" "$mixtape" "$@" >"$work/out.$rank" 2>"$work/err.$rank" </dev/null &
  process[rank]=$!
}

# ended RANK STATUS TEXT: with that status, and the text in what it said.
ended() {
  local found
  wait "${process[$1]}" 2>/dev/null
  found=$?
  if [ $found != "$2" ] || ! grep -qF -- "$3" "$work/out.$1" "$work/err.$1"; then
    complain "rank $1: status $found, expected $2 and '$3' in: $(cat "$work/out.$1" "$work/err.$1")"
  fi
}

# together SIZE ARGUMENTS...: all come to their end; DEVICES[RANK] are those of each.
together() {
  local size=$1 rank
  shift
  port=$(free_port)
  for rank in $(seq 0 $((size - 1))); do start "$rank" "$size" "$@" --device "${devices[rank]:-cpu}"; done
  ended 0 0 ""
  for rank in $(seq 1 $((size - 1))); do
    ended "$rank" 0 "rank $rank       cpu, "
    [ "$(cat "$work/out.$rank" "$work/err.$rank" | wc -l)" = 1 ] || complain "rank $rank says more than a line: $(cat "$work/out.$rank" "$work/err.$rank")"
    [ ! -s "$work/out.$rank" ] || complain "rank $rank writes to standard output: $(cat "$work/out.$rank")"
  done
}

same() {
  cmp "$work/one/model.safetensors" "$work/several/model.safetensors" || complain "$*: other bytes than of one process"
}
same_record() {
  same "$*"
  cmp "$work/one/mixtape.json" "$work/several/mixtape.json" || complain "$*: another record than of one process"
}

# shellcheck disable=SC2086
for train in scales blocks codes; do
  expect 0 "KL cut by" $few --train $train --device cpu,cpu --out "$work/one"
  together 2 $few --train $train --out "$work/several"
  grep -q '^processes    2, which meet at localhost:' "$work/out.0" || complain "rank 0 doesn't say how many: $(cat "$work/out.0")"
  grep -q '^gradients    added up through host memory$' "$work/out.0" || complain "which way is not said: $(cat "$work/out.0")"
  same_record "calibrate --train $train, two processes"
  rm -r "$work/one" "$work/several"
done

# Three members of three processes and of two; a choice of bits, sampled text and targets on disk are made by the first one.
# shellcheck disable=SC2086
{
  three="$few --train scales --checkpoint-every 0.0001"
  expect 0 "KL cut by" $three --device cpu,cpu,cpu --out "$work/one"
  together 3 $three --out "$work/several"
  same_record "three processes"
  rm -r "$work/several"
  devices=(cpu,cpu cpu)
  together 2 $three --out "$work/several"
  devices=()
  same_record "two processes of three devices"
  rm -r "$work/one" "$work/several"

  other="calibrate --model models/tiny-moe --bpw 3 --data self --self-rows 64 --length 33 --validation-rows 8 --report-rows 8 --steps 3 --batch 3 --train scales --top-k 8"
  expect 0 "wrote" $other --device cpu,cpu --out "$work/one" --target-dir "$work/targets"
  rm -r "$work/targets"
  together 2 $other --out "$work/several" --target-dir "$work/targets"
  same "chosen bits, sampled text and targets on disk"
  rm -r "$work/one" "$work/several" "$work/targets"

  # Nothing to train, and a report on standard output, which is the first one's alone.
  together 2 $tiny --batch 3 --train nothing --out "$work/several" --json -
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/out.0" || complain "the report is mixed with something"
  rm -r "$work/several"
  together 2 $few --dry-run --out "$work/several"
  grep -q "peak memory" "$work/out.0" || complain "a dry run of two says: $(cat "$work/out.0")"
  [ ! -e "$work/several" ] || complain "a dry run wrote something"
}

# Pre-training.
# shellcheck disable=SC2086
{
  small="train --model-config tests/data/stories260k/config.json --tokenizer $model $rows --steps 4 --batch 4"
  "$mixtape" $small --device cpu,cpu --out "$work/one" >"$work/log" 2>&1 </dev/null
  port=$(free_port)
  for rank in 0 1; do start $rank 2 $small --out "$work/several" --device cpu; done
  ended 0 3 "wrote"
  ended 1 3 "rank 1"
  same_record "train"
  rm -r "$work/one" "$work/several"
}

# Killed, whichever it is, and gone on with: by as many processes, or devices of one.
# shellcheck disable=SC2086
{
  long="$tiny --steps 60 --batch 3 --validate-every 4 --train scales --checkpoint-every 0.0005"
  expect 0 "KL cut by" $long --device cpu,cpu --out "$work/one"
  for victim in 0 1; do
    port=$(free_port)
    for rank in 0 1; do start $rank 2 $long --device cpu --out "$work/several"; done
    wait_for "step     8  validation" "$work/err.0"
    kill -KILL "${process[victim]}"
    ended $victim 137 ""
    ended $((1 - victim)) 1 "mixtape: $([ $victim = 1 ] || echo "rank 1: ")processes: rank $victim on "
    ended_text="is lost: it has ended; what it printed last says more, and what was kept stands"
    grep -qF "$ended_text" "$work/err.$((1 - victim))" || complain "what is lost is not said: $(cat "$work/err.$((1 - victim))")"
    [ ! -e "$work/several" ] || complain "a run that was killed wrote something"
    [ -e "$work/several.checkpoint" ] || complain "a run that was killed left no checkpoint"
    if [ $victim = 1 ]; then
      together 2 $long --out "$work/several" --resume
      grep -q "^resumes " "$work/out.0" || complain "it doesn't go on: $(cat "$work/out.0")"
    else
      expect 0 "resumes " $long --device cpu,cpu --out "$work/several" --resume
    fi
    same "a run that was killed"
    rm -r "$work/several"
  done

  # Files that another host doesn't see.
  port=$(free_port)
  for rank in 0 1; do start $rank 2 $long --device cpu --out "$work/several"; done
  wait_for "step     8  validation" "$work/err.0"
  kill -KILL "${process[0]}" "${process[1]}"
  wait "${process[0]}" "${process[1]}" 2>/dev/null
  port=$(free_port)
  start 0 2 $long --device cpu --out "$work/several" --resume
  start 1 2 $long --device cpu --out "$work/elsewhere" --resume
  ended 1 1 "mixtape: rank 1: $work/elsewhere.checkpoint/"
  ended 0 1 "is not here as rank 0 sees it, expected the same folder"
  rm -r "$work/one" "$work/several.checkpoint"
}

# Ctrl-C goes to all of a terminal; a signal to one stops all.
# shellcheck disable=SC2086
{
  endless="$tiny --steps 100000 --batch 3 --validate-every 1 --train scales --checkpoint-every 0"
  for who in "0 1" 0 1; do
    port=$(free_port)
    for rank in 0 1; do start $rank 2 $endless --device cpu --out "$work/several"; done
    wait_for "step     1" "$work/err.0"
    for rank in $who; do kill -INT "${process[rank]}"; done
    ended 0 130 "nothing was written"
    ended 1 130 "rank 1"
    port=$(free_port)
    for rank in 0 1; do start $rank 2 $endless --write-on-interrupt --device cpu --out "$work/several"; done
    wait_for "step     2" "$work/err.0"
    for rank in $who; do kill -TERM "${process[rank]}"; done
    ended 0 0 "wrote the best state so far"
    ended 1 0 "rank 1"
    rm -r "$work/several"
  done
  # What was trained is kept, whoever was stopped; who waits for the first one ends as it does.
  port=$(free_port)
  for rank in 0 1; do start $rank 2 ${endless/--checkpoint-every 0/} --device cpu --out "$work/several"; done
  wait_for "step     1" "$work/err.0"
  kill -INT "${process[1]}"
  ended 0 130 "go on with, in all 2 processes,   mixtape calibrate "
  ended 1 130 "rank 1"
  ls "$work/several.checkpoint/"*training.safetensors >/dev/null || complain "a signal to the second process lost the training"
  rm -r "$work/several.checkpoint"
  port=$(free_port)
  for rank in 0 1; do start $rank 2 ${tiny/--group-size 64 --bits 3/--bpw 4.5} --steps 3 --batch 2 --device cpu --out "$work/several"; done
  wait_for "measuring modules" "$work/err.0"
  kill -INT "${process[0]}"
  ended 0 130 "interrupted"
  ended 1 130 "rank 1"
  ! grep -q "exception" "$work/err.1" || complain "the second process does not know what the first one said: $(cat "$work/err.1")"
  rm -rf "$work/several.checkpoint"
  # Before the steps, too, where the others only wait.
  for signal in INT KILL; do
    port=$(free_port)
    for rank in 0 1; do start $rank 2 ${tiny/--group-size 64 --bits 3/--bpw 4.5} --steps 3 --batch 2 --device cpu --out "$work/several"; done
    wait_for "measuring modules" "$work/err.0"
    kill -$signal "${process[1]}"
    if [ $signal = INT ]; then
      ended 1 130 "mixtape: rank 1: interrupted"
      ended 0 130 "mixtape: rank 1 on "
    else
      ended 1 137 ""
      ended 0 1 "is lost: it has ended"
    fi
    grep -q "measuring swaps" "$work/err.0" && complain "the first process goes on for a stage without the second: $(cat "$work/err.0")"
    rm -rf "$work/several.checkpoint"
  done
}

# Who does not belong to it, does not come, or can't have the port.
# shellcheck disable=SC2086
{
  port=$(free_port)
  start 0 2 $few --device cpu --out "$work/several"
  start 1 2 ${few/steps 3/steps 4} --device cpu --out "$work/several"
  ended 1 2 "mixtape: rank 1: --steps is 4, rank 0's is 3, expected the same command, model and program in all processes"
  ended 0 2 "mixtape: rank 1 on "
  port=$(free_port)
  start 0 2 $few --device cpu --out "$work/several"
  start 1 2 ${few/models\/tiny-moe/$model} --device cpu --out "$work/several"
  ended 1 2 "rank 1: model is "
  ended 0 2 "mixtape: rank 1 on "
  port=$(free_port)
  start 0 2 $few --device cpu --out "$work/several"
  start 1 2 ${few/models\/tiny-moe/absent} --device cpu --out "$work/several"
  ended 1 2 "mixtape: rank 1: "
  ended 0 1 "mixtape: processes: rank 1 on "
  port=$(free_port)
  start 0 2 ${few/33/330} --device cpu --out "$work/several"
  start 1 2 ${few/33/330} --device cpu --out "$work/several"
  ended 0 2 "mixtape: "
  ended 1 2 "mixtape: rank 1: rank 0 on "
  port=$(free_port)
  patience=1 start 0 3 $few --device cpu --out "$work/several"
  patience=1 start 2 3 $few --device cpu --out "$work/several"
  ended 0 1 "mixtape: processes: rank 1 did not come to localhost:$port within 1 second, expected 3 processes"
  ended 2 1 "mixtape: rank 2: processes: rank 1 did not come to localhost:$port within 1 second, expected 3 processes"
  patience=1 start 1 2 $few --device cpu --out "$work/several"
  ended 1 1 "mixtape: rank 1: processes: there is no rank 0 at localhost:$port: Connection refused"
  python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[2], "w").close()
c = s.accept()[0]
c.send(b"220 mail ready, what do you want of me\r\n")
time.sleep(600)' "$port" "$work/listens" &
  other=$!
  for _ in $(seq 100); do [ -e "$work/listens" ] && break || sleep 0.1; done
  start 0 2 $few --device cpu --out "$work/several"
  ended 0 1 "mixtape: processes: rank 0 can't wait at port $port: Address already in use; choose another MASTER_PORT"
  start 1 2 $few --device cpu --out "$work/several"
  ended 1 1 "what is there is no mixtape"
  kill $other
  wait $other 2>/dev/null
  rm "$work/listens"
  port=$(free_port)
  for rank in 0 1; do start $rank 2 $tiny --steps 3 --batch 1 --device cpu --out "$work/several"; done
  ended 0 2 "the processes have 2 devices, which share a batch of 1 row"
  ended 1 1 "mixtape: rank 1: "
  [ ! -e "$work/several" ] || complain "a run that could not be wrote something"
}

# What the environment lacks; what is there for other reasons changes nothing.
# shellcheck disable=SC2086
{
  WORLD_SIZE=2 expect_line 2 "RANK is not set, expected it for a run of 2 processes" $few --out "$work/new"
  WORLD_SIZE=2 RANK=2 expect_line 2 "RANK is 2, expected 0 to 1" $few --out "$work/new"
  WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 expect_line 2 "MASTER_ADDR is not set" $few --out "$work/new"
  OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 expect_line 2 "OMPI_COMM_WORLD_LOCAL_RANK is not set" $few --out "$work/new"
  SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 expect_line 2 "SLURM_PROCID is not set" $few --out "$work/new"
  SLURM_NTASKS=2 SLURM_PROCID=0 expect 0 "peak memory" $few --dry-run --out "$work/new"
  WORLD_SIZE=1 RANK=7 LOCAL_RANK=7 expect 0 "peak memory" $few --dry-run --device cpu --out "$work/new"
  RANK=7 LOCAL_RANK=7 expect 0 "peak memory" $few --dry-run --device cpu --out "$work/new"
  WORLD_SIZE=2 RANK=1 expect 0 "llama" info $model
}

only story log out.0 err.0 out.1 err.1 out.2 err.2
finish
