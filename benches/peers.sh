#!/usr/bin/env bash
# Installs the programs that the benchmark `compare` compares resyncd with into $RESYNCD_PEERS, or target/peers: nginx, wrk and aria2
# of Debian, curl and unzip if the machine has none, and resync, the reference implementation, from PyPI. Needs no root: the
# packages are unpacked, not installed. What is there already stays.
# Usage: benches/peers.sh
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

resync_version=2.0.1
target=${CARGO_TARGET_DIR:-target}
peers=${RESYNCD_PEERS:-$target/peers}
mkdir -p "$peers/bin"
peers=$(realpath "$peers")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# wanted PACKAGE PROGRAM: whether the program has yet to be installed
wanted() {
    [[ ! -x $peers/bin/$2 ]] && ! command -v "$2" >/dev/null
}

# Unpacks Debian packages with what they need and the machine does not have.
unpack() {
    local packages
    packages=$(apt-get -qq --no-install-recommends --simulate install "$@" | awk '$1 == "Inst" { print $2 }')
    if [[ -z $packages ]]; then
        printf 'apt-get has no candidates for %s; `apt-get update` may help\n' "$*" >&2
        return 1
    fi
    # shellcheck disable=SC2086 # one argument a package
    (cd "$work" && apt-get -q download $packages)
    for package in "$work"/*.deb; do
        dpkg --extract "$package" "$peers/debian"
    done
}

# A program of an unpacked package finds its libraries only if it is told where they are.
link_unpacked() {
    local program=$1 path
    for path in "$peers/debian/usr/sbin/$program" "$peers/debian/usr/bin/$program"; do
        if [[ -x $path ]]; then
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$path" >"$peers/bin/$program"
            chmod +x "$peers/bin/$program"
        fi
    done
}

packages=() programs=()
for pair in nginx:nginx wrk:wrk aria2:aria2c curl:curl unzip:unzip; do
    if wanted "${pair%:*}" "${pair#*:}"; then
        packages+=("${pair%:*}")
        programs+=("${pair#*:}")
    fi
done
if ((${#packages[@]})); then
    unpack "${packages[@]}"
    libraries=$peers/debian/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf '%s-linux-gnu' "$(uname -m)")
    for program in "${programs[@]}"; do
        link_unpacked "$program"
    done
fi

if wanted resync resync-sync; then
    python3 -m venv "$peers/resync"
    "$peers/resync/bin/pip" install --quiet --disable-pip-version-check "resync==$resync_version" setuptools
    ln -sf "$peers/resync/bin/resync-sync" "$peers/bin/resync-sync"
fi

for program in nginx wrk aria2c curl unzip resync-sync; do
    path=$peers/bin/$program
    printf '%-12s %s\n' "$program" "$([[ -x $path ]] && printf '%s' "$path" || command -v "$program")"
done
