#!/usr/bin/env bash
# Installs the programs that the benchmark `compare` compares resyncd with into $RESYNCD_PEERS, or target/peers: nginx, wrk and aria2
# of Debian, curl and unzip if the machine has none, and resync, the reference implementation, from PyPI. Needs no root: the
# packages are unpacked, not installed. What is there already and runs, stays. Installs each one on its own, whatever becomes of the
# others; exits with 1 if one is missing at the end.
# Usage: benches/peers.sh
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

resync_version=2.0.1
target=${CARGO_TARGET_DIR:-target}
peers=${RESYNCD_PEERS:-$target/peers}
mkdir -p "$peers/bin"
peers=$(realpath "$peers")
libraries=$peers/debian/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf '%s-linux-gnu' "$(uname -m)")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# runs PROGRAM PATH: whether it prints its version. Its exit status means nothing: `wrk -v` exits with 1.
runs() {
    local option=--version before output
    case $1 in
        nginx) option=-v before=nginx/ ;;
        wrk) option=-v before='wrk ' ;;
        aria2c) before='aria2 version ' ;;
        curl) before='curl ' ;;
        unzip) option=-v before='UnZip ' ;;
        resync-sync) option=--help before='(v' ;;
    esac
    output=$("$2" "$option" 2>&1) || true
    [[ $output == *"$before"* ]]
}

# path_of PROGRAM: prints its path; fails if there is none that runs
path_of() {
    local path
    for path in "$peers/bin/$1" "$(command -v "$1" || true)" "/usr/sbin/$1"; do
        if [[ -x $path ]] && runs "$1" "$path"; then
            printf '%s' "$path"
            return
        fi
    done
    return 1
}

# unpack PACKAGE PROGRAM: unpacks a Debian package with what it needs and the machine does not have
unpack() {
    local packages package path
    mkdir "$work/$1"
    packages=$(apt-get -qq --no-install-recommends --simulate install "$1" | awk '$1 == "Inst" { print $2 }') || return 1
    # Nothing is missing if it is installed but does not run.
    packages=${packages:-$1}
    # shellcheck disable=SC2086 # one argument a package
    (cd "$work/$1" && apt-get -q download $packages) || return 1
    for package in "$work/$1"/*.deb; do
        dpkg --extract "$package" "$peers/debian" || return 1
    done
    for path in "$peers/debian/usr/sbin/$2" "$peers/debian/usr/bin/$2"; do
        if [[ -x $path ]]; then
            # An unpacked program does not find its libraries by itself.
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$path" >"$peers/bin/$2" &&
                chmod +x "$peers/bin/$2"
            return
        fi
    done
    return 1
}

install_resync() {
    python3 -m venv --clear "$peers/resync" &&
        "$peers/resync/bin/pip" install --quiet --disable-pip-version-check "resync==$resync_version" setuptools &&
        ln -sf "$peers/resync/bin/resync-sync" "$peers/bin/resync-sync"
}

for pair in nginx:nginx wrk:wrk aria2:aria2c curl:curl unzip:unzip; do
    if ! path_of "${pair#*:}" >/dev/null && ! unpack "${pair%:*}" "${pair#*:}"; then
        printf '%s cannot be installed; `apt-get update` may help\n' "${pair%:*}" >&2
    fi
done
if ! path_of resync-sync >/dev/null && ! install_resync; then
    printf 'resync %s cannot be installed\n' "$resync_version" >&2
fi

status=0
for program in nginx wrk aria2c curl unzip resync-sync; do
    if path=$(path_of "$program"); then
        printf '%-12s %s\n' "$program" "$path"
    else
        printf '%-12s missing\n' "$program"
        status=1
    fi
done
exit "$status"
