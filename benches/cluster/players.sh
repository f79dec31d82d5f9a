# shellcheck shell=bash
# Players of a scene, and how it is judged: $FAST of them are heard often, all others now and then. Everything is at a moment of the load
# generator's plan, which two of it have alike.

phase() { echo "[[phase]]"; echo "name = \"$1\""; echo "kind = \"$2\""; echo "seconds = $3"; echo "sessions = $4"
    echo "traffic = { hz = $5, bytes_min = 100, bytes_max = 100 }"; }
# load PLAN FIRST_ADDRESS [SERVER [OPTION...]]
load() {
    inside "$players" "$BIN/ringgate-loadgen" run --server "${3:-10.9.9.9}:40000" --key "$work/key" --protocol-id 7 --players-at "$2" \
        --arrivals ticks --keep-alive "$KEEP_ALIVE" "${@:4}" --scenario "$work/$1.toml" --out "$work/$1" >"$work/$1.log" 2>&1 &
    children+=($!)
}
plan() {
    local part sessions=$1 hz=$2
    shift 2
    phase ramp ramp "$RAMP" "$sessions" "$hz"
    phase head hold "$HEAD" "$sessions" "$hz"
    phase control hold "$CONTROL" "$sessions" "$hz"
    for part in "$@"; do phase "${part%:*}" hold "${part##*:}" "$sessions" "$hz"; done
}
# until_second SECOND: of the plan.
until_second() {
    local left=$(((began + $1 * 1000000000 - $(date +%s%N)) / 1000000))
    ((left > 0)) || return 0
    sleep "$(printf '%d.%03d' $((left / 1000)) $((left % 1000)))"
}
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
idle() { awk -v c="cpu$1" '$1 == c { print $5 + $6 }' /proc/stat; }
hz=$(getconf CLK_TCK)
verdict=0

# begin_scene PART:SECONDS...: what comes behind the control. Returns when that is over.
begin_scene() {
    local core i n free seconds from
    local -A before
    plan "$FAST" "$HZ" "$@" >"$work/fast.toml"
    plan $((SESSIONS - FAST)) "$SLOW_HZ" "$@" >"$work/slow.toml"
    load fast 10.80.0.0
    fast=$!
    load slow 10.96.0.0
    slow=$!
    began=$(date +%s%N)
    local who=(agent "$agent" game "$game" etcd "$etcd" fast "$fast" slow "$slow")
    for ((n = 1; n <= gateways; n++)); do who+=("gate-$n" "${gate[$n]}"); done
    until_second $((RAMP + HEAD))
    all_stand_by "everybody is in"
    echo "sessions of each gateway: $(for ((n = 1; n <= gateways; n++)); do owned "$n"; done | paste -sd' ')"
    for core in ${CORES//,/ }; do before[$core]=$(idle "$core"); done
    for ((i = 0; i < ${#who[@]}; i += 2)); do before[${who[i]}]=$(ticks "${who[i + 1]}"); done
    from=$(date +%s%N)
    behind=$((RAMP + HEAD + CONTROL))
    until_second "$behind"
    seconds=$((($(date +%s%N) - from) / 1000000))
    echo "control, percent of a core:"
    for core in ${CORES//,/ }; do
        free=$((($(idle "$core") - ${before[$core]}) * 100000 / hz / seconds))
        echo "  core $core idle: $free"
        ((free >= 30)) || { echo "  TOO LITTLE: the run means nothing"; verdict=1; }
    done
    for ((i = 0; i < ${#who[@]}; i += 2)); do
        echo "  ${who[i]}: $((($(ticks "${who[i + 1]}") - ${before[${who[i]}]}) * 100000 / hz / seconds))"
    done
}
# all_stand_by WHEN: all sessions have a standby.
all_stand_by() {
    local n
    is_complete "$SESSIONS" && return
    echo "$1: NOT ALL OF $SESSIONS SESSIONS HAVE A STANDBY:"
    for ((n = 1; n <= gateways; n++)); do cluster_of "$n"; done
    verdict=1
}
books() {
    local n
    for n in "$@"; do
        curl -fs --unix-socket "$work/g$n/control.sock" 'http://localhost/metrics?as_of=now' >"$work/page-$n"
        ! grep -q '^ringgate_conserved.* 0$' "$work/page-$n" || { echo "  THE BOOKS OF gate-$n DO NOT BALANCE"; verdict=1; }
    done
}
# of_all COUNTER: of pages that `books` has read.
of_all() { cat "$work"/page-* | awk -v name="ringgate_cluster_$1_total" '$1 == name { sum += $2 } END { print sum + 0 }'; }

# end_scene LOST: what players have noticed, of whom so many lose their session because somebody wants that.
end_scene() {
    local load
    for load in "$fast" "$slow"; do wait "$load" || true; done
    for load in fast slow; do [[ -s $work/$load/run.json ]] || { cat "$work/$load.log" >&2; fail "the generator has failed"; }; done
    # Of each phase: players, and the silence that half and 99 % of them did not exceed; of those who were silent as long as the router
    # was dark the same. Others were at another gateway.
    echo "silence of players at $HZ payloads a second, ms:"
    echo "phase,players,p50,p99,max,hit,hit_p50,hit_p99"
    jq -r --argjson dark "$DARK_MS" 'def at(p): (length * p / 100 | ceil | if . < 1 then 1 else . end) as $n | .[$n - 1] // 0;
        .silences[2:][] | .phase as $phase | [.players_by_ms | to_entries[] | .key as $ms | range(.value) | $ms | tonumber] | sort
        | [.[] | select(. >= $dark)] as $hit
        | [$phase, length, at(50), at(99), max, ($hit | length), ($hit | at(50)), ($hit | at(99))] | @csv' "$work/fast/run.json" | tr -d '"'
    for load in fast slow; do
        jq -r --arg load "$load" --argjson from $((RAMP + HEAD)) --argjson to "$behind" '
            ([.intervals[] | select(.start_s >= $from and .start_s < $to) | .lost] | add) as $control | .counters
            | "\($load): \(.connected) came in, \(.sessions_lost) lost; \(.payloads_due) payloads due, \(.missing) missing, \($control) of them in the control; \(.duplicates) twice, \(.misdelivered) for somebody else, \(.corrupt) corrupt"
        ' "$work/$load/run.json"
        jq -e --argjson from $((RAMP + HEAD)) --argjson to "$behind" '
            ([.intervals[] | select(.start_s >= $from and .start_s < $to) | .lost] | add) == 0 and
            (.counters | .duplicates + .misdelivered + .corrupt + .connect_failed + .unfinished == 0)
        ' "$work/$load/run.json" >/dev/null || verdict=1
    done
    [[ $(jq -s 'map(.counters.sessions_lost) | add' "$work"/{fast,slow}/run.json) == "$1" ]] || { echo "OTHER THAN $1 SESSIONS ARE LOST"; verdict=1; }
    grep -h -E '^ringgate_cluster_(not_)?taken_over_total|^ringgate_cluster_(fenced|moved|ends_untold)_total' "$work"/page-* | sort |
        awk '{ sum[$1] += $2 } END { for (name in sum) if (sum[name]) print name, sum[name] }'
    exit "$verdict"
}
