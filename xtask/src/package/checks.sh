#!/bin/sh
# Installs the agent's package in a system whose first process is systemd, uses it, and removes it.
# Prints a word for each thing that holds.
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin

active() {
    timeout 60 sh -c 'until systemctl is-active --quiet weftd; do sleep 0.2; done'
}

# Ranks that go without the agent say so.
ranks() {
    said=$(setpriv --reuid 65534 --regid 65534 --clear-groups \
        weft run -n 2 --env WEFT_LINK=agent weft app asp --nodes 64 --check 2>&1) || return 1
    case $said in *"without the agent"*) return 1 ;; esac
}

number() {
    systemctl show --property MainPID --value weftd
}

dpkg --install /packages/weft_*.deb /packages/weft-agent_*.deb && active && echo started
systemctl is-enabled --quiet weftd && echo enabled
[ "$(stat --format %U "/proc/$(number)")" = weft ] && echo own-user
ranks && echo ran
before=$(number)
systemctl restart weftd && [ "$(number)" != "$before" ] && ranks && echo restarted
before=$(number)
[ "$before" -gt 0 ] && kill -KILL "$before"
timeout 60 sh -c "until systemctl is-active --quiet weftd && [ \
    \$(systemctl show --property MainPID --value weftd) != $before ]; do sleep 0.2; done" &&
    ranks && echo came-back
dpkg --install /packages/weft-agent_*.deb && active && ranks && echo upgraded
# A cluster, by the key and one line.
weft cluster init && echo 'WEFTD_OPTIONS=--cluster lab' >/etc/weft/weftd.conf &&
    systemctl restart weftd && active && timeout 60 sh -c \
    'until weft cluster status | grep -q "cluster lab: 1 of 1 hosts"; do sleep 0.2; done' &&
    echo joined
setpriv --reuid 65534 --regid 65534 --clear-groups weftd --status | grep -q '^cluster' && echo found
last=$(number)
dpkg --purge weft-agent weft && timeout 60 sh -c "while [ -d /proc/$last ]; do sleep 0.2; done" &&
    ! systemctl is-active --quiet weftd && ! systemctl cat weftd 2>/dev/null && echo removed
timeout 60 sh -c 'while [ -e /run/weft ] || getent passwd weft >/dev/null; do sleep 0.2; done' &&
    [ ! -e /etc/weft ] && echo clean
journalctl --no-pager --boot --unit weftd
