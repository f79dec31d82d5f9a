#!/bin/bash
# What a card beside the sockets gains: datagrams of as many players as a burst has, sent back by a driver through sockets and in frames
# (AF_XDP in copy mode, on a veth). Processor time of both sides for each datagram; the contenders take turns, medians count.
#
#     cargo build --profile dist -p ringgate-io -p ringgate-xdp --examples
#     benches/card.sh
#
# It takes root and half a minute. Both sides share one core, at one real-time priority where that is allowed, so that each runs until it has
# nothing left to do: queues are full, and nobody pays for wake-ups. What can be set, from outside, and what it is without:
set -euo pipefail
: "${ROUNDS:=5}"
: "${BURSTS:=3000}"      # of 64 datagrams
: "${CORE:=1}"
: "${BIN:=target/dist/examples}"

cd "$(dirname "$0")/.."
. benches/rig.sh
need_root
for program in serve echo; do
    [[ -x $BIN/$program ]] || fail "$BIN/$program is missing: cargo build --profile dist -p ringgate-io -p ringgate-xdp --examples"
done
gateway=card-g$$ player=card-p$$ said=$work
make_wire "$gateway" "$player" 10.97.0
first=(taskset -c "$CORE")
chrt -f 10 true 2>/dev/null && first+=(chrt -f 10)
address=10.97.0.1:4000

# One contender, once: what each side says of its processor time.
run() {
    local server
    : >"$said/serve"
    ip netns exec "$gateway" "${first[@]}" "$BIN/serve" "$@" >"$said/serve" &
    server=$!
    wait_for "$said/serve" ready "$server" || fail "the driver did not start"
    ip netns exec "$player" "${first[@]}" "$BIN/echo" ask "$address" "$BURSTS" >"$said/ask"
    wait "$server"
    grep -q "$((BURSTS * 64)) of $((BURSTS * 64)) came back" "$said/ask" || fail "datagrams were lost: $(cat "$said/ask")"
    sed -n 's/.* datagrams, \([0-9]*\) ns of.*/\1/p' "$said/serve" "$said/ask" | paste -sd ' '
}

median() {
    sort -n | awk '{ it[NR] = $1 } END { print it[int((NR + 1) / 2)] }'
}

contenders=("uring $address" "uring $address wire0" "mmsg $address" "mmsg $address wire0")
for ((round = 0; round < ROUNDS; round++)); do
    for at in "${!contenders[@]}"; do
        read -ra words <<<"${contenders[at]}"
        run "${words[@]}" >>"$said/$at"
    done
done
printf '%-28s %8s %8s\n' "ns per datagram" serve all
for at in "${!contenders[@]}"; do
    serve=$(cut -d ' ' -f 1 "$said/$at" | median)
    all=$(awk '{ print $1 + $2 }' "$said/$at" | median)
    printf '%-28s %8d %8d\n' "${contenders[at]}" "$serve" "$all"
done
