#!/bin/bash
# systemd as process 1 of namespaces of its own, over a root whose files stay as they are:
#
#   boot.sh ROOT [PROGRAM...]      ROOT is / or a folder that debootstrap has made; each PROGRAM is found in /usr/local/bin there
#
# Says `booted PID` when its services may be started: `nsenter -t PID -a systemctl ...` talks to it. Everything ends with the
# standard input. What is written goes to memory. Of ROOT's own units only those start that every boot needs, and there is no
# network but loopback. Needs root, cgroup2 and what Debian has in the packages systemd, systemd-sysv and iproute2; exits with 3 where
# something of it is missing.
set -euo pipefail

root=${1:?"boot.sh ROOT [PROGRAM...]"}
shift

missing() {
    echo "boot.sh: $*" >&2
    exit 3
}
((EUID == 0)) || missing "it takes root"
[[ -x $root/lib/systemd/systemd ]] || missing "there is no systemd in $root"
groups=$(findmnt -n -t cgroup2 -o TARGET | head -1)
[[ -n $groups ]] || missing "cgroup2 is not mounted"
group=$groups/ringgate-systemd-$$
mkdir "$group" 2>/dev/null || missing "no group can be made in $groups"

# The process that unshares ignores what would end it politely.
end() {
    if [[ -n ${outside:-} ]]; then
        kill -KILL "$outside" 2>/dev/null || true
        wait "$outside" 2>/dev/null || true
    fi
    echo 1 >"$group/cgroup.kill"
    while grep -q 'populated 1' "$group/cgroup.events"; do sleep 0.05; done
    find "$group" -depth -type d -exec rmdir {} \;
}
trap end EXIT

# Makes the machine, in namespaces already, and becomes its first process.
inside() {
    local work name program
    work=$(mktemp -d)
    mount -t tmpfs -o mode=755 tmpfs "$work"
    mkdir "$work"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/root"
    cd "$work/root"
    for program in "$@"; do
        : >"usr/local/bin/${program##*/}"
        mount --bind "$program" "usr/local/bin/${program##*/}"
    done
    # Nothing of what an administrator has enabled there concerns us, nor of a gateway that was there.
    rm -rf etc/systemd/system etc/ringgate var/lib/{,private/}ringgate{,-agent}
    mkdir -p etc/systemd/system proc sys dev run tmp
    : >etc/fstab
    mount -t proc proc proc
    # Of the kernel that all share, this machine changes nothing.
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs dev
    for name in null zero full random urandom tty; do
        : >"dev/$name"
        mount --bind "/dev/$name" "dev/$name"
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t tmpfs tmpfs dev/shm
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    mkdir "$work/root/mnt/before"
    pivot_root . mnt/before
    umount -l mnt/before
    rmdir mnt/before
    # Mounts that systemd makes for a service, of its credentials for instance, are made elsewhere and come in by propagation.
    mount --make-rshared /
    ip link set lo up
    echo gate-1 >etc/hostname
    hostname gate-1
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target
}
export -f inside
export root

(
    echo "$BASHPID" >"$group/cgroup.procs"
    exec unshare --mount --propagation private --uts --ipc --net --pid --cgroup --fork --kill-child \
        bash -euo pipefail -c 'inside "$@"' inside "$@" </dev/null >&2
) &
outside=$!

# The first process, once there is one, and once it answers.
machine=
until nsenter -t "${machine:-0}" -a systemctl is-active -q basic.target 2>/dev/null; do
    { kill -0 "$outside" && ((SECONDS < 60)); } 2>/dev/null || missing "the machine did not boot"
    sleep 0.1
    machine=$(cat "/proc/$outside/task/$outside/children" 2>/dev/null | tr -d ' ') || true
done
echo "booted $machine"
cat >/dev/null
