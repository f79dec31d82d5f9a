# shellcheck shell=bash
# What benches in shell have in common: children that end with the script, a folder for what they write, network namespaces, a key.
# A script sources this in the workspace's root, after it has said what can be set; $BIN has the programs.

fail() { echo "${0##*/}: $*" >&2; exit 2; }

# need PACKAGE...: a program of each is in $BIN.
need() {
    local program
    for program in "$@"; do
        [[ -x $BIN/$program ]] || fail "$BIN/$program is missing: cargo build --profile dist -p $program"
    done
    BIN=$(realpath "$BIN")
}

need_root() { ((EUID == 0)) || fail "it makes network namespaces, which takes root"; }

work=$(mktemp -d)
children=()
namespaces=()
# Ends what this script has started, by its ids.
end_children() {
    local child
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
    children=()
}
# A script that has more to end has a function `at_end`.
clean() {
    local name
    if [[ $(type -t at_end) == function ]]; then at_end; fi
    end_children
    for name in "${namespaces[@]}"; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# make_namespace NAME: one with loopback, until the end.
make_namespace() {
    namespaces+=("$1")
    ip netns add "$1"
    ip -n "$1" link set lo up
}

# make_wire GATEWAY PLAYERS NETWORK [NUMBER]: two of them with wire0, or another number, in each, NETWORK.1 and NETWORK.2. A gateway that
# is there already stays, so that it may have several.
make_wire() {
    local wire=wire${4:-0}
    [[ -e /run/netns/$1 ]] || make_namespace "$1"
    make_namespace "$2"
    ip -n "$1" link add "$wire" type veth peer name "$wire" netns "$2"
    ip -n "$1" addr add "$3.1/24" dev "$wire"
    ip -n "$2" addr add "$3.2/24" dev "$wire"
    ip -n "$1" link set "$wire" up
    ip -n "$2" link set "$wire" up
}

make_key() {
    head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$1"
    chmod 600 "$1"
}

# wait_for FILE LINE [PID]: until a line of the file begins or reads so; not when the process has ended.
wait_for() {
    for _ in {1..200}; do
        grep -qs "$2" "$1" && return 0
        [[ -z ${3:-} ]] || kill -0 "$3" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
