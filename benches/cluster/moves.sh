# shellcheck shell=bash
# A fourth gateway gets its share of the players, and is left out again. The router asks nobody: a plain group moves flows at once.

begin_scene "grow:$EVERY" "shrink:$EVERY"
spread replace 1 2 3 4
until_second $((behind + EVERY - 1))
had=$(owned 4)
echo "four gateways: gate-4 has $had of $SESSIONS sessions"
((had * 5 >= SESSIONS)) || { echo "  LESS THAN A FIFTH HAS MOVED"; verdict=1; }
all_stand_by "grown"
until_second $((behind + EVERY))
spread replace 1 2 3
until_second $((behind + 2 * EVERY - 1))
echo "three again: gate-4 has $(owned 4)"
all_stand_by "shrunk"
books $(seq "$gateways")
end_scene 0
