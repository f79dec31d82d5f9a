#!/bin/bash
# What a trunk costs a gateway over a local bundle link, and what it adds on the way: payloads of 100 bytes at a rate each way, between a
# worker's driver and an agent in another network namespace, or a game process beside it. The cost is the processor time of the whole
# process at the gateway, without the gate, which does the same in both, divided by the payloads of both directions.
#
# Both are there at once and take turns in short slices, because what else the machine does changes from second to second, and more than
# what is measured. Each slice of the agent's is compared with the game process's just before it; "added" is the median of the differences.
#
#     cargo build --profile dist -p ringgate-trunk --example cost
#     benches/trunk.sh
#
# It takes root and two minutes, and wants a quiet machine with two cores. What can be set, from outside, and what it is without:
set -euo pipefail
: "${PAIRS:=12}"         # of slices
: "${SLICE_MS:=1000}"
: "${RATE:=100000}"      # payloads a second, each way
: "${BIN:=target/dist/examples}"
: "${ROWS:=9000:64 1500:64 1500:16 1500:1}"

cd "$(dirname "$0")/.."
. benches/rig.sh
need_root
[[ -x $BIN/cost ]] || fail "$BIN/cost is missing: cargo build --profile dist -p ringgate-trunk --example cost"
gateway=trunk-g$$ host=trunk-h$$ said=$work
make_wire "$gateway" "$host" 10.96.0

# The costs of all slices, one in a line.
slices() { sed -n 's/^slice \([0-9.]*\) .*/\1/p' "$said/$1"; }

middle() { sort -g | awk '{ all[NR] = $1 } END { print NR % 2 ? all[(NR + 1) / 2] : (all[NR / 2] + all[NR / 2 + 1]) / 2 }'; }

tell() { echo "  $2"; grep -hv -e '^slice' -e '^ready' "$said/$1" "$said/$3" | sed 's/^/    /'; }

# One row: the MTU, and records in a bundle.
run() {
    local start all=()
    echo "MTU $1, $2 records a bundle"
    rm -f "$said/link"
    : >"$said/local"; : >"$said/gateway"
    for name in "$gateway" "$host"; do ip -n "$name" link set wire0 mtu "$1"; done
    start=$(($("$BIN/cost" now) + 6000000))
    "$BIN/cost" local "$said/link" "$2" "$RATE" "$start" "$PAIRS" "$SLICE_MS" >"$said/local" & all+=($!)
    ip netns exec "$gateway" "$BIN/cost" gateway 10.96.0.1:7400 "$2" "$RATE" "$start" "$PAIRS" "$SLICE_MS" >"$said/gateway" & all+=($!)
    wait_for "$said/local" ready "${all[0]}" || fail "the gateway without an agent did not start"
    wait_for "$said/gateway" ready "${all[1]}" || fail "the gateway did not start"
    "$BIN/cost" game "$said/link" "$2" "$RATE" >"$said/game" & all+=($!)
    ip netns exec "$host" "$BIN/cost" agent 10.96.0.1:7400 "$2" "$RATE" >"$said/agent" & all+=($!)
    children=("${all[@]}")
    for one in "${all[@]}"; do wait "$one"; done
    children=()
    tell local "a game process beside the gateway: $(slices local | middle) us of the processor for a payload" game
    tell gateway "by an agent: $(slices gateway | middle) us" agent
    paste <(slices local) <(slices gateway) | awk '{ print $2 - $1 }' | sort -g >"$said/added"
    awk -v middle="$(middle <"$said/added")" 'NR == 1 { least = $1 } { most = $1 }
        END { printf "  added: %.3f us a payload (%.3f to %.3f)\n", middle, least, most }' "$said/added"
}

for row in $ROWS; do run "${row%:*}" "${row#*:}"; done
