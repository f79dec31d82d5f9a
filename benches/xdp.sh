#!/bin/bash
# What a whole gateway gains by frames (io = "xdp", AF_XDP in copy mode) over sockets (io = "uring"), on the same veth pair: CPU of its
# process for each round trip, at full queues and at 20,000 a second where payloads leave one by one; and a plain listener beside quilkin on
# AF_XDP, at 60,000 a second one by one and at full queues, its game server behind a udp link or its game process on a bundle link.
# Contenders take turns, medians count.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     sudo benches/xdp.sh
#
# It takes root, two cores and about eleven minutes, and wants a quiet machine. Nothing is installed: who is missing is left out, aloud. At full
# queues everybody is on one core and players send in bursts that nobody interrupts, so nobody pays for wake-ups; what they offer is what the
# core can carry, since work on payloads that are lost later would count for those that come through. What can be set, from outside, and
# what it is without:
set -euo pipefail
: "${RUNS:=bundle-full udp-full bundle-20k plain-60k plain-bundle-60k plain-full plain-bundle-full}"
: "${ROUNDS:=5}"
: "${HOLD:=3s}"          # shorter steps have no figures
: "${SESSIONS:=1000}"   # players
: "${BYTES:=100}"       # of a payload
: "${DELAY:=auto}"      # the gateway's batch_delay
: "${CORE:=0}"          # of the gateway, its game process and what they do in the kernel
: "${LOAD_CORE:=1}"     # of the generator, where it is not at full queues
: "${BIN:=target/dist}"
: "${QUILKIN:=quilkin}"
: "${OUT:=}"            # a CSV file to keep

cd "$(dirname "$0")/.."
. benches/rig.sh
need_root
need ringgate ringgate-loadgen
gate=xdp-g-$$ play=xdp-p-$$
make_wire "$gate" "$play" 10.77.0
# Players share a few sockets, and have addresses of their own behind one hop.
ip -n "$play" route add local 10.80.0.0/12 dev lo
ip -n "$gate" route add 10.80.0.0/12 via 10.77.0.2
ulimit -n 65536 2>/dev/null || true

make_key "$work/key"
front=10.77.0.1:40000 far=127.0.0.1:41000

# Starts a program on the gateway's core and in a namespace; waits for a line of its output. Its process id is in $started.
start() {
    local namespace=$1 log=$2 line=$3
    shift 3
    ip netns exec "$namespace" taskset -c "$CORE" "$@" >"$work/$log" 2>&1 &
    started=$!
    children+=("$started")
    wait_for "$work/$log" "$line" "$started" && return 0
    echo "$log: $(tail -1 "$work/$log")" >&2
    return 1
}

# gateway uring|xdp netcode|plain bundle|udp
gateway() {
    local io=$1 protocol=$2 link=$3
    mkdir -p "$work/run"
    {
        printf '[gateway]\nbatch_delay = "%s"\n' "$DELAY"
        printf 'workers = 1\npin = false\nio = "uring"\nrun_dir = "%s"\nstate_dir = "%s"\n' "$work/run" "$work/state"
        printf '[[listener]]\nname = "wire"\nprotocol = "%s"\nbind = ["%s"]\nbackends = ["game"]\nmax_sessions = 100000\n' "$protocol" "$front"
        [[ $protocol == plain ]] || printf 'protocol_id = 7\nkeys = [{ file = "%s" }]\n' "$work/key"
        [[ $io == uring ]] || printf 'io = "xdp"\nxdp = { interface = "wire0", mode = "copy" }\n'
        printf '[listener.limits]\nsessions_per_address = 0\n'
        if [[ $protocol == plain ]]; then printf 'starts_per_block = 0\nstarts = 0\n'
        else printf 'requests_per_block = 0\nhandshakes_per_block = 0\n'; fi
        printf '[[backend]]\nname = "game"\nslots = 100000\nlink = "%s"\n' "$link"
        [[ $link == bundle ]] || printf 'address = "%s"\n' "$far"
    } >"$work/gate.toml"
    if [[ $link == udp ]]; then
        start "$gate" far.log . "$BIN/ringgate" echo --udp "$far"
        game=$started
    fi
    start "$gate" gateway.log '^ready:' "$BIN/ringgate" run --config "$work/gate.toml"
    pid=$started
    if [[ $link == bundle ]]; then
        start "$gate" far.log . "$BIN/ringgate" echo --socket "$work/run" --name game
        game=$started
        sleep 0.5
    fi
}

# It sends everything out of its interface, so its upstream is behind the wire as well.
quilkin() {
    type -P "$QUILKIN" >/dev/null || { echo "SKIPPED quilkin: $QUILKIN is not installed" >&2; return 1; }
    printf 'version: v1alpha1\nclusters:\n  - endpoints:\n      - address: 10.77.0.2:41000\n' >"$work/quilkin.yaml"
    start "$play" far.log . "$BIN/ringgate" echo --udp 10.77.0.2:41000
    game=$started
    ip netns exec "$gate" taskset -c "$CORE" "$QUILKIN" --quiet --admin.address 127.0.0.1:42000 --service.udp \
        --service.udp.port 40000 --service.udp.workers 1 --service.udp.xdp --service.udp.xdp.network-interface wire0 \
        --provider.fs --provider.fs.path "$work/quilkin.yaml" >"$work/quilkin.log" 2>&1 &
    pid=$!
    children+=("$pid")
    sleep 3
    kill -0 "$pid" 2>/dev/null || { echo "SKIPPED quilkin: $(tail -1 "$work/quilkin.log")" >&2; return 1; }
}

# CPU of the gateway's process for each round trip, µs, with what was lost, in percent.
play() {
    local protocol=$1
    shift
    local players=(--server "$front" --players-at 10.80.0.0 --sessions "$SESSIONS" --bytes "$BYTES")
    if [[ $protocol == plain ]]; then players+=(--plain); else players+=(--key "$work/key" --protocol-id 7); fi
    rm -f "$work/steps.csv"
    ip netns exec "$play" "$BIN/ringgate-loadgen" ladder "${players[@]}" --gateway-pid "$pid" --game-pid "$game" \
        --ramp 300ms --hold "$HOLD" --p99 1s --csv "$work/steps.csv" "$@" >"$work/ladder.log" 2>&1 || true
    [[ -f $work/steps.csv ]] || { echo "the generator could not play: $(tail -1 "$work/ladder.log")" >&2; return 1; }
    awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i} NR == 2 {print $at["gateway_us"], 100 * $at["loss"]}' "$work/steps.csv"
}

turn() {
    local run=$1 contender=$2 figures=
    local full=(--gather 1280us --cores "$CORE") spread=(--arrivals spread --cores "$LOAD_CORE")
    case $run in
        bundle-full) gateway "$contender" netcode bundle && figures=$(play netcode --at 60000 "${full[@]}") ;;
        udp-full) gateway "$contender" netcode udp && figures=$(play netcode --at 40000 "${full[@]}") ;;
        bundle-20k) gateway "$contender" netcode bundle && figures=$(play netcode --at 20000 "${spread[@]}") ;;
        plain-*)
            local link=udp offered=(--at 40000 "${full[@]}")
            [[ $run != *-bundle-* ]] || link=bundle
            [[ $run != *-60k ]] || offered=(--at 60000 "${spread[@]}")
            if [[ $contender == quilkin ]]; then quilkin; else gateway "$contender" plain "$link"; fi &&
                figures=$(play plain "${offered[@]}") ;;
    esac || true
    end_children
    rm -rf "$work/run" "$work/state"
    # The kernel takes a queue off a process some time after its end.
    sleep 0.5
    [[ -z $figures ]] || echo "$run,$contender,${figures/ /,}" >>"$work/all.csv"
}

: >"$work/all.csv"
for ((round = 0; round < ROUNDS; round++)); do
    for run in $RUNS; do
        contenders="uring xdp"
        [[ $run == plain-* ]] && contenders="xdp quilkin"
        for contender in $contenders; do turn "$run" "$contender"; done
    done
done
[[ -z $OUT ]] || cp "$work/all.csv" "$OUT"

median() { awk -F, -v r="$1" -v c="$2" -v f="$3" '$1 == r && $2 == c {print $f}' "$work/all.csv" | sort -g |
    awk '{it[NR] = $1} END {if (NR) print it[int((NR + 1) / 2)]}'; }
printf '%-18s %-8s %14s %8s\n' run who "µs a trip" "lost %"
for run in $RUNS; do
    for contender in uring xdp quilkin; do
        us=$(median "$run" "$contender" 3)
        [[ -z $us ]] || printf '%-18s %-8s %14.2f %8.2f\n' "$run" "$contender" "$us" "$(median "$run" "$contender" 4)"
    done
    base=uring
    [[ $run == plain-* ]] && base=quilkin
    awk -v mine="$(median "$run" xdp 3)" -v base="$(median "$run" "$base" 3)" -v run="$run" -v name="$base" \
        'BEGIN {if (mine && base) printf "%-18s xdp over %s: %.2f\n", run, name, mine / base}'
done
