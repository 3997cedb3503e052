#!/usr/bin/env bash
# resyncd against implementations by others, on loopback:
#   1. it follows, by polling, a Source that `resync` (PyPI) built and Python's http.server serves;
#   2. it follows, by notification, the sample Source through a hub made of `flask-websub` (PyPI), once with a hub that verifies
#      before it answers and once with one that verifies afterwards.
# Usage: tests/interop/run.sh RESYNCD SAMPLE_SOURCE [FOLDER]
#   RESYNCD        the daemon's binary
#   SAMPLE_SOURCE  the binary of examples/sample_source.rs
#   FOLDER         where the Python environment is kept from run to run; default target/interop
set -euo pipefail

if (($# < 2)); then
    sed -n '2,9p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
resyncd=$(realpath "$1")
sample_source=$(realpath "$2")
kept=${3:-${CARGO_TARGET_DIR:-$here/../../target}/interop}
mkdir -p "$kept"
kept=$(realpath "$kept")
work=$(mktemp -d "$kept/run.XXXXXX")
python=$kept/venv/bin/python
export PYTHONUNBUFFERED=1

started=()

step() { printf 'interop: %s\n' "$*"; }

# start NAME COMMAND…: in the background, its output in $work/NAME.log, its process id in $pid
start() {
    local name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 &
    pid=$!
    started+=("$pid")
}

# stop PID: asks it to end, and waits until it has; its exit status
stop() {
    local each running=() status=0
    for each in "${started[@]}"; do
        [[ $each == "$1" ]] || running+=("$each")
    done
    started=(${running[@]+"${running[@]}"})
    kill -TERM "$1" 2>/dev/null || true
    wait "$1" || status=$?
    return "$status"
}

finish() {
    local status=$?
    trap - EXIT
    for pid in ${started[@]+"${started[@]}"}; do
        stop "$pid" || true
    done
    if ((status != 0)); then
        step "FAILED (exit status $status); the logs:"
        for log in "$work"/*.log; do
            printf -- '--- %s\n' "$log"
            tail -n 200 "$log"
        done
    else
        rm -rf "$work"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# said NAME PATTERN: waits until a log has a line that matches, and prints what the pattern's group caught
said() {
    local log=$work/$1.log line tries
    for ((tries = 0; tries < 300; tries++)); do
        line=$(sed -nE "s|$2|\\1|p" "$log" | head -n 1)
        if [[ -n $line ]]; then
            printf '%s\n' "$line"
            return
        fi
        sleep 0.1
    done
    step "$1 did not start" >&2
    return 1
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

wait_for() { "$python" "$here/wait_for.py" "$status" "$@"; }

# configure NAME URL SETTING…: writes $work/NAME.toml; sets $config, $mirror and $status
configure() {
    local name=$1 url=$2 callback_port status_port
    shift 2
    callback_port=$(free_port)
    status_port=$(free_port)
    config=$work/$name.toml
    mirror=$work/$name-mirror
    status=http://127.0.0.1:$status_port
    {
        printf 'state_dir = "%s"\n' "$work/$name-state"
        printf '[callback]\nlisten = "127.0.0.1:%s"\n' "$callback_port"
        printf 'public_url = "http://127.0.0.1:%s/"\n' "$callback_port"
        printf '[status]\nlisten = "127.0.0.1:%s"\n' "$status_port"
        printf '[http]\nallow_private_addresses = true\n'
        printf '[[source]]\nname = "%s"\nurl = "%s"\nmirror = "%s"\n' "$name" "$url" "$mirror"
        printf '%s\n' "$@"
    } >"$config"
    "$resyncd" --config "$config" check
}

prepare_python() {
    if ! cmp -s "$here/requirements.txt" "$kept/venv/installed.txt"; then
        step "installing the Python parts into $kept/venv"
        rm -rf "$kept/venv"
        python3 -m venv "$kept/venv"
        "$kept/venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
        cp "$here/requirements.txt" "$kept/venv/installed.txt"
    fi
}

# The mirror holds the same files as the folder that is served, byte for byte.
poll_a_source_of_resync() {
    local site=$work/site base port daemon
    mkdir "$site"
    start site "$python" -m http.server 0 --bind 127.0.0.1 --directory "$site"
    port=$(said site '.* port ([0-9]+).*')
    base=http://127.0.0.1:$port
    "$python" "$here/resync_site.py" baseline "$site" "$base"
    step "resync: a Source built by resync-build is served at $base"

    configure resync "$base/" 'notifications = false' 'poll_interval = "1s"'
    start resyncd-poll "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync
    diff -r "$site/data" "$mirror/127.0.0.1:$port/data"
    step "resync: the baseline is the same, byte for byte"
    "$resyncd" --config "$config" discover "$base/"
    "$resyncd" --config "$config" audit
    step "resync: discover tells what there is, and an audit beside the daemon finds nothing"

    "$python" "$here/resync_site.py" changes "$site" "$base"
    wait_for "applied=updated:$base/data/updated.txt" "applied=created:$base/data/created.txt" \
        "applied=deleted:$base/data/deleted.txt"
    diff -r "$site/data" "$mirror/127.0.0.1:$port/data"
    step "resync: an update, a creation and a deletion came by the Change List; the mirror is the same"

    stop "$daemon"
    step "resync: the daemon stopped cleanly"
}

# expect_subscriptions DATABASE NUMBER: the hub comes to have that many; it writes them down a moment after it has verified
expect_subscriptions() {
    "$python" "$here/expect_subscriptions.py" "$@"
}

# control REQUEST [CONTENT]: asks the sample Source for something
control() {
    "$python" -c 'import sys, urllib.request
request = urllib.request.Request(sys.argv[1], data=sys.argv[2].encode(), method="POST")
urllib.request.urlopen(request, timeout=30).read()' "$control/$1" "${2-}"
}

# Each of the sample Source's resources is in the mirror as it is served, and nothing else is.
compare_with_sample_source() {
    "$python" "$here/same_as_source.py" "$source" "$mirror" "$@"
}

# follow_through_a_hub before|after: when the hub verifies intent
follow_through_a_hub() {
    local verifies=$1 name=hub-verifies-$1 database=$work/$1.sqlite hub source control daemon names
    start "$name" "$python" "$here/websub_hub.py" "$database" "$verifies"
    hub=$(said "$name" '^hub (.*)')
    start "$name-source" "$sample_source" --hub "$hub" --set-size 3
    source=$(said "$name-source" '^source (.*)')
    control=$(said "$name-source" '^control (.*)')
    step "flask-websub: a hub that verifies $verifies it answers is at $hub, a Source at $source"

    configure "$name" "$source" 'signatures = "required"' 'poll_interval = "1h"'
    start "$name-resyncd" "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync active=change-notification active=framework-notification
    expect_subscriptions "$database" 2
    compare_with_sample_source r0000.txt r0001.txt r0002.txt
    step "flask-websub: subscribed and verified; the baseline is the same"

    control 'update?name=r0000.txt' 'as it is now'
    control 'create?name=new.txt' 'was not there'
    control 'delete?name=r0002.txt'
    control publish
    names=${source}set1/res
    wait_for in-sync "applied=updated:$names/r0000.txt" "applied=created:$names/new.txt" \
        "applied=deleted:$names/r0002.txt" "origin=notification:$names/new.txt"
    compare_with_sample_source r0000.txt r0001.txt new.txt
    step "flask-websub: a signed notification was delivered and applied; the mirror is the same"

    "$resyncd" --config "$config" unsubscribe
    expect_subscriptions "$database" 0
    step "flask-websub: unsubscribed; the hub has no subscription left"

    stop "$daemon"
    step "flask-websub: the daemon stopped cleanly"
}

prepare_python
poll_a_source_of_resync
follow_through_a_hub before
follow_through_a_hub after
step "all is well"
