#!/bin/bash
# Network card, interrupts, packet steering and processors of a host that runs ringgate.
#
#   host.sh show  CARD             what is set now
#   host.sh apply CARD WORKERS     processors for interrupts first, WORKERS processors for the gateway behind them
#   host.sh undo  CARD             back to what it was before (kept in /run/ringgate-host)
#
# Nothing survives a reboot: call it from a unit, before ringgate.service. Each step says why it is done, and skips what a card
# lacks. How to see that it helps: `ringgate hist diff before.hlog after.hlog`, and in `ringgate top` even workers and no kernel
# drops.
set -euo pipefail

action=${1:-} card=${2:-} workers=${3:-}
saved=/run/ringgate-host/$card
case $action in
    show | undo) [[ -n $card ]] ;;
    apply) [[ -n $card && $workers =~ ^[1-9][0-9]*$ ]] ;;
    *) false ;;
esac || {
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[[ -d /sys/class/net/$card ]] || {
    echo "host.sh: there is no network card $card" >&2
    exit 2
}

say() { printf '%s\n' "$*"; }

# write FILE VALUE REASON: keep the old value for undo, then set the new one.
write() {
    local file=$1 value=$2 reason=$3 before
    [[ -w $file ]] || { say "skipped  $file: not there, or not writable"; return 0; }
    before=$(tr -d '\0' <"$file")
    # The kernel leaves out a mask's leading zeros. In a list 0 is a processor.
    local zeros='s/^[0,]*//'
    [[ $file != *_list ]] || zeros=
    [[ $(sed "$zeros" <<<"$before") == "$(sed "$zeros" <<<"$value")" ]] && { say "as is    $file = $value"; return 0; }
    if (printf '%s' "$value" >"$file") 2>/dev/null; then
        printf '%s\t%s\n' "$file" "$before" >>"$saved"
        say "set      $file = $value (was $before)"
        say "         why: $reason"
    else
        say "skipped  $file: the kernel refuses $value"
    fi
}

# set_card WHAT BEFORE ARGUMENTS...: what ethtool sets, and the arguments that set it back, which are empty where the card does not
# say how it is.
set_card() {
    local what=$1 before=$2 refusal
    shift 2
    [[ -n $before ]] || { say "skipped  $card: $what: the card does not say how it is now"; return 0; }
    [[ $before != "$*" ]] || { say "as is    $card: $what"; return 0; }
    # It exits with 0 also after some refusals.
    if refusal=$(ethtool "$@" 2>&1) && [[ $refusal != *"Cannot "* ]]; then
        printf 'ethtool\t%s\n' "$before" >>"$saved"
        say "set      $card: $what (undo: ethtool $before)"
    else
        say "skipped  $card: $what: $(tail -1 <<<"$refusal")"
    fi
}

# told OPTION FIELD WHICH: a field of what ethtool tells of the card, the first or the last of that name. Empty where there is none.
told() {
    ethtool "$1" "$card" 2>/dev/null | awk -F ':[ \t]*' -v field="$2" -v which="$3" '
        $1 == field && !(which == "first" && seen++) { split($2, words, /[ \t]+/); value = words[1] }
        END { if (value != "n/a") print value }' || true
}

# What of a datagram chooses its queue, in ethtool's letters.
hashed() {
    ethtool -n "$card" rx-flow-hash udp4 2>/dev/null | awk '
        /^IP SA/ { printf "s" } /^IP DA/ { printf "d" } /bytes 0 & 1/ { printf "f" } /bytes 2 & 3/ { printf "n" }' || true
}

# The processors of a list like 0-3,8, one a line.
processors() {
    local range
    for range in ${1//,/ }; do seq "${range%-*}" "${range#*-}"; done
}

# A list of processors, which come in order: 0 1 2 8 is 0-2,8.
list() {
    local ranges=() first=$1 last=$1 cpu
    for cpu in "${@:2}" ''; do
        [[ $cpu != $((last + 1)) ]] || { last=$cpu; continue; }
        ((first == last)) && ranges+=("$first") || ranges+=("$first-$last")
        first=$cpu last=$cpu
    done
    (IFS=,; printf '%s' "${ranges[*]}")
}

# A mask of processors, which come in order, in groups of 32 bits as the kernel wants them.
mask() {
    local words=() word cpu
    for ((word = 0; word <= ${*: -1} / 32; word++)); do words[word]=0; done
    for cpu; do words[cpu / 32]=$((words[cpu / 32] | 1 << cpu % 32)); done
    for ((word = ${#words[@]} - 1; word >= 0; word--)); do
        printf '%08x' "${words[word]}"
        ((word == 0)) || printf ,
    done
}

# The numbers of the card's interrupts: of its PCI device, which for virtio is the one around it, or else by its name.
interrupts() {
    local device=/sys/class/net/$card/device
    local irqs=("$device"/msi_irqs/* "$device"/../msi_irqs/*)
    if [[ -e ${irqs[0]} || -e ${irqs[-1]} ]]; then
        ls -d "${irqs[@]}" 2>/dev/null | sed 's|.*/||' | sort -n
    else
        awk -v card="$card" '$NF ~ "(^|[^a-z0-9])" card "([^a-z0-9]|$)" { sub(":", "", $1); print $1 }' /proc/interrupts
    fi || true
}

show() {
    say "processors: $(cat /sys/devices/system/cpu/online); isolated: $(cat /sys/devices/system/cpu/isolated 2>/dev/null || true)"
    say "interrupts of $card: $(interrupts | tr '\n' ' ')"
    local file
    for file in /sys/class/net/"$card"/queues/rx-*/rps_cpus; do say "$file = $(cat "$file")"; done
    if command -v ethtool >/dev/null; then
        for file in -l -g -c; do ethtool "$file" "$card" 2>/dev/null || true; done
    fi
}

apply() {
    # Not all that a host could have: some are switched off, or are yet to be plugged in.
    local cpus spare own beside
    mapfile -t cpus < <(processors "$(cat /sys/devices/system/cpu/online)")
    ((workers < ${#cpus[@]})) || { say "WORKERS has to leave one of the ${#cpus[@]} processors to interrupts" >&2; exit 2; }
    spare=$((${#cpus[@]} - workers))
    own=$(list "${cpus[@]:spare}") beside=("${cpus[@]:0:spare}")
    mkdir -p "${saved%/*}"
    : >>"$saved"

    # The card's interrupts and the kernel's half of receiving stay off the workers' processors: a worker that is interrupted
    # for 50 us makes every player of its batch wait for them.
    local at=0 irq
    for irq in $(interrupts); do
        write "/proc/irq/$irq/smp_affinity_list" "${beside[at++ % spare]}" "interrupts beside the workers, one processor for each"
    done

    # Where a card has fewer queues than processors, the kernel spreads what it receives by the players' addresses. Over the spare
    # processors only: the workers have their own sockets to read.
    local file
    for file in /sys/class/net/"$card"/queues/rx-*/rps_cpus; do
        write "$file" "$(mask "${beside[@]}")" "protocol work on the processors that have no worker"
    done
    # RFS would move that work to where the socket is read, which is where the workers are.
    for file in /sys/class/net/"$card"/queues/rx-*/rps_flow_cnt; do
        write "$file" 0 "flows follow no thread: the workers' processors are for workers"
    done

    # Kernel threads and timers that may run anywhere run elsewhere.
    write /sys/devices/virtual/workqueue/cpumask "$(mask "${beside[@]}")" "deferred kernel work beside the workers"

    if command -v ethtool >/dev/null; then
        local most now adaptive
        # A longer ring holds the burst of one tick of all games; 4096 is the most that most cards have.
        most=$(told -g RX first) now=$(told -g RX last)
        ((${most:-0} <= 4096)) || most=4096
        set_card "rx ring ${most:-4096}, for the burst of a tick" "${now:+-G $card rx $now}" -G "$card" rx "${most:-4096}"
        # Interrupts at once when little comes, and together when much does: games notice 100 us, and 1 ms clearly.
        adaptive=$(told -c "Adaptive RX" last) now=$(told -c rx-usecs last)
        set_card "moderation by load" "${adaptive:+-C $card adaptive-rx $adaptive}" -C "$card" adaptive-rx on
        set_card "rx-usecs 20, so that nobody waits for an interrupt" "${now:+-C $card rx-usecs $now}" -C "$card" rx-usecs 20
        # Players' datagrams are told apart by port as well, or a carrier's players share one queue.
        now=$(hashed)
        set_card "UDP is hashed by address and port" "${now:+-N $card rx-flow-hash udp4 $now}" -N "$card" rx-flow-hash udp4 sdfn
    else
        say "skipped  ring, moderation and hash: ethtool is not installed"
    fi

    say
    say "The workers' processors are $own: CPUAffinity=$own in \`systemctl edit ringgate\`, and pin = true."
    say "For a host of its own, on the kernel's command line (reboot; undo: take it off again):"
    say "  isolcpus=managed_irq,domain,$own nohz_full=$own rcu_nocbs=$own"
    say "  why: no other thread, no tick and no deferred memory work runs where a worker does"
    say "Stop irqbalance, or it undoes the first step: systemctl disable --now irqbalance"
}

undo() {
    [[ -s $saved ]] || { say "nothing to undo for $card"; return 0; }
    # The last first, because the same may have been set twice.
    local file before left=()
    while IFS=$'\t' read -r file before; do
        if [[ $file == ethtool ]]; then
            # shellcheck disable=SC2086 # its arguments
            if ethtool $before; then say "set back ethtool $before"; else left+=("$file"$'\t'"$before"); fi
        elif printf '%s' "$before" >"$file"; then
            say "set back $file = $before"
        else
            left+=("$file"$'\t'"$before")
        fi
    done <<<"$(tac "$saved")"
    # What is refused can be tried again.
    rm -f "$saved"
    ((${#left[@]} == 0)) || { printf '%s\n' "${left[@]}" | tac >"$saved"; exit 1; }
}

"$action"
