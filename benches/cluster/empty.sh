# shellcheck shell=bash
# One gateway has all players, and is emptied into the others. The router hears of it as routers do: `/readyz` fails.

is_ready() { curl -fs -o "$work/ready" --unix-socket "$work/g1/control.sock" http://localhost/readyz; }
begin_scene "empty:$EVERY"
until_second $((behind + 2))
had=$(owned 1)
from=$(date +%s%N)
"$BIN/ringgate" drain --hand-over --control "$work/g1" >"$work/drain"
while is_ready; do sleep 0.05; done
sleep "0.$(printf %03d "$DARK_MS")"
spread replace 2 3
wait "${gate[1]}" || fail "the gateway has failed: $(tail -1 "$work/g1.log")"
took=$((($(date +%s%N) - from) / 1000000))
echo "gate-1 with $had sessions is gone after $took ms; others have $(owned 2) $(owned 3)"
((took <= 10000)) || { echo "  TOO LATE"; verdict=1; }
until_second $((behind + EVERY - 1))
[[ $(($(owned 2) + $(owned 3))) == "$SESSIONS" ]] || { echo "NOT ALL OF $SESSIONS SESSIONS ARE THERE"; verdict=1; }
books 2 3
end_scene 0
