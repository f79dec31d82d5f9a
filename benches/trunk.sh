#!/bin/bash
# What a trunk costs a gateway over a local bundle link, and what it adds on the way: payloads of 100 bytes at a rate each way between two
# network namespaces. The cost is the processor time of the trunk's thread, in which all of it happens, divided by the payloads of both
# directions; the delay is from a worker's socket to the agent's end, and back, the network included.
#
#     cargo build --release -p ringgate-trunks --example cost
#     benches/trunk.sh
#
# It takes root and a minute and a half, and wants a quiet machine with two cores. What can be set, from outside, and what it is without:
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

# One measurement: the MTU, and records in a bundle.
run() {
    local server
    for name in "$gateway" "$host"; do ip -n "$name" link set wire0 mtu "$1"; done
    : >"$said/gateway"
    ip netns exec "$gateway" "$BIN/cost" gateway 10.96.0.1:7400 "$SECONDS_EACH" "$2" "$RATE" >"$said/gateway" &
    server=$!
    wait_for "$said/gateway" ready "$server" || fail "the gateway did not start"
    ip netns exec "$host" "$BIN/cost" agent 10.96.0.1:7400 "$2" "$RATE" >"$said/agent"
    wait "$server"
    echo "MTU $1, $2 records a bundle"
    sed 's/^/  /' <(grep -v ready "$said/gateway") "$said/agent"
}

run 9000 64
run 1500 64
run 1500 16
run 1500 1
