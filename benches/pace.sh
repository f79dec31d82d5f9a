#!/bin/bash
# What waiting for more costs and saves (`batch_delay`): the gateway with each choice, its game process beside it on one core, over a game
# server on the renetcode crate that is woken by each datagram there. Processor time is of all threads of both processes, from the
# scheduler's books; medians of rounds in which all take turns.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     (cd benches/peers && cargo build --release)
#     sudo benches/pace.sh
#
# It says first what a sleep costs there, by which `auto` decides, leaves the rest to peers/fleet.sh, which names what else can be set,
# and judges `auto` by what is asked of it where a sleep costs so much; it ends with 1 where that is missed. A turn of one contender takes
# 12 s, and twice that where a worker has to fall asleep first: all of them 8 minutes with ROUNDS=3 and 13 with ROUNDS=5, and these, which
# is what the verdict needs, 4 with ROUNDS=5:
#
#     CONTENDERS="renetcode bundle-0us bundle-auto bundle-200us" ROUNDS=5 sudo -E benches/pace.sh
#
# It wants a quiet machine.
set -euo pipefail
: "${GATE_CORE:=0}" "${BIN:=target/dist}"
export GATE_CORE BIN KNEE=no OVER=renetcode ROUNDS="${ROUNDS:-5}" HOLD="${HOLD:-1500ms}"
export CONTENDERS="${CONTENDERS:-renetcode bundle-spin bundle-0us bundle-auto bundle-200us bundle-500us bundle-tick bundle-two bundle-awake udp-0us udp-auto udp-nice}"

cd "$(dirname "$0")/.."
doctor=$(taskset -c "$GATE_CORE" "$BIN/ringgate" doctor | grep -A2 ' a sleep ' || true)
echo "$doctor"
# Between 5 and 10 µs nothing was asked for, and the milder half of both holds.
bounds() {
    awk -v us="$1" 'BEGIN {
        cpu = us < 10 ? 1.1 : 0.9
        split(us < 5 ? "150 100 100" : "350 350 350", p50)
        printf "20000:%s:%d:500 60000:0.7:%d:500 100000:0.7:%d:500", cpu, p50[1], p50[2], p50[3]
    }'
}
us=$(grep -oP '[0-9.]+(?= us of a core)' <<<"$doctor" | head -1 || true)
export BOUNDS="${BOUNDS-$(bounds "${us:-10}")}"
exec benches/peers/fleet.sh
