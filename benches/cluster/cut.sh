# shellcheck shell=bash
# Two gateways cannot reach each other for CUT seconds, and everybody else reaches both. A tenth of all players goes from one to the other
# and back each 30 s, some of what players have sent comes again at both, and ten of them are kicked.

command -v python3 >/dev/null || fail "it takes python3"
hear() { ip -n "$router" rule "$1" pref 1 from 10.1.1.0/24 to 10.1.2.0/24 blackhole && ip -n "$router" rule "$1" pref 1 from 10.1.2.0/24 to 10.1.1.0/24 blackhole; }
begin_scene "cut:$CUT" "healed:$EVERY"
mac() { ip netns exec "$tag-$1" cat /sys/class/net/e0/address; }
(inside "$router" python3 benches/cluster/replay.py "to-$players" "to-$tag-1=$(mac 1)" "to-$tag-2=$(mac 2)") >"$work/replay.log" 2>&1 &
replay=$!
children+=("$replay")
hear add
kicked=()
ways=("1,52 2,28 3,40" "1,40 2,40 3,40" "1,28 2,52 3,40" "1,40 2,40 3,40")
for ((second = 0; second < CUT; second += 30)); do
    until_second $((behind + second))
    spread replace ${ways[second / 30 % 4]}
    until_second $((behind + second + 15))
    ((${#kicked[@]} < 10)) || continue
    at=$((second / 30 % 2 + 1))
    one=$("$BIN/ringgate" sessions --control "$work/g$at" --limit 1 --json | jq -r '.sessions[0].session')
    "$BIN/ringgate" kick --control "$work/g$at" --session "$one" >>"$work/kicks" && kicked+=("$one")
done
until_second $((behind + CUT))
echo "cut: sessions of each gateway: $(owned 1) $(owned 2) $(owned 3), ${#kicked[@]} kicked"
hear del
kill -TERM "$replay"
wait "$replay" || true
sed 's/^/  /' "$work/replay.log"
until_second $((behind + CUT + EVERY - 1))
SESSIONS=$((SESSIONS - ${#kicked[@]}))
all_stand_by "healed"
books $(seq "$gateways")
end_scene "${#kicked[@]}"
