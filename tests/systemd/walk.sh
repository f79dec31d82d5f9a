#!/bin/bash
# The Debian package on a machine with systemd, from its installation to its purge, as docs/howto/install.md says it; with players on it
# from ringgate-loadgen, whose books have to balance:
#
#   debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,iproute2 bookworm ROOT
#   tuning/debian/build.sh OUT && cargo build --profile dist -p ringgate-loadgen
#   tests/systemd/walk.sh ROOT OUT/ringgate_0.1.0_amd64.deb target/dist/ringgate-loadgen
#
# Prints each command and what it says, and ends at the first that fails. ROOT stays as it is (boot.sh). The second release is the same
# package under a higher number.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
root=$(realpath "$1") package=$(realpath "$2") generator=$(realpath "$3")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(dpkg-deb -f "$package" Version)
arch=$(dpkg-deb -f "$package" Architecture)
cp "$package" "$work/ringgate_${version}_$arch.deb"
dpkg-deb -R "$package" "$work/newer"
sed -i "s/^Version: .*/Version: $version+1/" "$work/newer/DEBIAN/control"
dpkg-deb --root-owner-group -Znone -b "$work/newer" "$work/ringgate_$version+1_$arch.deb" >/dev/null
old=/root/ringgate_${version}_$arch.deb new=/root/ringgate_$version+1_$arch.deb

coproc machine { "$here/boot.sh" "$root" "$generator"; }
read -r _ pid <&"${machine[0]}"
inside() { nsenter -t "$pid" -a "$@"; }
for file in "$work"/*.deb; do inside install /dev/stdin "/root/${file##*/}" <"$file"; done

# types COMMAND: as an operator types it, at a shell of that machine.
types() {
    printf '$ %s\n' "$1"
    inside env DEBIAN_FRONTEND=noninteractive HOME=/root SYSTEMD_COLORS=0 SYSTEMD_PAGER=cat bash -c "cd /root; $1" </dev/null 2>&1 |
        grep -vE '^(debconf|\(Reading|WARNING: apt|Reading |Building |Selecting |Preparing |$)' || [[ ${PIPESTATUS[0]} == 0 ]]
}

# holds WHAT COMMAND: waits until a command succeeds there.
holds() {
    local left=300
    until inside bash -c "$2" >/dev/null 2>&1; do
        ((left--)) || { echo "walk.sh: $1 in vain" >&2 && inside journalctl -u ringgate --no-pager -n 40 && exit 1; }
        sleep 0.1
    done
}

types "apt install -y $old"
types "ringgate keygen --out /etc/ringgate/netcode.key"
types "cp /usr/share/doc/ringgate/examples/gate.toml /etc/ringgate/gate.toml"
types "sed -i 's/203.0.113.9/127.0.0.1/' /etc/ringgate/gate.toml       # instead of an editor"
types "CREDENTIALS_DIRECTORY=/etc/ringgate ringgate check /etc/ringgate/gate.toml"
types "systemd-run --quiet --unit=game ringgate echo --udp 127.0.0.1:7777"
holds "for the game" 'ss -ulnH sport = :7777 | grep -q .'
types "systemctl enable --now ringgate"
types "ringgate status"
player="ringgate probe --key /etc/ringgate/netcode.key --protocol-id 0x1122334455667788 --server 127.0.0.1:40000 --payload hello"
types "$player"
types "systemctl status ringgate"
types "ringgate deny 203.0.113.0/24"

# Players who stay through all that an operator does on purpose.
printf '%s\n' "--- 50 players join; the rest happens beneath them"
inside ringgate-loadgen run --server 127.0.0.1:40000 --key /etc/ringgate/netcode.key --protocol-id 0x1122334455667788 \
    --admin 127.0.0.1:9464 --sessions 50 --hz 20 --hold 45s --require 'loss<0.0001%' >"$work/played" 2>&1 &
players=$!
holds "for players" 'ringgate sessions | grep -q "^50 "'
types "systemctl show -p MainPID -p NRestarts -p NFileDescriptorStore ringgate"
types "ringgate upgrade"
holds "for systemd to follow" '[[ $(systemctl show --value -p MainPID ringgate) == $(pgrep -x ringgate | sort -n | tail -1) ]]'
types "systemctl show -p MainPID -p NRestarts -p NFileDescriptorStore ringgate"
types "systemctl kill -s USR2 --kill-whom=main ringgate; sleep 2; journalctl -o cat -u ringgate | grep -c handed_over"
types "apt install -y $new"
types "apt install -y --allow-downgrades $old"
types "systemctl reload ringgate"
types "systemctl status ringgate"
if wait "$players"; then echo "--- the generator's books balance (exit 0)"; else cat "$work/played" && exit 1; fi
sed -n '/^sessions /,/^pause /p; /^\(ok\|NO\) /p' "$work/played"

types "systemctl kill -s KILL --kill-whom=main ringgate"
holds "for a restart" '[[ $(systemctl show --value -p NRestarts ringgate) == 1 ]] && systemctl is-active ringgate'
types "journalctl -o cat -u ringgate | grep -o '[0-9]* sockets go on[^\"]*'"
types "ringgate denied"
types "$player"
types "systemctl kill -s STOP --kill-whom=main ringgate"
holds "for the watchdog" '[[ $(systemctl show --value -p NRestarts ringgate) == 2 ]] && systemctl is-active ringgate'
types "journalctl -o cat -u ringgate | grep -i watchdog"
types "$player"
types "systemctl restart ringgate"
types "$player"
types "systemctl stop ringgate; systemctl show -p ActiveState -p Result -p NFileDescriptorStore ringgate"
types "systemctl start ringgate"
types "apt remove -y ringgate"
types "ls /etc/ringgate /var/lib/ringgate/; systemctl is-active ringgate; true"
types "apt purge -y ringgate"
types "ls -d /etc/ringgate /var/lib/ringgate /var/lib/private/ringgate /etc/sysctl.d/90-ringgate.conf; true"
echo "walk.sh: done"
