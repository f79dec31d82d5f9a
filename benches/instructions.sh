#!/bin/bash
# Counts the instructions that the cipher executes per packet, under callgrind: numbers that neither the machine's clock nor its
# neighbours change. Writes benches/record/instructions.csv; what a change costs is that file's diff.
#
# valgrind knows no AVX-512, so the portable and the AVX2 kernel are counted. The portable one is the chacha20poly1305 crate,
# which picks AVX2 by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

program=$(cargo bench --bench crypto --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*crypto-[^"]*\)".*/\1/p' | tail -1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# One dump each time `counted` is left, numbered in the order of the lines that the program prints.
valgrind --tool=callgrind --callgrind-out-file="$folder/out" --collect-atstart=no \
    --toggle-collect=crypto::contest::counted --dump-after=crypto::contest::counted \
    "$program" --count >"$folder/cases" 2>"$folder/log" || { cat "$folder/log" >&2; exit 1; }

{
    echo "kernel,operation,bytes,batch,packets,instructions_per_packet"
    number=0
    while IFS=, read -r kernel operation bytes batch packets; do
        number=$((number + 1))
        total=$(sed -n 's/^\(totals\|summary\): //p' "$folder/out.$number" | tail -1)
        echo "$kernel,$operation,$bytes,$batch,$packets,$((total / packets))"
    done <"$folder/cases"
} >benches/record/instructions.csv
echo "recorded in benches/record/instructions.csv"
