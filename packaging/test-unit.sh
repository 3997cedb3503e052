#!/usr/bin/env bash
# Runs inside a booted throw-away root: the package is installed, the service started, upgraded, stopped by its watchdog, and purged by
# a real systemd. packaging/test-deb.sh starts it.
# Usage: test-unit.sh OLD.deb NEW.deb CONFIGURATION     CONFIGURATION: what is appended to the configuration
set -euo pipefail
exec </dev/null
export DEBIAN_FRONTEND=noninteractive

old=$1 new=$2 configuration=$3
trap 'status=$?; ((status == 0)) || { systemctl --no-pager status resyncd; journalctl --no-pager -u resyncd | tail -n 50; }' EXIT

property() {
    systemctl show --property="$1" --value resyncd
}

# until_true COMMAND…: waits for a minute
until_true() {
    local tries
    for ((tries = 0; tries < 120; tries++)); do
        if "$@"; then return; fi
        sleep 0.5
    done
    printf 'not within a minute: %s\n' "$*"
    return 1
}

in_sync() {
    resyncd status 2>/dev/null | grep --quiet in-sync
}

text_is() {
    [[ $(property StatusText) == "$1"* ]]
}

dpkg --install "$old"
if systemctl is-enabled resyncd; then exit 1; fi
if systemctl is-active resyncd; then exit 1; fi
printf '%s\n' "$configuration" >>/etc/resyncd/config.toml

# Started when it says that it is.
systemctl enable --now resyncd
systemctl is-active resyncd
until_true in_sync
resyncd status --live
until_true text_is '1 Source, 1 of 1 set in sync'
printf 'started: %s\n' "$(property StatusText)"

# An upgrade restarts it, and it stays enabled.
before=$(property MainPID)
dpkg --install "$new"
systemctl is-active resyncd
systemctl is-enabled resyncd
[[ $(property MainPID) != "$before" ]]
until_true in_sync
printf 'upgraded: process %s instead of %s\n' "$(property MainPID)" "$before"

# A daemon that hangs is started again.
mkdir /run/systemd/system/resyncd.service.d
printf '[Service]\nWatchdogSec=10s\nTimeoutAbortSec=5s\n' >/run/systemd/system/resyncd.service.d/test.conf
systemctl daemon-reload
systemctl restart resyncd
sleep 25
[[ $(property NRestarts) == 0 ]]
kill -STOP "$(property MainPID)"
restarted() { [[ $(property NRestarts) == 1 ]] && in_sync; }
until_true restarted
printf 'restarted by the watchdog\n'

dpkg --remove resyncd
if systemctl is-active resyncd; then exit 1; fi
dpkg --purge resyncd
if systemctl cat resyncd >/dev/null 2>&1; then exit 1; fi
[[ -d /srv/mirror/sample && ! -e /etc/resyncd && ! -e /var/lib/resyncd ]]
printf 'purged; the mirror stays\n'
