#!/bin/bash
# What a trunk costs a gateway over a local bundle link, and what it adds on the way: payloads of 100 bytes at a rate each way, between a
# worker's driver and an agent in another network namespace, or a game process beside it. The cost is the processor time of the whole
# process at the gateway, without the gate, which does the same in both, divided by the payloads of both directions; what is printed as
# "added" is the difference of the two.
#
#     cargo build --release -p ringgate-trunks --example cost
#     benches/trunk.sh
#
# It takes root and two minutes, and wants a quiet machine with two cores. What can be set, from outside, and what it is without:
set -euo pipefail
: "${SECONDS_EACH:=10}"
: "${RATE:=100000}"      # payloads a second, each way
: "${BIN:=target/release/examples}"

cd "$(dirname "$0")/.."
. benches/rig.sh
need_root
[[ -x $BIN/cost ]] || fail "$BIN/cost is missing: cargo build --release -p ringgate-trunks --example cost"
gateway=trunk-g$$ host=trunk-h$$ said=$work
make_wire "$gateway" "$host" 10.96.0

# The worker's end, as "$1"; then the other end. Waits for both, and leaves in $said what they say.
pair() {
    local server
    : >"$said/gateway"
    $1 >"$said/gateway" &
    server=$!
    wait_for "$said/gateway" ready "$server" || fail "the gateway did not start"
    $2 >"$said/other"
    wait "$server"
    sed 's/^/    /' <(grep -v ready "$said/gateway") "$said/other"
}

processor() { sed -n 's/^processor \([0-9.]*\) .*/\1/p' "$said/gateway"; }

# One measurement: the MTU, and records in a bundle.
run() {
    local beside
    echo "MTU $1, $2 records a bundle"
    echo "  a game process beside the gateway"
    rm -f "$said/link"
    pair "$BIN/cost local $said/link $SECONDS_EACH $2 $RATE" "$BIN/cost game $said/link $2 $RATE"
    beside=$(processor)
    for name in "$gateway" "$host"; do ip -n "$name" link set wire0 mtu "$1"; done
    echo "  by an agent"
    pair "ip netns exec $gateway $BIN/cost gateway 10.96.0.1:7400 $SECONDS_EACH $2 $RATE" \
        "ip netns exec $host $BIN/cost agent 10.96.0.1:7400 $2 $RATE"
    awk -v one="$beside" -v other="$(processor)" 'BEGIN { printf "  added: %.3f us a payload\n", other - one }'
}

run 9000 64
run 1500 64
run 1500 16
run 1500 1
