#!/bin/bash
# How long players wait while a gateway is handed over, and what memory that takes: real processes, one worker and the game process on one
# core, the load generator on another. Each upgrade is told in its parts; the generator's books say whether anybody lost anything.
#
#     cargo build --profile dist --locked -p ringgate -p ringgate-loadgen
#     benches/upgrade.sh                                          # 10,000 players, 50,000 payloads a second each way
#     SESSIONS=1000000 HZ=0.001 KEEP_ALIVE=60s RAMP=150s HOLD=200s benches/upgrade.sh       # a million who are hardly heard; 3 GB
#
# It takes a minute or five, no root, and wants a quiet machine. It ends as the load generator does: with 0 where nothing was lost and every
# datagram is accounted for. What can be set, from outside, and what it is without:
set -euo pipefail
: "${SESSIONS:=10000}"             # players
: "${HZ:=5}"                       # payloads a second of each
: "${KEEP_ALIVE:=100ms}"           # of a player who says nothing
: "${RAMP:=5s}"                    # in which they come
: "${HOLD:=30s}"                   # they play so long; all upgrades should be over by then
: "${UPGRADES:=5}"
: "${EVERY:=2}"                    # seconds between two upgrades
: "${IO:=auto}"                    # of the gateway
: "${WORKERS:=1}"
: "${GATE_CORE:=0}" "${LOAD_CORE:=1}"
: "${REQUIRE:=loss<0.0001%}"       # of the load generator
: "${BIN:=target/dist}"         # ringgate, ringgate-loadgen
: "${OUT:=}"                       # a CSV file to keep

cd "$(dirname "$0")/.."
. benches/rig.sh
need ringgate ringgate-loadgen
control=$work/run/control.sock
status() { "$BIN/ringgate" status --control "$control" --json; }
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9.a-z]*\).*/\1/p" | head -1; }
at_end() {
    # The gateway is another process by now, and ends at the second signal whoever is left.
    [[ -n ${gate:-} ]] || return 0
    for _ in 1 2; do kill "$gate" 2>/dev/null || true; done
}
make_key "$work/key"
mkdir "$work/run"
room=$((SESSIONS + SESSIONS / 10 + 100))
((room <= 1000000)) || room=1000000     # the most slots that a backend has
pace=10s
[[ $KEEP_ALIVE == *ms ]] && pace=100ms
cat >"$work/gate.toml" <<CONFIG
[gateway]
workers = $WORKERS
pin = false
io = "$IO"
log = "json"
run_dir = "$work/run"
state_dir = "$work/state"
[admin]
bind = "127.0.0.1:0"
[[listener]]
name = "players"
protocol = "netcode"
bind = ["127.0.0.1:0"]
protocol_id = 7
keys = [{ file = "$work/key" }]
backends = ["game"]
max_sessions = $room
keep_alive = "$pace"
[listener.limits]
requests_per_block = 0
handshakes_per_block = 0
port_switches_per_block = 0
restarts_per_block = 0
sessions_per_address = 0
[[backend]]
name = "game"
slots = $room
link = "bundle"
CONFIG
taskset -c "$GATE_CORE" "$BIN/ringgate" run --config "$work/gate.toml" >"$work/gate.out" 2>"$work/gate.log" &
gate=$!
children+=("$gate")
wait_for "$work/gate.out" '^ready:' "$gate" || fail "the gateway did not start: $(tail -1 "$work/gate.log")"
front=$(sed -n 's/^listener players on //p' "$work/gate.out")
admin=$(sed -n 's/^admin on //p' "$work/gate.out")
taskset -c "$GATE_CORE" "$BIN/ringgate" echo --socket "$work/run" --name game >"$work/game.out" 2>&1 &
children+=("$!")
wait_for "$work/game.out" '^echo:' "$!" || fail "the game server did not start: $(tail -1 "$work/game.out")"
"$BIN/ringgate-loadgen" run --server "$front" --key "$work/key" --protocol-id 7 --admin "$admin" --cores "$LOAD_CORE" --arrivals ticks \
    --sessions "$SESSIONS" --hz "$HZ" --keep-alive "$KEEP_ALIVE" --timeout 300 --ramp "$RAMP" --hold "$HOLD" --require "$REQUIRE" \
    >"$work/load.log" 2>&1 &
load=$!
children+=("$load")

sessions() { status | sed -n '/"totals"/,/}/p' | field sessions; }
echo "waiting for $SESSIONS players" >&2
while kill -0 "$load" 2>/dev/null; do
    now=$(sessions)
    ((now < SESSIONS)) || break
    sleep 1
done
kill -0 "$load" 2>/dev/null || { cat "$work/load.log" >&2; fail "the generator has ended"; }
sleep "$EVERY"

# KiB of a process, without a process of its own to look: what is its own, and the program and libraries, which are in memory once however many
# processes run them.
resident() {
    local key value rest
    own=0 program=0
    while read -r key value rest; do
        case $key in
        RssAnon: | RssShmem:) own=$((own + value)) ;;
        RssFile:) program=$value ;;
        esac
    done 2>/dev/null <"/proc/$1/status" || true
}
# The most that the gateway and the process that it starts take together, shared memory included.
watch_memory() {
    local old=$1 most=0 sum file child children
    taskset -cp "$LOAD_CORE" "$BASHPID" >/dev/null
    exec 4<> <(:)
    while [[ -e /proc/$old ]]; do
        resident "$old"
        sum=$own file=$program
        for list in /proc/"$old"/task/*/children; do
            read -r children 2>/dev/null <"$list" || true
            for child in ${children:-}; do
                resident "$child"
                sum=$((sum + own))
                if ((program > file)); then file=$program; fi
            done
        done
        sum=$((sum + file))
        if ((sum > most)); then
            most=$sum
            echo "$most" >"$work/most"
        fi
        read -r -t 0.02 -u 4 || true
    done
}

last_event() { grep "\"event\":\"$1\"" "$work/gate.log" | tail -1; }
echo "sessions,hz,driver,upgrade,pause_us,rest_us,write_us,give_us,take_us,read_us,made_us,whole_us,copied_mib,rounds,before_mib,most_mib" \
    | tee "$work/upgrades.csv"
driver=$(status | field driver)
driver=${driver:-$IO}
for ((upgrade = 1; upgrade <= UPGRADES; upgrade++)); do
    resident "$gate"
    before=$((own + program))
    echo "$before" >"$work/most"
    watch_memory "$gate" &
    watcher=$!
    "$BIN/ringgate" upgrade --control "$control" >&2 || { tail -5 "$work/gate.log" >&2; fail "it was not handed over"; }
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    gate=$(status | field pid)
    told=$(last_event handed_over)
    took=$(last_event taken_over)
    of() { field "$1" <<<"$2"; }
    most=$(cat "$work/most")
    echo "$SESSIONS,$HZ,$driver,$upgrade,$(of pause_us "$told"),$(of rest_us "$told"),$(of write_us "$told"),$(of give_us "$told")$(
    ),$(of take_us "$told"),$(of read_us "$took"),$(of made_us "$took"),$(of pause_us "$took"),$(($(of copied_bytes "$told") >> 20))$(
    ),$(of copied_rounds "$told"),$((before >> 10)),$((most >> 10))" | tee -a "$work/upgrades.csv"
    sleep "$EVERY"
done
[[ -z $OUT ]] || cp "$work/upgrades.csv" "$OUT"
code=0
wait "$load" || code=$?
cat "$work/load.log" >&2
exit "$code"
