#!/bin/bash
# What it costs the gateway to be watched: CPU for each round trip with nobody looking, and with a scrape of /metrics each second beside an
# open live page, which asks for /status each second. One gateway for all rounds, in which both take turns; medians of the pairs.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     benches/watched.sh
#
# It takes about 8 minutes, no root, and wants a quiet machine. It ends with 1 where being watched costs more than BOUND percent. What can be
# set, from outside, and what it is without:
set -euo pipefail
: "${ROUNDS:=7}"
: "${RATES:=20000 60000 100000}"   # payloads a second
: "${SESSIONS:=200}"               # players
: "${BYTES:=100}"                  # of a payload
: "${HOLD:=10s}"                   # at each of the rates
: "${EVERY:=1}"                    # seconds between two looks of each watcher
: "${BOUND:=1.0}"                  # percent
: "${GATE_CORE:=0}" "${LOAD_CORE:=1}"
: "${BIN:=target/dist}"         # ringgate, ringgate-loadgen
: "${OUT:=}"                       # a CSV file to keep

cd "$(dirname "$0")/.."
. benches/rig.sh
need ringgate ringgate-loadgen
cores=$(nproc)
((cores >= 2)) || fail "the generator needs a core of its own"
# Watchers take as little as they can, from whoever measures least.
if ((cores > 2)); then watch_core=2; else watch_core=$GATE_CORE; fi
make_key "$work/key"
mkdir "$work/run"
cat >"$work/gate.toml" <<CONFIG
[gateway]
workers = 1
pin = false
run_dir = "$work/run"
[admin]
bind = "127.0.0.1:0"
[[listener]]
name = "watched"
protocol = "netcode"
bind = ["127.0.0.1:0"]
protocol_id = 7
keys = [{ file = "$work/key" }]
backends = ["game"]
[listener.limits]
requests_per_block = 0
handshakes_per_block = 0
sessions_per_address = 0
[[backend]]
name = "game"
slots = 100000
link = "bundle"
CONFIG
taskset -c "$GATE_CORE" "$BIN/ringgate" run --config "$work/gate.toml" >"$work/gate.out" 2>"$work/gate.log" &
gate=$!
children+=("$gate")
wait_for "$work/gate.out" '^ready:' "$gate" || fail "the gateway did not start: $(tail -1 "$work/gate.log")"
front=$(sed -n 's/^listener watched on //p' "$work/gate.out")
admin=$(sed -n 's/^admin on //p' "$work/gate.out")
taskset -c "$GATE_CORE" "$BIN/ringgate" echo --socket "$work/run" --name game >"$work/game.out" 2>&1 &
game=$!
children+=("$game")
wait_for "$work/game.out" '^echo:' "$game" || fail "the game server did not start: $(tail -1 "$work/game.out")"

# Reads a page, as a scraper or a browser does.
look_at() {
    exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$1" "$admin" >&3
    cat <&3 >"$2"
    exec 3>&-
}
watchers=()
watch() {
    look_at / "$work/page"
    for page in /metrics /status; do
        (taskset -cp "$watch_core" "$BASHPID" >/dev/null
            while sleep "$EVERY"; do look_at "$page" /dev/null; done) &
        watchers+=("$!")
        children+=("$!")
    done
}
look_away() {
    for watcher in "${watchers[@]}"; do kill "$watcher" 2>/dev/null || true; wait "$watcher" 2>/dev/null || true; done
    watchers=()
}

play() {
    local round=$1 watched=$2 rate=$3
    rm -f "$work/steps.csv"
    "$BIN/ringgate-loadgen" ladder --server "$front" --key "$work/key" --protocol-id 7 --sessions "$SESSIONS" --bytes "$BYTES" \
        --gateway-pid "$gate" --game-pid "$game" --cores "$LOAD_CORE" --p99 50ms --at "$rate" --ramp 500ms --hold "$HOLD" \
        --arrivals spread --csv "$work/steps.csv" >"$work/ladder.log" 2>&1 || true
    [[ -f $work/steps.csv ]] || fail "the generator could not play: $(tail -1 "$work/ladder.log")"
    awk -F, -v round="$round" -v watched="$watched" -v rate="$rate" 'NR == 1 {
        for (i = 1; i <= NF; i++) column[$i] = i
        next
    } { print round "," watched "," rate "," $column["gateway_us"] "," $column["p99_ns"] }' "$work/steps.csv" >>"$work/rounds.csv"
}

echo "round,watched,rate,gateway_us,p99_ns" >"$work/rounds.csv"
for ((round = 1; round <= ROUNDS; round++)); do
    for rate in $RATES; do
        # Who goes first takes turns too.
        for watched in $( ((round % 2)) && echo no yes || echo yes no); do
            if [[ $watched == yes ]]; then watch; fi
            play "$round" "$watched" "$rate"
            look_away
        done
    done
    echo "round $round of $ROUNDS is over" >&2
done
[[ -z $OUT ]] || cp "$work/rounds.csv" "$OUT"

awk -F, -v bound="$BOUND" '
    function median(list, count,    i, j, t) {
        for (i = 2; i <= count; i++)
            for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
    }
    NR == 1 { next }
    { us[$3, $1, $2] = $4; if (!($3 in seen)) { seen[$3] = 1; rates[++rate_count] = $3 } rounds = $1 }
    END {
        printf "%10s %14s %14s %10s\n", "rate", "unwatched µs", "watched µs", "cost"
        for (r = 1; r <= rate_count; r++) {
            for (n = 1; n <= rounds; n++) {
                a[n] = us[rates[r], n, "no"]
                b[n] = us[rates[r], n, "yes"]
                d[n] = (b[n] - a[n]) / a[n] * 100
            }
            cost = median(d, rounds)
            printf "%10d %14.3f %14.3f %9.2f%%\n", rates[r], median(a, rounds), median(b, rounds), cost
            if (cost > bound) failed = 1
        }
        exit failed
    }' "$work/rounds.csv"
