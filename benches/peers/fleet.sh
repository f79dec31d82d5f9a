#!/bin/bash
# The gateway at the load that fleets run at, beside what others put there: a bare echo, the kernel's own NAT, nginx, Envoy, quilkin,
# and a game server on the renetcode crate. One load generator for all (`ringgate-loadgen ladder`), one core for each contender, payloads
# that leave one by one, rounds in which the contenders take turns, medians.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     (cd benches/peers && cargo build --release)
#     sudo benches/peers/fleet.sh
#
# Nothing is installed: who is missing is skipped, aloud. It wants root, because it works in a network namespace of its own (and one more
# behind a veth pair for the NAT, because a router has to forward), which goes away with it. Takes about 20 minutes. What can be set,
# from outside, and what it is without:
set -euo pipefail
: "${CONTENDERS:=bare nat nginx envoy quilkin quilkin20 renetcode udp bundle bundle-0us plain plain20 plain20-0us}"
: "${ROUNDS:=3}"
: "${RATES:=20000,60000,100000}"   # payloads a second; the table has a column for each
: "${ARRIVALS:=spread}"            # spread | poisson
: "${SESSIONS:=200}"               # players
: "${BYTES:=100}"                  # of a payload; datagrams are 21 longer
: "${HOLD:=3s}"                    # at each of the rates; CPU is of whole seconds in it and the half before
: "${KNEE:=yes}"                   # anything else looks for no knees
: "${KNEE_HOLD:=1500ms}"
: "${KNEE_ARRIVALS:=ticks}"        # at full queues batches are what there is, and the generator carries more
: "${GATE_CORE:=0}"                # contenders, and what they do in the kernel
: "${LOAD_CORE:=1}"                # the generator
: "${BIN:=target/dist}"         # ringgate, ringgate-loadgen
: "${PEERS_BIN:=benches/peers/target/release}"  # renetcode-echo
: "${NGINX:=nginx}" "${ENVOY:=envoy}" "${QUILKIN:=quilkin}" "${NFT:=nft}"
: "${OVER:=}"                      # a contender: the table shows everybody's CPU over its
: "${BOUNDS:=}"                    # RATE:RATIO:P50:P99 …: bundle-auto's CPU over that, its p50 and p99 above bundle-0us (µs), at most
: "${OUT:=}"                       # default: benches/record/DATE-CPU

cd "$(dirname "$0")/../.."
. benches/rig.sh
say() { echo "$*" >&2; }
need_root
for tool in ip taskset awk; do type -P "$tool" >/dev/null || fail "$tool is missing"; done
need ringgate ringgate-loadgen
cores=$(nproc)
((cores >= 2)) || fail "the generator needs a core of its own"
# The game process has a core of its own where there is one. Else it shares the contender's while payloads leave one by one, because
# the generator spins on its own, and the generator's when it sleeps between ticks.
if ((cores > 2)); then game_core=2 game_core_at_knee=2; else game_core=$GATE_CORE game_core_at_knee=$LOAD_CORE; fi

cpu=$(awk -F': *' '/^vendor_id/ {v = $2} /^cpu family/ {f = $2} /^model\t/ {m = $2} END {
    sub("GenuineIntel", "intel", v); sub("AuthenticAMD", "amd", v); print v "-" f "-" m}' /proc/cpuinfo)
OUT=${OUT:-benches/record/$(date -u +%F)-$cpu}
mkdir -p "$OUT"
csv=$(realpath "$OUT")/fleet.csv table=$(realpath "$OUT")/fleet.md
ns=ringgate-fleet-$$ nat_ns=ringgate-nat-$$
make_namespace "$ns"
ip -n "$ns" addr add 10.77.1.1/32 dev lo
ip -n "$ns" route add local 10.80.0.0/12 dev lo
ulimit -n 65536 2>/dev/null || true

within() { ip netns exec "$ns" "$@"; }
# Starts a program in the namespace, on a core, with its output in a file. Its process id is in $started.
start() {
    local core=$1 log=$2
    shift 2
    ip netns exec "$ns" taskset -c "$core" "$@" >"$work/$log" 2>&1 &
    started=$!
    children+=("$started")
}
# Waits until a UDP port is bound in the namespace.
wait_for_port() {
    local hex
    hex=$(printf '%04X' "$1")
    for _ in {1..100}; do
        within grep -qi ":$hex 0000" /proc/net/udp /proc/net/udp6 && return 0
        kill -0 "$started" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
wait_for_line() { wait_for "$work/$1" "$2" "$started"; }

key=$work/key
make_key "$key"
protocol_id=7
# Players share a socket and have addresses of 10.80.0.0/12. They are not on loopback, because quilkin takes nothing from there.
front=10.77.1.1:40000
far=127.0.0.1:41000

far_end() {
    start "$game_core" far.log "$BIN/ringgate-loadgen" bare-echo --bind "${1:-$far}" --core "$game_core"
    game_pid=$started
    wait_for_port 41000
}
plain() { players=(--plain --server "${1:-$front}" --players-at 10.80.0.0); }
netcode() { players=(--server "$front" --key "$key" --protocol-id $protocol_id --players-at 10.80.0.0); }

# Each contender: starts it, sets `players`, `pid` and `game_pid` as far as there are such. 1: it is not here.
run_bare() {
    start "$GATE_CORE" bare.log "$BIN/ringgate-loadgen" bare-echo --bind "$front" --core "$GATE_CORE"
    pid=$started
    wait_for_port 40000 && plain
}
run_nat() {
    type -P "$NFT" >/dev/null || { missing="$NFT is not installed"; return 1; }
    make_namespace "$nat_ns"
    ip link add rg-fleet netns "$ns" type veth peer name rg-nat netns "$nat_ns"
    ip -n "$ns" addr add 10.77.0.1/24 dev rg-fleet
    ip -n "$nat_ns" addr add 10.77.0.2/24 dev rg-nat
    ip -n "$ns" link set rg-fleet up
    ip -n "$nat_ns" link set rg-nat up
    ip -n "$nat_ns" route add 10.80.0.0/12 via 10.77.0.1
    # What comes in is handled on the contender's core, wherever it was sent.
    ip netns exec "$nat_ns" sh -c "echo 1 >/proc/sys/net/ipv4/ip_forward
        printf '%x' $((1 << GATE_CORE)) >/sys/class/net/rg-nat/queues/rx-0/rps_cpus"
    ip netns exec "$nat_ns" "$NFT" -f - <<RULES || { missing="no nftables in this kernel"; return 1; }
table ip nat {
    chain to { type nat hook prerouting priority dstnat; udp dport 40000 dnat to 10.77.0.1:41000; }
    chain from { type nat hook postrouting priority srcnat; masquerade; }
}
RULES
    far_end 10.77.0.1:41000 && plain 10.77.0.2:40000
    pid=
}
run_nginx() {
    type -P "$NGINX" >/dev/null || { missing="$NGINX is not installed"; return 1; }
    local module
    module=$("$NGINX" -V 2>&1 | tr ' ' '\n' | sed -n 's/^--modules-path=//p')/ngx_stream_module.so
    {
        [[ -f $module ]] && echo "load_module $module;"
        cat <<CONFIG
daemon off; master_process off; worker_processes 1; pid $work/nginx.pid; error_log stderr;
worker_rlimit_nofile 65536; events { worker_connections 16384; }
stream { server { listen $front udp; proxy_pass $far; proxy_timeout 10m; } }
CONFIG
    } >"$work/nginx.conf"
    far_end
    start "$GATE_CORE" nginx.log "$NGINX" -p "$work" -c "$work/nginx.conf"
    pid=$started
    wait_for_port 40000 || { missing="nginx did not start (has it the stream module?): $(tail -1 "$work/nginx.log")"; return 1; }
    plain
}
run_envoy() {
    type -P "$ENVOY" >/dev/null || { missing="$ENVOY is not installed"; return 1; }
    cat >"$work/envoy.yaml" <<CONFIG
static_resources:
  listeners:
  - name: front
    address: { socket_address: { protocol: UDP, address: 10.77.1.1, port_value: 40000 } }
    listener_filters:
    - name: envoy.filters.udp_listener.udp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: front
        idle_timeout: 600s
        upstream_socket_config: { prefer_gro: false }  # with it two datagrams that come merged go on as one
        matcher:
          on_no_match:
            action:
              name: route
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route
                cluster: far
  clusters:
  - name: far
    type: STATIC
    circuit_breakers: { thresholds: [{ max_connections: 100000 }] }
    load_assignment:
      cluster_name: far
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { protocol: UDP, address: 127.0.0.1, port_value: 41000 } } }
CONFIG
    far_end
    start "$GATE_CORE" envoy.log "$ENVOY" -c "$work/envoy.yaml" --concurrency 1 --use-dynamic-base-id --disable-hot-restart -l error
    pid=$started
    wait_for_port 40000 || { missing="Envoy did not start: $(tail -1 "$work/envoy.log")"; return 1; }
    plain
}
# One upstream server, or so many as are asked for.
run_quilkin() {
    local servers=${1:-1} upstreams=()
    type -P "$QUILKIN" >/dev/null || { missing="$QUILKIN is not installed"; return 1; }
    for ((n = 0; n < servers; n++)); do upstreams+=("127.0.0.1:$((41000 + n))"); done
    local all
    all=$(IFS=,; echo "${upstreams[*]}")
    {
        echo 'version: v1alpha1'
        ((servers == 1)) || printf '%s\n' 'filters:' '  - name: quilkin.filters.load_balancer.v1alpha1.LoadBalancer' \
            '    config: { policy: HASH }'
        printf '%s\n' 'clusters:' '  - endpoints:'
        printf '      - address: %s\n' "${upstreams[@]}"
    } >"$work/quilkin.yaml"
    far_end "$all"
    start "$GATE_CORE" quilkin.log "$QUILKIN" --quiet --admin.address 127.0.0.1:42000 --service.udp --service.udp.port 40000 \
        --service.udp.workers 1 --provider.fs --provider.fs.path "$work/quilkin.yaml"
    pid=$started
    wait_for_port 40000 || { missing="quilkin did not start: $(tail -1 "$work/quilkin.log")"; return 1; }
    sleep 1
    plain
}
run_quilkin20() { run_quilkin 20; }
run_renetcode() {
    [[ -x $PEERS_BIN/renetcode-echo ]] || { missing="$PEERS_BIN/renetcode-echo is not built"; return 1; }
    ((SESSIONS <= 1024)) || { missing="it serves no more than 1,024 players"; return 1; }
    start "$GATE_CORE" renetcode.log "$PEERS_BIN/renetcode-echo" "$front" "$key" $protocol_id 1024
    pid=$started
    wait_for_port 40000 && netcode
}
# The gateway's plain listener, which does the same work as a proxy, in front of one server, or of so many; with lines of [gateway].
run_plain() {
    local servers=${1:-1} more=${2:-} far_ends=() names=() n
    for ((n = 0; n < servers; n++)); do
        far_ends+=("127.0.0.1:$((41000 + n))")
        names+=("\"game-$n\"")
    done
    local all
    all=$(IFS=,; echo "${names[*]}")
    mkdir -p "$work/run"
    {
        cat <<CONFIG
[gateway]
workers = 1
pin = false
run_dir = "$work/run"
$more
[[listener]]
name = "fleet"
protocol = "plain"
bind = ["$front"]
route = "hash"
backends = [$all]
max_sessions = 100000
[listener.limits]
starts_per_block = 0
starts = 0
sessions_per_address = 0
CONFIG
        for ((n = 0; n < servers; n++)); do
            printf '[[backend]]\nname = "game-%d"\nlink = "udp"\naddress = "%s"\nslots = 100000\n' "$n" "${far_ends[n]}"
        done
    } >"$work/gate.toml"
    far_end "$(IFS=,; echo "${far_ends[*]}")"
    start_gateway && plain
}
run_plain20() { run_plain 20 "${1:-}"; }
# Checks and starts what is configured.
start_gateway() {
    "$BIN/ringgate" check "$work/gate.toml" >"$work/check.log" 2>&1 ||
        { missing="its config is refused: $(tail -1 "$work/check.log")"; return 1; }
    start "$GATE_CORE" gateway.log nice -n "${nice:-0}" "$BIN/ringgate" run --config "$work/gate.toml"
    pid=$started
    wait_for_line gateway.log '^ready:' || { missing="the gateway did not start: $(tail -1 "$work/gateway.log")"; return 1; }
}
# The gateway with a link of a kind, and lines of [gateway] beside.
gateway() {
    local link=$1 more=${2:-}
    mkdir -p "$work/run"
    cat >"$work/gate.toml" <<CONFIG
[gateway]
workers = ${workers:-1}
pin = false
run_dir = "$work/run"
$more
[[listener]]
name = "fleet"
protocol = "netcode"
bind = ["$front"]
protocol_id = $protocol_id
keys = [{ file = "$key" }]
backends = ["game"]
max_sessions = 100000
[listener.limits]
requests_per_block = 0
handshakes_per_block = 0
sessions_per_address = 0
[[backend]]
name = "game"
slots = 100000
$link
CONFIG
    start_gateway && netcode
}
run_udp() { far_end && gateway "link = \"udp\"
address = \"$far\"" "${1:-}"; }
run_bundle() {
    gateway 'link = "bundle"' "${1:-}" || return 1
    # shellcheck disable=SC2086
    start "$game_core" game.log "$BIN/ringgate" echo --socket "$work/run" --name game ${tick:+--tick $tick}
    game_pid=$started
    wait_for_line game.log '^echo:'
    # All are awake at first.
    [[ -z $awake ]] || until "$BIN/ringgate" status --control "$work/run/control.sock" | grep -q ", $awake awake,"; do sleep 0.2; done
    sleep 0.5
}
# A contender of the gateway may have a dash and what is particular: a batch_delay, `spin`, two workers, two of which one sleeps while it is
# not needed, a game that ticks, or that it goes first on its core, as its unit has it.
run() {
    local workers=1 awake='' tick='' nice=0 more=''
    case $1 in
        *-spin) more='spin = "50us"' ;;
        *-two) workers=2 ;;
        *-awake) workers=2 awake=1 more='workers_awake = "auto"' ;;
        *-tick) tick=16ms ;;
        *-nice) nice=-10 ;;
        *-*) more="batch_delay = \"${1#*-}\"" ;;
    esac
    "run_${1%%-*}" "$more"
}

name_of() {
    case $1 in
        bare) echo "bare echo (no far end)" ;;
        nat) echo "kernel NAT (nftables)" ;;
        nginx) echo "nginx stream" ;;
        envoy) echo "Envoy" ;;
        quilkin) echo "quilkin, one upstream" ;;
        quilkin20) echo "quilkin, 20 upstreams" ;;
        renetcode) echo "renetcode server (no far end)" ;;
        udp) echo "**ringgate, udp link**" ;;
        bundle) echo "**ringgate, bundle link**" ;;
        *-spin) echo "$(name_of "${1%-*}" | tr -d '*'), spin 50us" ;;
        *-two) echo "$(name_of "${1%-*}" | tr -d '*'), two workers" ;;
        *-awake) echo "$(name_of "${1%-*}" | tr -d '*'), two workers, as many awake as are needed" ;;
        *-tick) echo "$(name_of "${1%-*}" | tr -d '*'), a game that ticks each 16 ms" ;;
        *-nice) echo "$(name_of "${1%-*}" | tr -d '*'), Nice=-10 as in tuning/ringgate.service" ;;
        *-auto) name_of "${1%-*}" ;;
        *-*) echo "$(name_of "${1%-*}" | tr -d '*'), batch_delay ${1#*-}" ;;
        plain) echo "**ringgate, plain listener, one upstream**" ;;
        plain20) echo "**ringgate, plain listener, 20 upstreams**" ;;
    esac
}
# Where the search for the knee begins: below it, and not so far that it takes minutes.
knee_from() { case $1 in quilkin*) echo 15000 ;; envoy) echo 40000 ;; *) echo 90000 ;; esac; }

ladder() {
    local core=("--busy-core" "$GATE_CORE") who=()
    [[ -n $pid ]] && who+=(--gateway-pid "$pid")
    [[ -n $game_pid ]] && who+=(--game-pid "$game_pid")
    ip netns exec "$ns" "$BIN/ringgate-loadgen" ladder "${players[@]}" "${who[@]}" "${core[@]}" --cores "$LOAD_CORE" \
        --sessions "$SESSIONS" --bytes "$BYTES" --p99 50ms --csv "$work/steps.csv" "$@" >"$work/ladder.log" 2>&1
}
# Looks for the knee from a rate on. 1: that was too much already.
knee() {
    ladder --from "$1" --factor 1.7 --halvings 2 --loss 0.1 --ramp 300ms --hold "$KNEE_HOLD" --arrivals "$KNEE_ARRIVALS" || true
    ! grep -q 'already too much' "$work/ladder.log"
}
# Copies the steps into the record, with round and contender in front.
keep() {
    awk -v r="$1" -v c="$2" -v k="$3" 'NR > 1 {print r "," c "," k "," $0}' "$work/steps.csv" >>"$csv"
}

skipped=()
is_skipped() { [[ " ${skipped[*]} " == *" $1 "* ]]; }
skip() {
    say "SKIPPED $1: $2"
    skipped+=("$1")
    reasons+="$(name_of "$1" | tr -d '*') was skipped: ${2%.}. "
}
reasons=
turn() {
    local round=$1 contender=$2
    players=() pid='' game_pid='' missing=''
    if ! run "$contender"; then
        skip "$contender" "$(sed "s|$work/||g" <<<"${missing:-it did not start}")"
    else
        say "round $round: $contender"
        rm -f "$work/steps.csv"
        # A step that proves nothing is in the record as such; it is no reason to stop.
        ladder --at "$RATES" --ramp 500ms --hold "$HOLD" --arrivals "$ARRIVALS" || say "  $(tail -1 "$work/ladder.log")"
        if [[ -f $work/steps.csv ]]; then
            keep "$round" "$contender" at
            sed -n '3,/^$/s/..*/  &/p' "$work/ladder.log" >&2
            if [[ $KNEE == yes ]]; then
                [[ -n $game_pid ]] && taskset -acp "$game_core_at_knee" "$game_pid" >/dev/null
                rm "$work/steps.csv"
                knee "$(knee_from "$contender")" || knee $(($(knee_from "$contender") / 4)) || true
                [[ ! -f $work/steps.csv ]] || keep "$round" "$contender" knee
                say "  $(sed -n '/^knee\|already too much\|no knee/p' "$work/ladder.log" | tail -1)"
            fi
        else
            skip "$contender" "the generator could not play: $(tail -1 "$work/ladder.log")"
        fi
    fi
    end_children
    ip netns delete "$nat_ns" 2>/dev/null || true
    rm -rf "$work/run"
}

echo "round,contender,kind,rate,loss,late,p50_ns,p99_ns,gateway_cores,own_cores,good,arrivals,late_p99_ns,gateway_us,game_us,core_us,elsewhere" >"$csv"
for ((round = 1; round <= ROUNDS; round++)); do
    for contender in $CONTENDERS; do
        declare -F "run_${contender%%-*}" >/dev/null || fail "no contender is called $contender"
        is_skipped "$contender" || turn "$round" "$contender"
    done
done

# The table: medians over the rounds.
{
    echo "$(awk -F': *' '/^model name/ {print $2; exit}' /proc/cpuinfo), $cores cores, Linux $(uname -r); $SESSIONS players, payloads of" \
        "$BYTES bytes, arrivals $ARRIVALS; medians of $ROUNDS rounds. CPU in µs for each round trip: contender + game process = both."
    echo
    awk -F, -v rates="$RATES" -v contenders="$CONTENDERS" -v skipped=" ${skipped[*]} " -v over="$OVER" -v bounds="$BOUNDS" \
        -v shared="$((game_core == GATE_CORE))" -f benches/peers/fleet.awk \
        -v names="$(for contender in $CONTENDERS; do printf '%s=%s;' "$contender" "$(name_of "$contender")"; done)" "$csv"
    echo
    cat <<NOTES
Not alike: the bare echo and the renetcode server answer themselves, everybody else has a game process behind; ringgate and renetcode also
prove, decrypt and encrypt, but for ringgate's plain listener, which like everybody else passes on bytes of the same number. The game process is a bare echo on UDP (udp link and proxies), or
\`ringgate echo\` (bundle link). renetcode looks through all of its players for each packet. quilkin has a thread and a ring for each
upstream, nginx, Envoy and quilkin a socket for each player. Receive buffers are what each asks for: 8 MiB for ringgate, its echo and the bare
echo, the kernel's default for the others. The NAT belongs to no process: its CPU is what its core was busy for
beyond $( ((game_core == GATE_CORE)) && echo "what it was with the bare echo, which includes that echo's own" || echo "nothing"), and its way leads over
a veth pair. $( ((game_core == GATE_CORE)) && echo "Contender and game process share core $GATE_CORE, the generator has core $LOAD_CORE; for the knee (arrivals $KNEE_ARRIVALS) the game process is on the generator's.")
Knee: loss at most 0.1 %, p99 at most 50 ms. $reasons
NOTES
} >"$table"
cat "$table"
say "recorded in $csv and $table"
! grep -q '\*\*missed\*\*' "$table"
