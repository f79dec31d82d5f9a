#!/bin/bash
# What waiting for more costs and saves (`batch_delay`): the gateway with each choice, its game process beside it on one core, over a game
# server on the renetcode crate that is woken by each datagram there. Processor time is of all threads of both processes, from the
# scheduler's books; medians of rounds in which all take turns.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     (cd benches/peers && cargo build --release)
#     sudo benches/pace.sh
#
# It says first what a sleep costs there, by which `auto` decides, and leaves the rest to peers/fleet.sh, which names what else can be set.
# Takes about twelve minutes, and wants a quiet machine.
set -euo pipefail
: "${GATE_CORE:=0}" "${BIN:=target/dist}"
export GATE_CORE BIN KNEE=no OVER=renetcode ROUNDS="${ROUNDS:-5}" HOLD="${HOLD:-1500ms}"
export CONTENDERS="${CONTENDERS:-renetcode bundle-spin bundle-0us bundle-auto bundle-200us bundle-500us bundle-tick bundle-two udp-0us udp-auto udp-nice}"

cd "$(dirname "$0")/.."
taskset -c "$GATE_CORE" "$BIN/ringgate" doctor | grep -A2 ' a sleep ' || true
exec benches/peers/fleet.sh
