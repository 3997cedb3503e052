#!/usr/bin/env bash
# Installs, starts, upgrades, removes and purges the package in a throw-away root, and checks what stays: first without a service
# manager, then in a copy of the root that systemd boots. Needs root, and a sample Source at a loopback address.
# Usage: packaging/test-deb.sh ROOT OLD.deb NEW.deb URL     ROOT: a minimal Debian with what the package depends on; it is changed
# Exit status: 0; 1 after a failure; 4 if all is well, but systemd cannot boot the root here.
set -euo pipefail
exec </dev/null

if [[ -z ${RESYNCD_IN_NAMESPACE-} ]]; then
    # What is mounted for it goes with it.
    RESYNCD_IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
tests=$(realpath "$(dirname "$0")")
root=$(realpath "$1") old=$(realpath "$2") new=$(realpath "$3") url=$4
daemon=''
work=$(mktemp -d)
trap finish EXIT

finish() {
    local status=$?
    if [[ -n $daemon ]]; then
        kill "$daemon" 2>/dev/null || true
    fi
    if ((status != 0 && status != 4)); then
        cat "$work/log" 2>/dev/null || true
        printf 'FAILED: %s\n' "${current:-before the first step}"
    fi
    rm -rf "$work" "$root.boot"
    exit "$status"
}

step() {
    current=$1
    printf -- '-- %s\n' "$current"
}

inside() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

dpkg_inside() {
    cp "$2" "$root/tmp/resyncd.deb"
    inside dpkg "$1" /tmp/resyncd.deb
}

# As the unit does it: its command and its user.
start() {
    local command tries
    command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/resyncd.service")
    # Not by a function, so that the process is the daemon.
    # shellcheck disable=SC2086 # words of a command
    chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin RUST_LOG=info \
        setpriv --reuid=resyncd --regid=resyncd --clear-groups --no-new-privs $command >"$work/log" 2>&1 &
    daemon=$!
    for ((tries = 0; tries < 120; tries++)); do
        if inside resyncd status >"$work/status" 2>&1 && grep --quiet in-sync "$work/status"; then
            inside resyncd status --live
            return
        fi
        sleep 0.5
    done
    cat "$work/status"
    return 1
}

stop() {
    kill -TERM "$daemon"
    wait "$daemon"
    daemon=''
}

expect() {
    if [[ $2 != "$3" ]]; then
        printf '%s: %s instead of %s\n' "$1" "$2" "$3"
        return 1
    fi
}

mode() {
    inside stat --format='%a %U:%G' "$1"
}

# All paths but those of dpkg, of the state, and of what the mirror has.
paths() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./run -o -path ./var/lib/dpkg \
        -o -path ./var/cache -o -path ./var/log -o -path ./srv/mirror \) -prune -o -print) | sort
}

free_address() {
    python3 -c 'import socket; free = socket.create_server(("127.0.0.1", 0)); print("%s:%s" % free.getsockname())'
}

configuration="# changed by the administrator
[callback]
listen = \"$(free_address)\"
[status]
listen = \"$(free_address)\"
[http]
allow_private_addresses = true
[[source]]
name = \"sample\"
url = \"$url\"
mirror = \"/srv/mirror/sample\""

cp --archive "$root" "$root.boot"
mount -t proc proc "$root/proc"
paths >"$work/before"

step 'install'
dpkg_inside --install "$old" | tee "$work/installed"
grep --quiet 'systemctl enable --now resyncd' "$work/installed"
expect 'the program' "$(mode /usr/bin/resyncd)" '755 root:root'
expect 'the configuration' "$(mode /etc/resyncd/config.toml)" '640 root:resyncd'
expect 'the state folder' "$(mode /var/lib/resyncd)" '700 resyncd:resyncd'
expect 'the folder of mirrors' "$(mode /srv/mirror)" '755 resyncd:resyncd'
inside resyncd version
if [[ -n $(find "$root/etc/systemd/system" -name 'resyncd*') ]]; then
    printf 'the service is enabled without a Source\n'
    exit 1
fi
# Without a Source the configuration has one fault, which says so.
inside resyncd check >"$work/check" 2>&1 && exit 1
grep --quiet '\[no-source\]' "$work/check"
expect 'the faults' "$(wc -l <"$work/check")" 1

step 'start'
printf '%s\n' "$configuration" >>"$root/etc/resyncd/config.toml"
inside setpriv --reuid=resyncd --regid=resyncd --clear-groups resyncd check --environment
start
stop
files=$(find "$root/srv/mirror/sample" -type f -not -path '*/.resyncd/*' | wc -l)
((files > 0))

step 'upgrade'
dpkg_inside --install "$new" | tee "$work/upgraded"
grep --quiet 'systemctl enable' "$work/upgraded" && exit 1
expect 'the version' "$(inside dpkg-query --show --showformat='${Version}' resyncd)" "$(dpkg-deb --field "$new" Version)"
grep --quiet '^# changed by the administrator$' "$root/etc/resyncd/config.toml"
expect 'the configuration' "$(mode /etc/resyncd/config.toml)" '640 root:resyncd'
start
# Nothing is fetched again: the state is that of before.
grep --quiet "$url" "$work/status"
stop

step 'remove'
inside dpkg --remove resyncd
[[ ! -e $root/usr/bin/resyncd ]]
[[ -f $root/etc/resyncd/config.toml && -f $root/var/lib/resyncd/resyncd.db ]]

step 'install again'
dpkg_inside --install "$new" >/dev/null
grep --quiet '^# changed by the administrator$' "$root/etc/resyncd/config.toml"
start
stop

step 'purge'
printf 'not resyncd'\''s\n' >"$root/var/lib/resyncd/notes.txt"
inside dpkg --purge resyncd | tee "$work/purged"
grep --quiet '/var/lib/resyncd is not empty' "$work/purged"
expect 'what stays in the state folder' "$(ls -A "$root/var/lib/resyncd")" notes.txt
expect 'the files of the mirror' "$(find "$root/srv/mirror/sample" -type f -not -path '*/.resyncd/*' | wc -l)" "$files"
rm "$root/var/lib/resyncd/notes.txt"
rmdir "$root/var/lib/resyncd"
paths >"$work/after"
# The user stays, for the files of the mirror; sysusers has made copies of the files that it changes.
comm -13 "$work/before" "$work/after" | grep -v '^\./etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\|\.pwd\.lock\)-\?$' >"$work/left" || true
if [[ -s $work/left ]]; then
    printf 'left behind:\n'
    cat "$work/left"
    exit 1
fi

step 'purge of what was never used'
dpkg_inside --install "$new" >/dev/null
mv "$root/srv/mirror/sample" "$work/mirror"
inside dpkg --purge resyncd
[[ ! -e $root/var/lib/resyncd && ! -e $root/srv/mirror && ! -e $root/etc/resyncd ]]
printf 'installs, starts, upgrades, purges; the mirror stays\n'

step 'the same below systemd'
boot=$root.boot
cp "$old" "$boot/old.deb"
cp "$new" "$boot/new.deb"
cp "$tests/test-unit.sh" "$boot/test-unit.sh"
printf '%s\n' "$configuration" >"$boot/configuration.toml"
cat >"$boot/etc/systemd/system/test-unit.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash -c '/test-unit.sh /old.deb /new.deb "$(cat /configuration.toml)" >/test.log 2>&1; echo $? >/test.status'
ExecStopPost=/bin/systemctl --no-block poweroff
UNIT
mkdir -p "$boot/etc/systemd/system/multi-user.target.wants"
ln -s ../test-unit.service "$boot/etc/systemd/system/multi-user.target.wants/"
if ! command -v systemd-nspawn >/dev/null; then
    printf 'systemd-nspawn is not installed here\n'
    exit 4
fi
timeout --kill-after=10s 600s systemd-nspawn --quiet --keep-unit --register=no --directory="$boot" --boot >"$work/boot" 2>&1 || true
if [[ ! -e $boot/test.log ]]; then
    tail -n 5 "$work/boot"
    printf 'systemd-nspawn cannot boot a root here\n'
    exit 4
fi
cat "$boot/test.log"
[[ $(cat "$boot/test.status") == 0 ]]
