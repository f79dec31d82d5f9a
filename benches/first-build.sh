#!/bin/bash
# Core seconds that each crate takes in what a newcomer builds first (`cargo build --release -p ringgate` from nothing), the most
# first, and how many of them there are. They grow with what else the machine does. Downloads are apart.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/measured" <<'WRAPPER'
#!/bin/bash
name=-
for ((at = 1; at < $#; at++)); do
    [[ ${!at} != --crate-name ]] || { next=$((at + 1)) && name=${!next}; }
done
"$@"
code=$?
times >"$FIRST_BUILD/times-$$"
{ read -r && read -r user system; } <"$FIRST_BUILD/times-$$"
echo "$name $user $system" >>"$FIRST_BUILD/log"
exit $code
WRAPPER
chmod +x "$folder/measured"

cargo fetch --locked --quiet
began=$SECONDS
FIRST_BUILD=$folder RUSTC_WRAPPER=$folder/measured \
    cargo build --release -p ringgate --locked --offline --quiet --target-dir "$folder/target"
awk '
    function seconds(text) { split(text, parts, /[ms]/); return 60 * parts[1] + parts[2] }
    { of[$1] += seconds($2) + seconds($3); all += seconds($2) + seconds($3) }
    END { for (name in of) printf "%6.1f %s\n", of[name], name; printf "%6.1f all\n", all }' "$folder/log" | sort -rn
echo "$((SECONDS - began)) s on the clock"
