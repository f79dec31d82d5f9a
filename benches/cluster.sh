#!/bin/bash
# What players notice of a cluster: gateways at one address behind a router with equal-cost paths, in network namespaces; an agent with the
# game process, and etcd, on a host of their own; players on another.
#
#     cargo build --profile dist -p ringgate -p ringgate-loadgen
#     benches/cluster.sh          # five gateways die, one after the other: 10,000 sessions, 1,000 of them at 20 payloads a second
#     benches/cluster.sh moves    # three gateways, then four, then three
#     benches/cluster.sh cut      # two gateways cannot reach each other, players move between them, and ten are kicked
#     benches/cluster.sh empty    # a gateway with all players is emptied into the others
#     benches/cluster.sh cost     # what forwarding costs, and being a member
#     SESSIONS=200 FAST=50 RAMP=4 HEAD=5 CONTROL=5 EVERY=14 benches/cluster.sh
#
# It takes root, etcd, openssl, jq and four minutes (`cut`: eight), and wants a quiet machine. Everything runs on two cores, so the time before
# anything happens is the control: where that loses anything, or leaves less than 30 % of a core idle, the figures mean nothing, and it ends
# with 1. So it does where a session is lost, a payload comes twice, or a gateway's books do not balance. What can be set, from outside, and
# what it is without:
set -euo pipefail
: "${SESSIONS:=10000}"   # players
: "${FAST:=1000}"        # of them, who send HZ payloads a second, and whose silence is told
: "${HZ:=20}"
: "${SLOW_HZ:=1}"        # payloads a second of the others
: "${KEEP_ALIVE:=1s}"    # of both ends
: "${RAMP:=40}"          # seconds in which players come
: "${HEAD:=10}"          # further seconds until everybody is in and has a standby
: "${CONTROL:=20}"       # seconds in which nothing happens
: "${DEATHS:=5}"
: "${EVERY:=20}"         # seconds from one event to the next
: "${BACK:=6}"           # seconds after which a host is back
: "${CUT:=300}"          # seconds in which two gateways do not reach each other
: "${DARK_MS:=200}"      # until the router notices
: "${WORKERS:=1}"        # of each gateway
: "${CORES:=0,1}"        # with `cost` the first of them
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
# Gateways, those of them that are a cluster, those that the router begins with, and how it spreads flows: a resilient group keeps those
# that are busy where they are, a plain one does not.
gateways=3 members=(1 2 3) at_first=(1 2 3) GROUP=${GROUP:-resilient} drain=0s
case $mode in
    deaths) ;;
    moves) gateways=4 members=(1 2 3 4) GROUP=plain ;;
    cut) GROUP=plain ;;
    empty) at_first=(1) drain=60s ;;
    cost) members=(1 2) CORES=${CORES%%,*} ;;
    *) fail "there is no scene \`$mode\`" ;;
esac
. benches/cluster/hosts.sh
. benches/cluster/players.sh
. "benches/cluster/$mode.sh"
exit "$verdict"
