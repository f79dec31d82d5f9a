#!/bin/bash
# A thousand players behind a bad network, moved between the game processes of two other hosts (agents in network namespaces): what is
# lost, and what a move takes.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     sudo benches/move.sh
#
# It takes root and under three minutes; what it says of gaps and processor time wants a quiet machine with two cores. Three runs: the
# players stay where they are; they are moved MOVES times; they speak half as much and are moved MOVES times in a row, for what a move
# takes by itself and what a player takes who was moved, beside what it took before. The game processes say which messages of each player they
# have heard between its coming and its going; put together there is each message once. It ends with 1 where a bound is missed. What can
# be set, and what it is without:
set -euo pipefail
: "${PLAYERS:=1000}"
: "${HZ:=10}"                      # messages a second of each, sent back
: "${BYTES:=100}"
: "${MOVES:=10}"                   # of everybody, PAUSE_S after each other
: "${PAUSE_S:=3}"
: "${RAMP_S:=5}" "${QUIET_S:=10}"
: "${NETWORK:=PktLag=50 PktLoss=5 PktIncomingLagMin=50 PktIncomingLagMax=50 PktIncomingLoss=5}"
: "${BIN:=target/dist}"            # ringgate, ringgate-loadgen
: "${GATE_CORE:=0}" "${LOAD_CORE:=1}"  # agents and game processes are on the generator's

cd "$(dirname "$0")/.."
. benches/rig.sh
need_root
need ringgate ringgate-loadgen
gateway=move-g$$ north=move-n$$ south=move-s$$
make_wire "$gateway" "$north" 10.96.0
make_wire "$gateway" "$south" 10.96.1 1
listener=127.0.0.1:41800 admin=127.0.0.1:41801

new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
certificate() { # NAME, and what it is for
    openssl req $new -subj "/CN=$1" -keyout "$work/$1.key" -out "$work/$1.csr"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=$2") -out "$work/$1.pem"
    chmod 600 "$work/$1.key"
}
{
    openssl req -x509 $new -days 2 -subj /CN=trunks -keyout "$work/ca.key" -out "$work/ca.pem"
    certificate gate IP:10.96.0.1,IP:10.96.1.1
    certificate north DNS:north
    certificate south DNS:south
} 2>"$work/openssl.log" || { cat "$work/openssl.log" >&2; fail "openssl made no certificates"; }

agent() { # NAME, where the gateway is, and the host
    cat >>"$work/gate.toml" <<TOML
[[backend]]
name = "$1"
link = "bundle"
slots = $PLAYERS
[[agent]]
name = "$1"
bind = "$2:7200"
ca = "ca.pem"
certificate = "gate.pem"
key = "gate.key"
backends = ["$1"]
TOML
    cat >"$work/$1.toml" <<TOML
[agent]
name = "$1"
gateways = ["$2:7200"]
ca = "ca.pem"
certificate = "$1.pem"
key = "$1.key"
run_dir = "$1"
[[backend]]
name = "$1"
link = "bundle"
slots = $PLAYERS
TOML
}
start() { # NAME CORE NAMESPACE PROGRAM ...
    local log=$work/$1.log
    taskset -c "$2" ip netns exec "$3" "${@:4}" >"$log" 2>&1 &
    children+=($!)
}
cat >"$work/gate.toml" <<TOML
[gateway]
workers = 1
pin = false
run_dir = "run"
state_dir = "state"
[admin]
bind = "$admin"
[[listener]]
name = "n"
protocol = "netcode"
delivery = "gateway"
bind = ["$listener"]
protocol_id = 7
keys = [{ file = "netcode.key" }]
backends = ["north"]
moves = ["north", "south"]
keep_alive = "1s"
limits = { requests_per_block = 0, handshakes_per_block = 0 }
TOML
agent north 10.96.0.1
agent south 10.96.1.1
"$BIN/ringgate" keygen --out "$work/netcode.key" >"$work/keygen.log"
start gate "$GATE_CORE" "$gateway" "$BIN/ringgate" run --config "$work/gate.toml"
gate=${children[0]}
wait_for "$work/gate.log" "^ready" "$gate" || { cat "$work/gate.log" >&2; fail "the gateway did not start"; }
games=()
for host in north south; do
    start "agent-$host" "$LOAD_CORE" "${!host}" "$BIN/ringgate" agent --config "$work/$host.toml"
    until [[ -S $work/$host/worker-0.sock ]]; do
        kill -0 "${children[-1]}" 2>/dev/null || { cat "$work/agent-$host.log" >&2; fail "an agent did not start"; }
        sleep 0.05
    done
    start "$host" "$LOAD_CORE" "${!host}" "$BIN/ringgate-loadgen" serve --messages --socket "$work/$host" --name "$host"
    games+=("${children[-1]}")
done
control() { curl -sS --unix-socket "$work/run/control.sock" "$@"; }
status() { "$BIN/ringgate" status --control "$work/run/control.sock" 2>/dev/null; }
wait_until() { # what is waited for, and how to see it
    for _ in {1..1200}; do
        if eval "$2"; then return; fi
        sleep 0.05
    done
    cat "$work"/*.log >&2
    fail "$1 did not come about"
}
wait_until "both game processes" '(($(status | grep -cE "^ *(north|south) .*up") == 2))'

metric() { control http://ringgate/metrics | grep -E "^$1" | awk '{ sum += $NF } END { printf "%.0f", sum }' || true; }
# What a game process said to players whom it had lost already.
late() { metric 'ringgate_drops_total.*"(message_)?after_move"'; }
# Nanoseconds of processor time of the gateway, of all threads, in steps of 10 ms.
used() { awk '{ sub(/.*\) /, ""); printf "%.0f", ($12 + $13) * 1e7 }' "/proc/$gate/stat"; }

moved=0 longest=0
# Everybody to the other host; $longest is how many ms that has taken at most.
move() {
    local start=$(date +%s%N) answer ms
    answer=$(control -X POST "http://ringgate/sessions/move?backend=$here&to=$there")
    ms=$((($(date +%s%N) - start) / 1000000))
    ((longest = ms > longest ? ms : longest)) || true
    [[ $answer =~ \"moved\":([0-9]+) ]] || fail "the gateway answered $answer"
    ((moved += BASH_REMATCH[1])) || true
    [[ ${BASH_REMATCH[1]} == "$PLAYERS" ]] || echo "    not everybody: $answer" >&2
    local was=$here
    here=$there there=$was
}

# play NAME RATE SECONDS WHAT: a run of the generator, and what is done meanwhile, once everybody plays.
play() {
    start "$1" "$LOAD_CORE" "$gateway" "$BIN/ringgate-loadgen" run --server "$listener" --key "$work/netcode.key" --protocol-id 7 \
        --admin "$admin" --arrivals ticks --timeout 60 --keep-alive 1s --sessions "$PLAYERS" --ramp "${RAMP_S}s" --hold "$3s" \
        --delivery reliable --hz "$2" --bytes "$BYTES" --impair "$NETWORK" --out "$work/$1"
    local run=${children[-1]}
    here=north there=south
    wait_until "$PLAYERS players" '(($(metric 'ringgate_sessions\{') >= PLAYERS))'
    sleep 2
    "$4"
    wait "$run" || outcome=1
    unset 'children[-1]'
    sed -n '/UNEXPLAINED\|^ *NO /p' "$work/$1.log" >&2
}
of() { grep -oP "\"$2\": ?\K[0-9]+" "$work/$1/run.json" | head -1; }
nobody() { :; }
walk() {
    local n
    for ((n = 0; n < MOVES; n++)); do
        move
        sleep "$PAUSE_S"
    done
}
# Processor time of two windows, and of moves between them.
in_a_row() {
    local n start from until_ns
    from=$(used); sleep "$QUIET_S"; before=$(($(used) - from))
    moved=0 longest=0 from=$(used) start=$(date +%s%N)
    for ((n = 0; n < MOVES; n++)); do move; done
    until_ns=$(date +%s%N)
    bulk_s=$(awk -v ns=$((until_ns - start)) 'BEGIN { print ns / 1e9 }')
    bulk_ns=$(($(used) - from))
    sleep 2
    from=$(used); sleep "$QUIET_S"; after=$(($(used) - from))
}

outcome=0
# The first to come stay until the last move, too.
hold=$((RAMP_S + 2 + MOVES * PAUSE_S + 5))
play still "$HZ" "$hold" nobody
late=$(late)
play walking "$HZ" "$hold" walk
late=$(($(late) - late))
walked=$moved walked_ms=$longest
play bulk "$(awk -v hz="$HZ" 'BEGIN { print hz / 2 }')" $((RAMP_S + 2 * QUIET_S + 20)) in_a_row

for game in "${games[@]}"; do kill "$game"; done
for game in "${games[@]}"; do wait "$game" 2>/dev/null || true; done
# Each player's stays at both, in order: they begin with the first message, and each where the one before has ended.
heard=$(cat "$work/north.log" "$work/south.log" | grep '^stay ' | sort -k2,2n -k3,3n -k4,4n | awk '
    { of = $2 " " $3; if (of != last) next_one = 0; last = of }
    $4 > next_one { lost += $4 - next_one }
    $4 < next_one { doubled += next_one - $4 }
    { out_of_order += $6; total += $5 - $4; next_one = $5 }
    END { printf "%.0f %d %d %d %d", total, lost, doubled, out_of_order, NR }')
read -r total lost doubled out_of_order stays <<<"$heard"

missed=0
verdict() { # WHAT, figure, AT MOST, unit
    local word=ok
    awk -v is="$2" -v most="$3" 'BEGIN { exit !(is != "" && is <= most) }' || { word=MISSED missed=1; }
    printf '%-7s %s: %s%s (at most %s)\n' "$word" "$1" "$2" "${4:+ $4}" "$3"
}
sum() { local n=0 run; for run in still walking bulk; do n=$((n + $(of "$run" "$1"))); done; echo "$n"; }
# The p99.9 of the time from one echo to the next, in ms.
gap() {
    awk '$1 == "gap" { value = $9; unit = $10
        print unit == "s" ? value * 1000 : unit == "ms" ? value : value / 1000 }' "$work/$1.log"
}
delivered=$(sum messages_delivered) given_up=$(sum messages_given_up)
echo "$total messages heard in $stays stays at two game processes, $delivered known to have arrived; $walked and $moved moves"
verdict "messages lost" "$((lost + (delivered > total ? delivered - total : 0)))" 0
verdict "heard and never sent" "$((total > delivered + given_up ? total - delivered - given_up : 0))" 0
verdict "messages doubled" "$doubled" 0
verdict "messages out of order" "$out_of_order" 0
verdict "echoes lost, doubled or out of order, but for those after a move" \
    "$(($(sum skipped) - $(late) + $(sum duplicates) + $(sum reordered)))" 0
echo "        echoes that a game process said after a move, while players walked: $late"
round_trip=$(ip netns exec "$gateway" ping -q -c 5 -i 0.2 10.96.1.2 2>/dev/null | awk -F/ '/^rtt/ { print $5 }' || true)
verdict "p99.9 of gaps above that without moves ($(gap still) ms)" \
    "$(awk -v a="$(gap walking)" -v b="$(gap still)" 'BEGIN { print a - b }')" \
    "$(awk -v rtt="${round_trip:-0}" 'BEGIN { printf "%.2f", 1000 / 60 + rtt }')" ms
verdict "the longest that $PLAYERS players took to be moved" "$((walked_ms > longest ? walked_ms : longest))" 5000 ms
verdict "processor time of a move ($(awk -v n="$moved" -v s="$bulk_s" 'BEGIN { printf "%.0f", n / s }') a second)" \
    "$(awk -v ns="$bulk_ns" -v quiet="$before" -v q="$QUIET_S" -v s="$bulk_s" -v n="$moved" \
        'BEGIN { if (n) printf "%.1f", (ns - quiet * s / q) / n / 1000 }')" 20 us
verdict "processor time afterwards, over that before" "$(awk -v a="$after" -v b="$before" 'BEGIN { printf "%.3f", a / b }')" 1.05
((outcome == 0)) || { echo "MISSED  a run's books, see above"; missed=1; }
exit $missed
