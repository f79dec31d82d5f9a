# shellcheck shell=bash
# What all scenes of benches/cluster.sh are played with: a router with equal-cost paths, $gateways gateways behind it, a host with etcd, the
# agent and the game process, and one with players, each in a network namespace of its own.

tag=cl$$ router=cl$$-r players=cl$$-p host=cl$$-h
declare -A gate
at_end() { [[ -z $OUT ]] || { mkdir -p "$OUT" && cp -r "$work"/*.{log,toml} "$work"/page-* "$work"/fast "$work"/slow "$OUT" 2>/dev/null; } || true; }
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
spread add "${at_first[@]}"
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
drain_timeout = "$drain"
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
gateways = [$(for ((n = 1; n <= gateways; n++)); do printf '"10.1.%d.2:4900", ' "$n"; done)]
ca = "$work/ca.pem"
certificate = "$work/host-7.pem"
key = "$work/host-7.key"
run_dir = "$work/host"
state_dir = "$work/host-state"
drain_timeout = "$drain"
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
