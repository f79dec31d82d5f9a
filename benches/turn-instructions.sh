#!/bin/bash
# Counts the instructions that a turn executes per packet, under callgrind, and how many of them are the cipher's. Writes
# benches/record/turn-instructions.csv; what a change costs is that file's diff.
#
# valgrind knows no AVX-512, so the cipher is the AVX2 kernel; what is not the cipher is the same with every kernel.
set -euo pipefail
cd "$(dirname "$0")/.."

program=$(cargo bench --bench turn --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*turn-[^"]*\)".*/\1/p' | tail -1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# One dump each time `counted` is left, numbered in the order of the lines that the program prints.
valgrind --tool=callgrind --callgrind-out-file="$folder/out" --collect-atstart=no \
    --toggle-collect=turn::counted --dump-after=turn::counted \
    "$program" --count >"$folder/cases" 2>"$folder/log" || { cat "$folder/log" >&2; exit 1; }

# Instructions of a function and all that it calls, in dump $1. It has a line for each file whose code was inlined into it; the
# largest is the whole.
inclusive() {
    callgrind_annotate --inclusive=yes --threshold=100 "$folder/out.$1" 2>/dev/null |
        awk -v name="$2" 'index($0, name) { gsub(",", "", $1); if ($1 + 0 > most) most = $1 + 0 } END { print most + 0 }'
}

{
    echo "work,packets,instructions_per_packet,of_these_cipher"
    number=0
    tail -n +2 "$folder/cases" | while IFS=, read -r work packets; do
        number=$((number + 1))
        total=$(sed -n 's/^\(totals\|summary\): //p' "$folder/out.$number" | tail -1)
        cipher=$(($(inclusive $number ringgate_core::crypto::Aead::open) + $(inclusive $number ringgate_core::crypto::Aead::seal)))
        echo "$work,$packets,$((total / packets)),$((cipher / packets))"
    done
} >benches/record/turn-instructions.csv
echo "recorded in benches/record/turn-instructions.csv"
