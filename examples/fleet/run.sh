#!/bin/bash
# A whole fleet on one machine: etcd, two gateways, an agent beside two unmodified game servers, a token
# service, and players who get their tokens over HTTP. Then one gateway is killed while players with failover tokens play, and all
# of them are back at the other one.
#
#   examples/fleet/run.sh            from a checkout, after: cargo build --release -p ringgate -p ringgate-loadgen
#
# Needs etcd and etcdctl (Debian: etcd-server, etcd-client), openssl, python3 and curl. Everything lies in a folder
# of its own and ends with the script. BIN is where the programs are; PLAYERS how many play.
set -euo pipefail
BIN=${BIN:-target/release} PLAYERS=${PLAYERS:-100} SECONDS_TO_PLAY=${SECONDS_TO_PLAY:-10}
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "$BIN" && pwd)
DIR=$(mktemp -d)
PIDS=()
end() { kill "${PIDS[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$DIR"; }
trap end EXIT
say() { printf '\n== %s\n' "$*"; }
until_true() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; echo "it did not come true: $*"; exit 1; }
# A loopback address that no other run has: numbers of processes are below 2^22. Ports are below those that the kernel gives away.
IP=127.$((64 + $$ / 65536)).$(($$ / 256 % 256)).$(($$ % 256))

say "etcd"
PEER=$IP:23800
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://$IP:23790
etcd --data-dir "$DIR/etcd" --listen-client-urls "$ETCDCTL_ENDPOINTS" --advertise-client-urls "$ETCDCTL_ENDPOINTS" \
  --listen-peer-urls "http://$PEER" --initial-advertise-peer-urls "http://$PEER" \
  --initial-cluster "default=http://$PEER" > "$DIR/etcd.log" 2>&1 & PIDS+=($!)
until_true etcdctl endpoint health

say "the fleet's key, and the first key of the listener"
"$BIN/ringgate" keygen --out "$DIR/fleet.key"
"$BIN/ringgate" keygen --out "$DIR/matchmaker.secret"
"$BIN/ringgate" keygen --out "$DIR/wall.secret"
fleet() { cat <<EOF
[fleet]
endpoints = ["$ETCDCTL_ENDPOINTS"]
prefix = "/ringgate/example"
name = "$1"
region = "here"
host = "this-host"
key = { file = "fleet.key" }
lease = "3s"
EOF
}
fleet operator > "$DIR/operator.toml"
"$BIN/ringgate" fleet init main --config "$DIR/operator.toml"

say "certificates for gateways and the agent, which prove to each other who they are"
ec="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $ec -days 2 -subj /CN=trunks -keyout "$DIR/trunk-ca.key" -out "$DIR/trunk-ca.pem" 2> /dev/null
certificate() { # name, and what it is for
  openssl req $ec -subj "/CN=$1" -keyout "$DIR/$1.key" -out "$DIR/$1.csr" 2> /dev/null
  openssl x509 -req -in "$DIR/$1.csr" -CA "$DIR/trunk-ca.pem" -CAkey "$DIR/trunk-ca.key" -CAcreateserial -days 2 \
    -extfile <(echo "subjectAltName=$2") -out "$DIR/$1.pem" 2> /dev/null
  chmod 600 "$DIR/$1.key"
}
certificate gateways "IP:$IP"
certificate host-7 DNS:host-7

say "two gateways"
for gateway in 1 2; do
  public=$IP:2400$gateway admin=$IP:2900$gateway
  printf -v "PUBLIC$gateway" %s "$public"
  printf -v "ADMIN$gateway" %s "$admin"
  { fleet "gate-$gateway"; cat <<EOF
[gateway]
workers = 1
pin = false
run_dir = "$DIR/run$gateway"
state_dir = "$DIR/state$gateway"
[admin]
bind = "$admin"
[[listener]]
name = "main"
protocol = "netcode"
bind = ["$public"]
protocol_id = "0x1122334455667788"
group = "arena"
route = "user-data"
[[agent]]
name = "*"
bind = "$IP:2720$gateway"
ca = "trunk-ca.pem"
certificate = "gateways.pem"
key = "gateways.key"
backends = "fleet"
EOF
  } > "$DIR/gate-$gateway.toml"
  "$BIN/ringgate" run --config "$DIR/gate-$gateway.toml" > "$DIR/gate-$gateway.log" 2>&1 & PIDS+=($!)
  printf -v "GATE$gateway" %s $!
  echo "gateway gate-$gateway: players at $public, page at http://$admin/"
done

say "an agent beside two game servers: it registers them, and finds the gateways"
{ fleet nobody | grep -v '^name'; cat <<EOF
[agent]
name = "host-7"
ca = "trunk-ca.pem"
certificate = "host-7.pem"
key = "host-7.key"
run_dir = "$DIR/host-7"
state_dir = "$DIR/host-7-state"
EOF
} > "$DIR/agent.toml"
for game in 1 2; do
  udp=$IP:2770$game
  "$BIN/ringgate-loadgen" serve --udp "$udp" > "$DIR/game-$game.log" 2>&1 & PIDS+=($!)
  cat >> "$DIR/agent.toml" <<EOF
[[backend]]
name = "arena-$game"
link = "udp"
address = "$udp"
slots = 5000
group = "arena"
labels = { map = "dust" }
EOF
done
"$BIN/ringgate" agent --config "$DIR/agent.toml" > "$DIR/agent.log" 2>&1 & PIDS+=($!)

say "a token service"
TOKENS=$IP:27400
{ fleet tokens-1; cat <<EOF
[tokens]
bind = ["$TOKENS"]
max_addresses = 2
[[caller]]
name = "matchmaker"
secret = { file = "matchmaker.secret" }
[[caller]]
name = "wall"
scopes = ["see"]
secret = { file = "wall.secret" }
EOF
} > "$DIR/tokens.toml"
"$BIN/ringgate" tokens --config "$DIR/tokens.toml" > "$DIR/tokens.log" 2>&1 & PIDS+=($!)
ask() { rm -rf "$2"; python3 "$HERE/tokens.py" "http://$TOKENS" "$DIR/matchmaker.secret" "$@"; } # how many, and a folder for them
# For a moment no gateway may be known, as when a lease ran out on a busy machine: whoever is refused asks again.
get() { until_true ask "$@"; }
get 1 "$DIR/probe"
until_true sh -c "'$BIN/ringgate' fleet status --config '$DIR/operator.toml' --json | grep -q gate-2"

say "the fleet"
echo "its page: http://$TOKENS/fleet#$(cat "$DIR/wall.secret")"
"$BIN/ringgate" fleet status --backends --config "$DIR/operator.toml"

play() { # of tokens in a folder, one file for each gateway
  local players=() file count
  for file in "$1"/*.tokens; do
    count=$(($(stat -c %s "$file") / 2048))
    echo "$count players at $(basename "$file" .tokens)"
    "$BIN/ringgate-loadgen" run --tokens "$file" --sessions "$count" --hz 5 --ramp 2s --hold "${SECONDS_TO_PLAY}s" \
      > "$file.log" 2>&1 & players+=($!)
  done
  for pid in "${players[@]}"; do wait "$pid" || { tail -20 "$1"/*.log; exit 1; }; done
  grep -hE "^(sessions|payloads|ok|MISSED)" "$1"/*.log
}

say "$PLAYERS players get their tokens over HTTP and play"
get "$PLAYERS" "$DIR/first"
play "$DIR/first"

say "$PLAYERS players with failover tokens play, and gateway gate-1 is killed"
# Both gateways stand in each token, and whoever hears nothing for 3 s asks for another one.
"$BIN/ringgate-loadgen" run --token-service "$TOKENS" --token-secret "$DIR/matchmaker.secret" --come-back \
  --token-request '{"region": "here", "addresses": 2, "expire": 300, "timeout": 3}' \
  --sessions "$PLAYERS" --hz 5 --ramp 1s --hold "$((SECONDS_TO_PLAY + 12))s" > "$DIR/failover.log" 2>&1 & FAILOVER=$!
here() { curl -s "http://$1/metrics" | awk '/^ringgate_sessions\{/ { n += $2 } END { print n + 0 }'; }
all_play() { (($(here "$ADMIN1") + $(here "$ADMIN2") == PLAYERS)); }
until_true all_play
echo "$(here "$ADMIN1") of them play through gate-1"
kill -9 "$GATE1"
began=$(date +%s%N)
all_are_back() { (($(here "$ADMIN2") == PLAYERS)); }
until_true all_are_back
took=$((($(date +%s%N) - began) / 1000000))
# docs/FLEET.md: two timeouts and a second. A slower machine may need longer for the same.
within="within the 7 s that docs/FLEET.md says"
((took <= 7000)) || within="NOT within the 7 s that docs/FLEET.md says"
echo "$took ms until all of them play through gate-2, $within"
none_of_it() { ask 20 "$DIR/again" && [[ ! -e "$DIR/again/$PUBLIC1.tokens" ]]; }
until_true none_of_it
echo "$((($(date +%s%N) - began) / 1000000)) ms until nobody was sent there any more (its lease has 3 s)"
# Their sessions were lost, and that is what the report says; whom gate-2 let in though the token names gate-1
# first is said below the sessions.
wait "$FAILOVER" || true
grep -hE "^(sessions|payloads)|another gateway" "$DIR/failover.log"
get "$PLAYERS" "$DIR/again"
play "$DIR/again"

say "the keys are rotated, and nobody is refused"
"$BIN/ringgate" fleet keys rotate main --wait --config "$DIR/operator.toml"
get "$PLAYERS" "$DIR/rotated"
play "$DIR/rotated"
"$BIN/ringgate" fleet doctor --watch 0s --config "$DIR/operator.toml" || true
say "done"
