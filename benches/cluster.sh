#!/bin/bash
# What players notice when a gateway's host dies: three gateways at one address behind a router with equal-cost paths, in network
# namespaces; an agent with the game process, and etcd, on a host of their own; players on another. One after the other a gateway is cut off
# and killed, the router sends its players elsewhere 200 ms later, and the host comes back.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     benches/cluster.sh                          # 10,000 sessions, 1,000 of them at 20 payloads a second; five deaths
#     SESSIONS=200 FAST=50 RAMP=4 HEAD=5 CONTROL=5 EVERY=14 benches/cluster.sh
#     benches/cluster.sh cost                     # what forwarding costs, and being a member
#
# It takes root, etcd, openssl, jq and four minutes, and wants a quiet machine. Everything runs on two cores, so the time before the first
# death is the control: where it loses anything, or leaves less than 30 % of a core idle, the figures mean nothing, and it ends with 1. So it
# does where a session is lost, a payload comes twice, or a survivor's books do not balance.
#
# With `cost` everybody is on one core, and players send in bursts, so that batches are full. Two gateways are a cluster, and the router sends
# the players of the first to the second and back, slice by slice. None sends eight payloads in a slice, after which its session would move.
# The third serves as many others without a cluster, as the first does some by an address of its own. Processor time is the scheduler's, of
# whole processes. What can be set, from outside, and what it is without:
set -euo pipefail
: "${SESSIONS:=10000}"   # players
: "${FAST:=1000}"        # of them, who send HZ payloads a second, and whose silence is told
: "${HZ:=20}"
: "${SLOW_HZ:=1}"        # payloads a second of the others
: "${KEEP_ALIVE:=1s}"    # of both ends
: "${RAMP:=40}"          # seconds in which players come
: "${HEAD:=10}"          # further seconds until everybody is in and has a standby
: "${CONTROL:=20}"       # seconds without a death
: "${DEATHS:=5}"
: "${EVERY:=20}"         # seconds from one to the next
: "${BACK:=6}"           # seconds after which a host is back
: "${DARK_MS:=200}"      # until the router notices
: "${GROUP:=resilient}"  # how the router spreads flows: resilient or plain
: "${WORKERS:=1}"        # of each gateway
: "${CORES:=0,1}"        # with cost: the first of them
: "${SLICES:=11}"        # of a second each way
: "${COST_SESSIONS:=2000}" "${COST_HZ:=4}" "${GATHER:=10ms}"
: "${BIN:=target/dist}"  # ringgate, ringgate-loadgen
: "${OUT:=}"             # a folder for what everybody has said

cd "$(dirname "$0")/.."
. benches/rig.sh
need ringgate ringgate-loadgen
need_root
for program in etcd openssl jq curl; do command -v "$program" >/dev/null || fail "it takes $program"; done
mode=${1:-deaths}
[[ $mode == deaths || $mode == cost ]] || fail "it is called without arguments, or with \`cost\`"
members=(1 2 3)
if [[ $mode == cost ]]; then members=(1 2) CORES=${CORES%%,*}; fi
tag=cl$$ router=cl$$-r players=cl$$-p host=cl$$-h
gateways=3
declare -A gate
at_end() { [[ -z $OUT ]] || { mkdir -p "$OUT" && cp -r "$work"/*.{log,toml} "$work"/fast "$work"/slow "$OUT" 2>/dev/null; } || true; }
# In the place of the shell that says so, whose number is then the program's.
inside() { local where=$1; shift; exec ip netns exec "$where" taskset -c "$CORES" "$@"; }

# wire NAMESPACE NETWORK: to the router, which is NETWORK.1.
wire() {
    make_namespace "$1"
    ip -n "$router" link add "to-$1" type veth peer name e0 netns "$1"
    ip -n "$router" addr add "$2.1/24" dev "to-$1"
    ip -n "$1" addr add "$2.2/24" dev e0
    ip -n "$router" link set "to-$1" up
    ip -n "$1" link set e0 up
    ip -n "$1" route add default via "$2.1"
}
make_namespace "$router"
ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1
wire "$players" 10.2.0
wire "$host" 10.3.0
# Players share a few sockets and have an address each.
ip -n "$players" route add local 10.64.0.0/10 dev lo
ip -n "$router" route add 10.64.0.0/10 via 10.2.0.2
for ((n = 1; n <= gateways; n++)); do
    wire "$tag-$n" "10.1.$n"
    ip -n "$tag-$n" addr add 10.9.9.9/32 dev lo
    # Room for a rule that comes before all others: a host that is cut off neither hears nor says anything, and its wire stays up, as it does
    # beyond a switch. A wire that is taken down would have the router act at once.
    ip -n "$tag-$n" rule add pref 10 lookup local
    ip -n "$tag-$n" rule del pref 0
    ip -n "$router" nexthop add id "$n" via "10.1.$n.2" dev "to-$tag-$n"
done
kind=()
if [[ $GROUP == resilient ]]; then kind=(type resilient buckets 96 idle_timer 1); fi
# spread VERB MEMBER...: the router sends players to these.
spread() {
    local verb=$1 IFS=/
    shift
    ip -n "$router" nexthop "$verb" id 10 group "$*" "${kind[@]}"
}
others() { seq "$gateways" | grep -vx "$1"; }
spread add $(seq "$gateways")
ip -n "$router" route add 10.9.9.9/32 nhid 10

certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/$1.key" -out "$work/$1.csr" -subj "/CN=$1"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 -out "$work/$1.pem" \
        -extfile <(echo "subjectAltName=$2")
} 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/ca.key" -out "$work/ca.pem" -days 2 \
    -subj /CN=bench 2>/dev/null
certificate host-7 DNS:host-7
for ((n = 1; n <= gateways; n++)); do certificate "gate-$n" "DNS:gate-$n.bench.ringgate-cluster,IP:10.1.$n.2"; done
make_key "$work/key"
make_key "$work/fleet.key"

inside "$host" etcd --data-dir "$work/etcd" --unsafe-no-fsync --log-level error --listen-client-urls http://10.3.0.2:2379 \
    --advertise-client-urls http://10.3.0.2:2379 --listen-peer-urls http://127.0.0.1:0 >"$work/etcd.log" 2>&1 &
children+=($!)
etcd=$!
for _ in {1..100}; do
    (inside "$host" curl -fs http://10.3.0.2:2379/health) >"$work/health" 2>&1 && break
    sleep 0.1
done
grep -q true "$work/health" || fail "etcd did not start: $(tail -1 "$work/etcd.log")"

room=$((SESSIONS + SESSIONS / 10 + 100))
config() {
    cat <<CONFIG
[gateway]
workers = $WORKERS
pin = false
log = "json"
run_dir = "$work/g$1"
state_dir = "$work/g$1-state"
drain_timeout = "0s"
reserve_sessions = $room
[[listener]]
name = "players"
protocol = "netcode"
bind = ["10.9.9.9:40000", "10.1.$1.2:40000"]
protocol_id = 7
keys = [{ file = "$work/key" }]
backends = ["game"]
max_sessions = $room
keep_alive = "$KEEP_ALIVE"
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
[[agent]]
name = "host-7"
bind = "10.1.$1.2:4900"
ca = "$work/ca.pem"
certificate = "$work/gate-$1.pem"
key = "$work/gate-$1.key"
backends = ["game"]
[fleet]
endpoints = ["http://10.3.0.2:2379"]
prefix = "/bench"
name = "gate-$1"
region = "here"
host = "host-$1"
key = { file = "$work/fleet.key" }
lease = "2m"
CONFIG
    [[ " ${members[*]} " == *" $1 "* ]] || return 0
    cat <<CONFIG
[cluster]
name = "bench"
bind = "10.1.$1.2:4700"
ca = "$work/ca.pem"
certificate = "$work/gate-$1.pem"
key = "$work/gate-$1.key"
CONFIG
}
start() {
    local out=$work/g$1.out
    mkdir -p "$work/g$1"
    : >"$out"
    inside "$tag-$1" "$BIN/ringgate" run --config "$work/g$1.toml" >"$out" 2>>"$work/g$1.log" &
    gate[$1]=$!
    children+=($!)
    wait_for "$out" '^ready:' "$!" || fail "gateway $1 did not start: $(tail -1 "$work/g$1.log")"
}
cat >"$work/agent.toml" <<CONFIG
[agent]
name = "host-7"
gateways = ["10.1.1.2:4900", "10.1.2.2:4900", "10.1.3.2:4900"]
ca = "$work/ca.pem"
certificate = "$work/host-7.pem"
key = "$work/host-7.key"
run_dir = "$work/host"
state_dir = "$work/host-state"
drain_timeout = "0s"
[[backend]]
name = "game"
slots = $room
link = "bundle"
CONFIG
mkdir "$work/host"
inside "$host" "$BIN/ringgate" agent --config "$work/agent.toml" >"$work/agent.out" 2>"$work/agent.log" &
agent=$!
children+=("$agent")
wait_for "$work/agent.out" '^ready' "$agent" || fail "the agent did not start: $(tail -1 "$work/agent.log")"
inside "$host" "$BIN/ringgate" echo --socket "$work/host" --name game >"$work/game.out" 2>&1 &
game=$!
children+=("$game")
wait_for "$work/game.out" '^echo:' "$game" || fail "the game server did not start: $(tail -1 "$work/game.out")"
for ((n = 1; n <= gateways; n++)); do
    config "$n" >"$work/g$n.toml"
    start "$n"
done

cluster_of() { "$BIN/ringgate" status --control "$work/g$1/control.sock" --json | jq -c .cluster; }
owned() { cluster_of "$1" | jq .sessions.owned; }
# How many sessions all gateways own, where each knows of all players of each other, and all its sessions have a standby; else nothing.
complete() {
    local n sum=0 own
    for n in "${members[@]}"; do
        own=$(cluster_of "$n" | jq "select(.incarnation != null and ([.members[] | select(.forwards and .complete and .can_stand_by)]
            | length == $((${#members[@]} - 1))) and ([.members[].stands_by] | add) == .sessions.owned) | .sessions.owned")
        [[ -n $own ]] || return 0
        sum=$((sum + own))
    done
    echo "$sum"
}
is_complete() { [[ $(complete) == "$1" ]]; }
for _ in {1..100}; do is_complete 0 && break || sleep 0.1; done
is_complete 0 || fail "the gateways do not find each other: $(cluster_of 1)"

# Everything is at a moment of the load generator's plan, which two of it have alike.
phase() { echo "[[phase]]"; echo "name = \"$1\""; echo "kind = \"$2\""; echo "seconds = $3"; echo "sessions = $4"
    echo "traffic = { hz = $5, bytes_min = 100, bytes_max = 100 }"; }
plan() {
    phase ramp ramp "$RAMP" "$@"
    phase head hold "$HEAD" "$@"
    phase control hold "$CONTROL" "$@"
    for ((i = 1; i <= DEATHS; i++)); do phase "death $i" hold "$EVERY" "$@"; done
}
plan "$FAST" "$HZ" >"$work/fast.toml"
plan $((SESSIONS - FAST)) "$SLOW_HZ" >"$work/slow.toml"
# load PLAN FIRST_ADDRESS [SERVER [OPTION...]]
load() {
    inside "$players" "$BIN/ringgate-loadgen" run --server "${3:-10.9.9.9}:40000" --key "$work/key" --protocol-id 7 --players-at "$2" \
        --arrivals ticks --keep-alive "$KEEP_ALIVE" "${@:4}" --scenario "$work/$1.toml" --out "$work/$1" >"$work/$1.log" 2>&1 &
    children+=($!)
}

middle() { sort -g | awk '{ all[NR] = $1 } END { printf "%.2f", NR % 2 ? all[(NR + 1) / 2] : (all[NR / 2] + all[NR / 2 + 1]) / 2 }'; }
# Nanoseconds that a process has had.
spent() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
# Microseconds of each process for a round trip, in a slice of a second.
slices() {
    local one before=() after=() from took
    for one in "$@"; do before+=("$(spent "$one")"); done
    from=$(date +%s%N)
    sleep 1
    for one in "$@"; do after+=("$(spent "$one")"); done
    took=$(($(date +%s%N) - from))
    for one in "${!before[@]}"; do
        awk -v ns=$((after[one] - before[one])) -v took="$took" -v hz=$((COST_SESSIONS * COST_HZ)) \
            'BEGIN { printf "%.3f ", ns / 1000 / (hz * took / 1e9) }'
    done
    echo
}
# The same of all of them together.
slice() { slices "$@" | awk '{ for (i = 1; i <= NF; i++) sum += $i; print sum }'; }
if [[ $mode == cost ]]; then
    at_most=$((4 * SLICES + 40))
    cost_plan() { phase ramp ramp 5 "$@"; phase hold hold "$at_most" "$@"; }
    cost_plan "$COST_SESSIONS" "$COST_HZ" >"$work/cost.toml"
    for name in forward member alone; do cp "$work/cost.toml" "$work/$name.toml"; done
    : >"$work/own" >"$work/forwarded" >"$work/differences"
    spread replace 1
    load forward 10.80.0.0 10.9.9.9 --gather "$GATHER"
    wait_for_players() { for _ in {1..100}; do [[ $(owned 1) -lt $1 ]] || return 0; sleep 0.2; done; fail "players did not come in: $(owned 1)"; }
    wait_for_players "$COST_SESSIONS"
    sleep 3
    # The first slice of all is for the caches. Then each slice of the way by the other gateway is between two of the direct one.
    slice "${gate[1]}" "${gate[2]}" >"$work/cold"
    slice "${gate[1]}" "${gate[2]}" >>"$work/own"
    for ((i = 0; i < SLICES; i++)); do
        spread replace 2
        sleep 0.2
        slice "${gate[1]}" "${gate[2]}" >>"$work/forwarded"
        spread replace 1
        sleep 0.2
        slice "${gate[1]}" "${gate[2]}" >>"$work/own"
    done
    paste "$work/forwarded" <(paste "$work/own" <(tail -n +2 "$work/own")) | awk 'NF == 3 { print $1 - ($2 + $3) / 2 }' >"$work/differences"
    echo "both gateways, us of the processor for a round trip: $(middle <"$work/own"), with its datagram forwarded: $(middle <"$work/forwarded")"
    echo "  added: $(middle <"$work/differences") ($(sort -g "$work/differences" | sed -n '1p;$p' | paste -sd' '))"
    moved=$(cluster_of 2 | jq .sessions.moved)
    [[ $moved == 0 ]] || fail "$moved sessions have moved, so less was forwarded: a slice took too long"
    cluster_of 1 | jq -r '.members[] | "  forwarded in: \(.forwarded_in), dropped: \(.dropped)"'
    kill -INT "${children[-1]}"
    wait "${children[-1]}" || true
    load member 10.96.0.0 10.1.1.2 --gather "$GATHER"
    load alone 10.112.0.0 10.1.3.2 --gather "$GATHER"
    wait_for_players "$COST_SESSIONS"
    sleep 5
    slices "${gate[1]}" "${gate[3]}" >"$work/cold"
    for ((i = 0; i < SLICES; i++)); do slices "${gate[1]}" "${gate[3]}"; done >"$work/both"
    awk '{ print ($1 - $2) / 2 }' "$work/both" >"$work/differences"
    of() { awk -v at="$1" '{ print $at }' "$work/both" | middle; }
    echo "a member: $(of 1) us a round trip, a gateway without a cluster: $(of 2)"
    echo "  added for a payload: $(middle <"$work/differences") ($(sort -g "$work/differences" | sed -n '1p;$p' | paste -sd' '))"
    exit 0
fi
load fast 10.80.0.0
fast=$!
load slow 10.96.0.0
slow=$!
began=$(date +%s%N)
# until SECOND: of the plan.
until_second() {
    local left=$(((began + $1 * 1000000000 - $(date +%s%N)) / 1000000))
    ((left > 0)) || return 0
    sleep "$(printf '%d.%03d' $((left / 1000)) $((left % 1000)))"
}
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
idle() { awk -v c="cpu$1" '$1 == c { print $5 + $6 }' /proc/stat; }
hz=$(getconf CLK_TCK)
who=(gate-1 "${gate[1]}" gate-2 "${gate[2]}" gate-3 "${gate[3]}" agent "$agent" game "$game" etcd "$etcd" fast "$fast" slow "$slow")
books() {
    local n
    for n in "$@"; do
        curl -fs --unix-socket "$work/g$n/control.sock" 'http://localhost/metrics?as_of=now' >"$work/page-$n"
        ! grep -q '^ringgate_conserved.* 0$' "$work/page-$n" || { echo "  THE BOOKS OF gate-$n DO NOT BALANCE"; verdict=1; }
    done
}
verdict=0

until_second $((RAMP + HEAD))
is_complete "$SESSIONS" || fail "not everybody is in with a standby: $(for n in 1 2 3; do cluster_of "$n"; done)"
echo "sessions of each gateway: $(owned 1) $(owned 2) $(owned 3)"
declare -A before
for core in ${CORES//,/ }; do before[$core]=$(idle "$core"); done
for ((i = 0; i < ${#who[@]}; i += 2)); do before[${who[i]}]=$(ticks "${who[i + 1]}"); done
from=$(date +%s%N)
until_second $((RAMP + HEAD + CONTROL))
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

for ((i = 1; i <= DEATHS; i++)); do
    n=$(((i - 1) % gateways + 1))
    at=$((RAMP + HEAD + CONTROL + (i - 1) * EVERY))
    until_second "$at"
    is_complete "$SESSIONS" || { echo "death $i: not all of $SESSIONS sessions have a standby: $(for n in 1 2 3; do cluster_of "$n"; done)"; verdict=1; }
    had=$(owned "$n")
    until_second $((at + 2))
    ip -n "$tag-$n" rule add pref 1 blackhole
    { kill -9 "${gate[$n]}" && wait "${gate[$n]}"; } 2>>"$work/killed" || true
    sleep "0.$(printf %03d "$DARK_MS")"
    spread replace $(others "$n")
    echo "death $i: gate-$n with $had sessions"
    until_second $((at + 2 + BACK))
    books $(others "$n")
    ip -n "$tag-$n" rule del pref 1
    start "$n"
    spread replace $(seq "$gateways")
done
for load in "$fast" "$slow"; do wait "$load" || true; done
books $(seq "$gateways")

for load in fast slow; do [[ -s $work/$load/run.json ]] || { cat "$work/$load.log" >&2; fail "the generator has failed"; }; done
# Of each phase: players, and the silence that half and 99 % of them did not exceed; of those who were silent as long as the router was
# dark the same. Others were at another gateway.
echo "silence of players at $HZ payloads a second, ms:"
echo "phase,players,p50,p99,max,hit,hit_p50,hit_p99"
jq -r --argjson dark "$DARK_MS" 'def at(p): (length * p / 100 | ceil | if . < 1 then 1 else . end) as $n | .[$n - 1] // 0;
    .silences[2:][] | .phase as $phase | [.players_by_ms | to_entries[] | .key as $ms | range(.value) | $ms | tonumber] | sort
    | [.[] | select(. >= $dark)] as $hit
    | [$phase, length, at(50), at(99), max, ($hit | length), ($hit | at(50)), ($hit | at(99))] | @csv' "$work/fast/run.json" | tr -d '"'
for load in fast slow; do
    jq -r --arg load "$load" --argjson from $((RAMP + HEAD)) --argjson to $((RAMP + HEAD + CONTROL)) '
        ([.intervals[] | select(.start_s >= $from and .start_s < $to) | .lost] | add) as $control | .counters
        | "\($load): \(.connected) came in, \(.sessions_lost) lost; \(.payloads_due) payloads due, \(.missing) missing, \($control) of them in the control; \(.duplicates) twice, \(.misdelivered) for somebody else, \(.corrupt) corrupt"
    ' "$work/$load/run.json"
    jq -e --argjson from $((RAMP + HEAD)) --argjson to $((RAMP + HEAD + CONTROL)) '
        ([.intervals[] | select(.start_s >= $from and .start_s < $to) | .lost] | add) == 0 and
        (.counters | .sessions_lost + .duplicates + .misdelivered + .corrupt + .connect_failed + .unfinished == 0)
    ' "$work/$load/run.json" >/dev/null || verdict=1
done
grep -h -E '^ringgate_cluster_(not_)?taken_over_total|^ringgate_cluster_fenced_total' "$work"/page-* | sort | awk '{ sum[$1] += $2 }
    END { for (name in sum) if (sum[name]) print name, sum[name] }'
exit "$verdict"
