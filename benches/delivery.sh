#!/bin/bash
# A thousand players of a game server in C, which sends levels and snapshots whole, over a bad network: every message accounted for at both ends.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     benches/delivery.sh
#
# It takes a minute, no root. Players order levels with messages as long as levels. At the end come the generator's table, in which all books are
# closed, and the game server's last line. It ends with 0 if every message is accounted for. What can be set, and what it is without:
set -euo pipefail
: "${PLAYERS:=1000}"
: "${HZ:=0.1}"                     # orders a second of each
: "${BYTES:=20480}"                # of an order; a level has as many
: "${RAMP:=10s}" "${HOLD:=30s}"
: "${NETWORK:=PktLag=50 PktLoss=5 PktIncomingLoss=5}"
: "${BIN:=target/dist}"         # ringgate, ringgate-loadgen
: "${PORT:=41800}" "${ADMIN:=41801}"

cd "$(dirname "$0")/.."
. benches/rig.sh
need ringgate ringgate-loadgen
cat >"$work/gate.toml" <<END
[gateway]
workers = 1
pin = false
run_dir = "$work/run"
state_dir = "$work/state"
[[listener]]
name = "n"
protocol = "netcode"
delivery = "gateway"
bind = ["127.0.0.1:$PORT"]
protocol_id = 7
keys = [{ file = "key" }]
backends = ["arena-1"]
keep_alive = "1s"
limits = { requests_per_block = 0, handshakes_per_block = 0 }
[[backend]]
name = "arena-1"
link = "bundle"
slots = $PLAYERS
[admin]
bind = "127.0.0.1:$ADMIN"
END
"$BIN/ringgate" keygen --out "$work/key" >"$work/key.log"
cc -std=c99 -O2 -I crates/link/include crates/link/examples/c/messages.c -o "$work/messages"
"$BIN/ringgate" run --config "$work/gate.toml" >"$work/gate.log" 2>&1 &
children+=($!)
wait_for "$work/gate.log" "^ready" "$!" || { cat "$work/gate.log" >&2; fail "the gateway did not start"; }
"$work/messages" "$work/run" arena-1 >"$work/game.log" 2>&1 &
children+=($!)
until "$BIN/ringgate" status --control "$work/run/control.sock" 2>/dev/null | grep -q "arena-1.*up"; do
    kill -0 "${children[1]}" 2>/dev/null || { cat "$work/game.log" >&2; fail "the game server did not start"; }
    sleep 0.05
done
outcome=0
"$BIN/ringgate-loadgen" run --server "127.0.0.1:$PORT" --key "$work/key" --protocol-id 7 --admin "127.0.0.1:$ADMIN" --arrivals ticks \
    --timeout 60 --keep-alive 1s --sessions "$PLAYERS" --ramp "$RAMP" --hold "$HOLD" --delivery levels --hz "$HZ" --bytes "$BYTES" \
    --impair "$NETWORK" 2>"$work/load.log" || outcome=$?
((outcome == 0)) || tail -n 20 "$work/load.log" >&2

# The server says how it stands once a second; the last player has left.
sleep 2
last=$(tail -n 1 "$work/game.log")
echo
echo "game server: $last"
field() { tr ' ' '\n' <<<"$last" | sed -n "s/^$1=//p" | sed -n "${2:-1}p"; }
# Sent, delivered and lost stand behind each other: first of levels, then of snapshots.
if (($(field players) != 0 || $(field levels) != $(field delivered 1) + $(field given_up))) ||
    (($(field snapshots) != $(field delivered 2) + $(field lost))); then
    echo "delivery.sh: the game server's books do not balance" >&2
    outcome=4
fi
exit $outcome
