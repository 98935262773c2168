#!/bin/sh
# Boots the system below $1: its systemd is the first process of namespaces, in a group of processes
# of its own. It runs /checks.sh, whose output is in /checks.out, and ends.
root=$1
groups=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET) || exit 1
mkdir -p "$groups/weft-package" || exit 1
cat >"$root/etc/systemd/system/checks.service" <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh /checks.sh
StandardOutput=truncate:/checks.out
StandardError=inherit
TimeoutStartSec=600
UNIT
# shellcheck disable=SC2016
boot='set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount -t sysfs sys "$0/sys"
mount -t cgroup2 cgroup "$0/sys/fs/cgroup"
mount -t tmpfs run "$0/run"
mount -t tmpfs dev "$0/dev"
for name in null zero full random urandom tty; do
    touch "$0/dev/$name"
    mount --bind "/dev/$name" "$0/dev/$name"
done
mkdir "$0/dev/pts" "$0/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"
ln -s pts/ptmx "$0/dev/ptmx"
mount -t tmpfs shm "$0/dev/shm"
ip link set lo up
ip link add eth0 type veth peer name eth1
ip address add 192.0.2.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
mkdir -p "$0/old"
cd "$0"
# Services have mount namespaces of their own, for which the root has to be a mount.
pivot_root . old
umount --lazy /old
container=weft exec /lib/systemd/systemd --log-target=null --unit=checks.service </dev/null'
sh -c 'echo $$ >"$0/weft-package/cgroup.procs" && shift && exec "$@"' "$groups" - \
    timeout 900 unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup \
    sh -c "$boot" "$root" </dev/null
find "$groups/weft-package" -depth -type d -exec rmdir {} +
