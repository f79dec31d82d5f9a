# shellcheck shell=bash
# What forwarding costs, and being a member. Two gateways are a cluster, and the router sends the players of the first to the second and back,
# slice by slice. None sends eight payloads in a slice, after which its session would move. The third serves as many others without a cluster,
# as the first does some by an address of its own. Processor time is the scheduler's, of whole processes.

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
