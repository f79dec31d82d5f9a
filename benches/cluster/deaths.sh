# shellcheck shell=bash
# Gateways are cut off and killed one after the other, and the router notices DARK_MS later. Each comes back.

begin_scene $(for ((i = 1; i <= DEATHS; i++)); do echo "death-$i:$EVERY"; done)
for ((i = 1; i <= DEATHS; i++)); do
    n=$(((i - 1) % gateways + 1))
    at=$((behind + (i - 1) * EVERY))
    until_second "$at"
    all_stand_by "death $i"
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
until_second $((behind + DEATHS * EVERY))
books $(seq "$gateways")
end_scene 0
