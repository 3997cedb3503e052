#!/usr/bin/env bash
# Interoperability of resyncd with other implementations, on loopback:
#   1. polling: a Source that `resync` (PyPI) builds and Python's http.server serves;
#   2. notifications: the sample Source through a hub made of `flask-websub` (PyPI). The hub verifies intent once before it
#      answers and once afterwards;
#   3. patches: of JSON, made by `jsonpatch` (PyPI), and of XML, compared with what `lxml` (PyPI) makes of the same document;
#   4. versions: `pywb` (PyPI) as TimeGate and TimeMap of a Source;
#   5. WebSockets: a Source made of `tornado` (PyPI), as in the example of Notification 0.8, and one made of `websockets` (PyPI);
#   6. XMPP PubSub: a Source that publishes by `slixmpp` (PyPI), with prosody (Debian) as the server of both;
#   7. WARC: a dump of version 0.1 that `warcio` (PyPI) writes, compared with what it reads;
#   8. messages to people: mails to a server made of `aiosmtpd` (PyPI), and requests that `standardwebhooks` (PyPI) verifies;
#   9. documents that the crate `resourcesync` writes: `resync` reads them, and `lxml` (PyPI) validates them against the schema of the
#      Sitemap protocol, which the package `sitemap` (npm) has;
#  10. a folder that resyncd publishes: `resync-sync` of `resync` copies and audits it, a subscriber made of `flask-websub` is told of its
#      changes, and its documents are valid.
# Usage: tests/interop/run.sh RESYNCD SAMPLE_SOURCE WRITE_SOURCE [FOLDER]
#   RESYNCD        the daemon's binary
#   SAMPLE_SOURCE  the binary of examples/sample_source.rs
#   WRITE_SOURCE   the binary of crates/resourcesync/examples/write_source.rs
#   FOLDER         the Python environment, reused by later runs; default target/interop
set -euo pipefail

if (($# < 3)); then
    sed -n '2,20p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
resyncd=$(realpath "$1")
sample_source=$(realpath "$2")
write_source=$(realpath "$3")
folder=${4:-${CARGO_TARGET_DIR:-$here/../../target}/interop}
mkdir -p "$folder"
folder=$(realpath "$folder")
work=$(mktemp -d "$folder/run.XXXXXX")
python=$folder/venv/bin/python
folder_of_python=$folder/venv/bin
export PYTHONUNBUFFERED=1
sitemap_version=9.0.1
sitemap_sha256=413c182add50ef752a3a700a406eb3d8f0ef06bb4b80868563cea7d3ea620575

started=()

step() { printf 'interop: %s\n' "$*"; }

# start NAME COMMAND…: runs it in the background; output in $work/NAME.log, process id in $pid
start() {
    local name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 &
    pid=$!
    started+=("$pid")
}

# stop PID: sends SIGTERM, waits for the end, and returns the exit status
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

# wait_for_log NAME PATTERN: waits for a matching line of a log, and prints the group of the pattern
wait_for_log() {
    local log=$work/$1.log line tries
    for ((tries = 0; tries < 300; tries++)); do
        line=$(sed -nE "s|$2|\\1|p" "$log" | head -n 1)
        if [[ -n $line ]]; then
            printf '%s\n' "$line"
            return
        fi
        sleep 0.1
    done
    step "$1 has not started" >&2
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
    if ! cmp -s "$here/requirements.txt" "$folder/venv/installed.txt"; then
        step "installing the Python packages into $folder/venv"
        rm -rf "$folder/venv"
        python3 -m venv "$folder/venv"
        "$folder/venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
        cp "$here/requirements.txt" "$folder/venv/installed.txt"
    fi
}

# The mirror must have the same files as the served folder, byte for byte.
poll_a_source_of_resync() {
    local site=$work/site base port daemon
    mkdir "$site"
    start site "$python" -m http.server 0 --bind 127.0.0.1 --directory "$site"
    port=$(wait_for_log site '.* port ([0-9]+).*')
    base=http://127.0.0.1:$port
    "$python" "$here/resync_site.py" baseline "$site" "$base"
    step "resync: a Source built by resync-build is served at $base"

    configure resync "$base/" 'notifications = false' 'poll_interval = "1s"'
    start resyncd-poll "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync
    diff -r "$site/data" "$mirror/127.0.0.1:$port/data"
    step "resync: baseline equal, byte for byte"
    "$resyncd" --config "$config" discover "$base/"
    "$resyncd" --config "$config" audit
    step "resync: discover succeeds, and an audit of the running daemon has no findings"

    "$python" "$here/resync_site.py" changes "$site" "$base"
    wait_for "applied=updated:$base/data/updated.txt" "applied=created:$base/data/created.txt" \
        "applied=deleted:$base/data/deleted.txt"
    diff -r "$site/data" "$mirror/127.0.0.1:$port/data"
    step "resync: update, creation and deletion applied from the Change List; mirror equal"

    stop "$daemon"
    step "resync: the daemon stopped cleanly"
}

# The mirror must have, byte for byte, what the independent tools make; the resources themselves are not served.
apply_patches_of_others() {
    local site=$work/patched base port daemon number
    mkdir "$site"
    start patched "$python" -m http.server 0 --bind 127.0.0.1 --directory "$site"
    port=$(wait_for_log patched '.* port ([0-9]+).*')
    base=http://127.0.0.1:$port
    "$python" "$here/patch_site.py" baseline "$site" "$base"
    configure patches "$base/" 'notifications = false' 'poll_interval = "1s"'
    start resyncd-patches "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync
    diff -r "$site/data" "$mirror/127.0.0.1:$port/data"
    number=$("$python" "$here/patch_site.py" changes "$site" "$base")
    wait_for in-sync "patched=$number"
    diff -r "$site/expected" "$mirror/127.0.0.1:$port/data"
    step "jsonpatch, lxml: $number patches applied; mirror equal, byte for byte"
    stop "$daemon"
}

# expect_subscriptions DATABASE NUMBER: waits until the hub has that many; it stores them shortly after verification
expect_subscriptions() {
    "$python" "$here/expect_subscriptions.py" "$@"
}

# control REQUEST [CONTENT]: sends a control request to the sample Source
control() {
    "$python" -c 'import sys, urllib.request
request = urllib.request.Request(sys.argv[1], data=sys.argv[2].encode(), method="POST")
urllib.request.urlopen(request, timeout=30).read()' "$control/$1" "${2-}"
}

# The mirror must have exactly the named resources of the sample Source, with equal bytes.
compare_with_sample_source() {
    "$python" "$here/same_as_source.py" "$source" "$mirror" "$@"
}

# follow_through_a_hub before|after: when the hub verifies intent
follow_through_a_hub() {
    local verifies=$1 name=hub-verifies-$1 database=$work/$1.sqlite hub source control daemon names
    start "$name" "$python" "$here/websub_hub.py" "$database" "$verifies"
    hub=$(wait_for_log "$name" '.*hub (http:.*)')
    start "$name-source" "$sample_source" --hub "$hub" --set-size 3
    source=$(wait_for_log "$name-source" '^source (.*)')
    control=$(wait_for_log "$name-source" '^control (.*)')
    step "flask-websub: a hub that verifies $verifies it answers is at $hub, a Source at $source"

    configure "$name" "$source" 'signatures = "required"' 'poll_interval = "1h"'
    start "$name-resyncd" "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync active=change-notification active=framework-notification
    expect_subscriptions "$database" 2
    compare_with_sample_source r0000.txt r0001.txt r0002.txt
    step "flask-websub: subscribed and verified; baseline equal"

    control 'update?name=r0000.txt' 'second version'
    control 'create?name=new.txt' 'new'
    control 'delete?name=r0002.txt'
    control publish
    names=${source}set1/res
    wait_for in-sync "applied=updated:$names/r0000.txt" "applied=created:$names/new.txt" \
        "applied=deleted:$names/r0002.txt" "origin=notification:$names/new.txt"
    compare_with_sample_source r0000.txt r0001.txt new.txt
    step "flask-websub: signed notification delivered and applied; mirror equal"

    "$resyncd" --config "$config" unsubscribe
    expect_subscriptions "$database" 0
    step "flask-websub: unsubscribed; the hub has no subscription"

    stop "$daemon"
    step "flask-websub: the daemon stopped cleanly"
}

# messages_are KIND SUBJECT…: waits until the receivers have got these messages of that kind, and no others
messages_are() {
    "$python" -c 'import sys, time
log, kind, *expected = sys.argv[1:]
deadline = time.monotonic() + 120
while True:
    lines = [line.split(" ", 1) for line in open(log).read().splitlines()]
    found = [line[1].partition(": ")[2] for line in lines if line[0] == kind]
    if found == expected:
        break
    if time.monotonic() > deadline:
        sys.exit(f"the messages are {found}, not {expected}")
    time.sleep(0.1)' "$work/messages.log" "$@"
}

# A Source that cannot be reached is told once, and so is that it can be reached again.
tell_people() {
    local secret=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= port smtp http daemon kind
    start messages "$python" "$here/message_receivers.py" "$secret"
    smtp=$(wait_for_log messages '^smtp (.*)')
    http=$(wait_for_log messages '^http (.*)')
    port=$(free_port)
    printf '%s\n' "$secret" >"$work/messages.secret"
    mkdir "$work/told-source"
    "$python" "$here/resync_site.py" baseline "$work/told-source" "http://127.0.0.1:$port"
    configure told "http://127.0.0.1:$port/" 'notifications = false' 'poll_interval = "1s"' \
        '[[notify]]' 'name = "mail"' 'after = "0"' 'mail = "Me <admin@example.net>, other@example.net"' \
        'from = "resyncd@example.net"' "smtp = \"$smtp\"" \
        '[[notify]]' 'name = "request"' 'after = "0"' "url = \"$http\"" 'secret_file = "messages.secret"'
    "$resyncd" --config "$config" notify --test mail
    "$resyncd" --config "$config" notify --test request
    for kind in mail request; do messages_are "$kind" test; done
    step "aiosmtpd, standardwebhooks: a test arrives"

    start resyncd-told "$resyncd" --config "$config" run
    daemon=$pid
    for kind in mail request; do messages_are "$kind" test 'failing (told)'; done
    start told-site "$python" -m http.server "$port" --bind 127.0.0.1 --directory "$work/told-source"
    for kind in mail request; do messages_are "$kind" test 'failing (told)' 'over: failing (told)'; done
    # Nothing else until it ends.
    stop "$daemon"
    for kind in mail request; do messages_are "$kind" test 'failing (told)' 'over: failing (told)'; done
    step "aiosmtpd, standardwebhooks: a Source that fails is told once, and so is its end"
}

# until_served URL: waits until a server answers with 200
until_served() {
    "$python" -c 'import sys, time, urllib.request
deadline = time.monotonic() + 120
while True:
    try:
        sys.exit(urllib.request.urlopen(sys.argv[1], timeout=10).status != 200)
    except OSError as error:
        if time.monotonic() > deadline:
            sys.exit(f"{sys.argv[1]}: {error}")
        time.sleep(0.1)' "$1"
}

# until_stored FILE: waits until there is a file, at most 60 seconds
until_stored() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        [[ -e $1 ]] && return
        sleep 0.1
    done
    step "$1 was not stored" >&2
    return 1
}

# The Source announces two versions, the archive has three.
store_versions_of_an_archive() {
    local site=$work/memento-site archive=$work/archive port memento_port memento base resource versions folder daemon published reader
    mkdir "$site"
    start memento-site "$python" -m http.server 0 --bind 127.0.0.1 --directory "$site"
    port=$(wait_for_log memento-site '.* port ([0-9]+).*')
    base=http://127.0.0.1:$port
    resource=$base/data/res.bin
    memento_port=$(free_port)
    memento=http://127.0.0.1:$memento_port/mem
    "$python" "$here/memento_site.py" "$site" "$archive" "$base" "$memento"
    start pywb "$folder_of_python/wayback" --bind 127.0.0.1 --port "$memento_port" --directory "$archive"
    until_served "$memento/timemap/link/$resource"
    step "pywb: an archive of $resource is at $memento"

    versions=$work/memento-versions
    published=127.0.0.1:$(free_port)
    configure memento "$base/" 'notifications = false' "versions = \"$versions\"" 'publish = true' \
        '[publish]' "listen = \"$published\""
    start resyncd-versions "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync
    folder=$versions/127.0.0.1:$port/data/res.bin
    until_stored "$folder/20130103T180000Z"
    until_stored "$folder/20130102T180000Z"
    cmp "$folder/20130103T180000Z" "$site/data/res.bin"
    [[ $folder/20130103T180000Z -ef $mirror/127.0.0.1:$port/data/res.bin ]]
    printf 'second version \xfe\n' | cmp - "$folder/20130102T180000Z"
    [[ ! -e $folder/20130101T180000Z ]]
    step "pywb: the announced version is stored as its TimeGate has it"

    "$resyncd" --config "$config" versions "$resource" --backfill
    printf 'first version \xff\n' | cmp - "$folder/20130101T180000Z"
    stop "$daemon"
    rm "$folder/20130101T180000Z"
    "$resyncd" --config "$config" versions "$resource" --backfill >"$work/versions.log"
    [[ $(wc -l <"$work/versions.log") == 2 && ! -e $folder/20130101T180000Z ]]
    step "pywb: the versions of its TimeMap are stored once, with a daemon and without one"

    start resyncd-published "$resyncd" --config "$config" run
    daemon=$pid
    published=http://$published/memento/.rs
    until_served "$published/timemap/$resource"
    mkdir "$work/reader"
    printf '%s\n' 'collections:' '  mirror:' '    index:' '      type: memento' \
        "      timegate_url: $published/timegate/{url}" \
        "      timemap_url: $published/timemap/{url}" \
        "      replay_url: $published/memento/{timestamp}/{url}" >"$work/reader/config.yaml"
    memento_port=$(free_port)
    start pywb-reader "$folder_of_python/wayback" --bind 127.0.0.1 --port "$memento_port" --directory "$work/reader"
    reader=http://127.0.0.1:$memento_port/mirror
    until_served "$reader/20130102180000id_/$resource"
    curl -fsS "$reader/20130102180000id_/$resource" | cmp - <(printf 'second version \xfe\n')
    curl -fsS "$reader/20130103180000id_/$resource" | cmp - <(printf 'third version \xfd\n')
    stop "$daemon"
    step "pywb: the stored versions are replayed from the TimeGate of the mirror"
}

# same_data NAME TEXT…: waits until the mirror has these resources and no others
same_data() {
    "$python" -c 'import pathlib, sys, time
folder, expected = pathlib.Path(sys.argv[1]), dict(zip(sys.argv[2::2], sys.argv[3::2]))
deadline = time.monotonic() + 60
while True:
    found = {path.name: path.read_text() for path in folder.iterdir() if path.suffix == ".txt"}
    if found == expected:
        break
    if time.monotonic() > deadline:
        sys.exit(f"the mirror has {found}, not {expected}")
    time.sleep(0.1)' "$mirror/${base#http://}/data" "$@"
}

# follow_over_a_socket tornado|websockets: what the Source is made of
follow_over_a_socket() {
    local made_of=$1 name=$1-site base daemon
    start "$name" "$python" "$here/socket_site.py" "$made_of"
    base=$(wait_for_log "$name" '^source (.*)/$')
    configure "$made_of" "$base/" 'poll_interval = "1h"'
    start "$made_of-resyncd" "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync active=change-notification
    same_data a.txt first b.txt first c.txt first
    step "$made_of: connected; baseline equal"

    until_served "$base/control/update/a.txt/second"
    until_served "$base/control/update/new.txt/third"
    until_served "$base/control/delete/b.txt"
    same_data a.txt second c.txt first new.txt third
    wait_for in-sync "origin=notification:$base/data/new.txt"
    step "$made_of: update, creation and deletion pushed and applied; mirror equal"

    until_served "$base/control/hangup"
    wait_for_log "$made_of-resyncd" '.*(connection-closed).*'
    wait_for in-sync active=change-notification
    until_served "$base/control/update/c.txt/fourth"
    same_data a.txt second c.txt fourth new.txt third
    step "$made_of: connected again after the server has closed the connection"

    "$resyncd" --config "$config" unsubscribe
    wait_for unsubscribed=change-notification
    stop "$daemon"
    step "$made_of: closed; the daemon stopped cleanly"
}

# Starts prosody with the users `publisher` and `resyncd`, and the service pubsub.localhost; sets $xmpp_port and $xmpp_password
start_prosody() {
    local folder=$work/prosody user
    if ! command -v prosody >/dev/null; then
        step "XMPP: prosody is not installed (apt install prosody)"
        return 1
    fi
    xmpp_port=$(free_port)
    xmpp_password='pencil and paper'
    (umask 077 && printf '%s\n' "$xmpp_password" >"$work/xmpp-password")
    mkdir -p "$folder/data/localhost/accounts"
    for user in publisher resyncd; do
        printf 'return { ["password"] = "%s"; };\n' "$xmpp_password" >"$folder/data/localhost/accounts/$user.dat"
    done
    cat >"$folder/prosody.cfg.lua" <<CONFIGURATION
run_as_root = true
pidfile = "$folder/prosody.pid"
data_path = "$folder/data"
certificates = "$folder"
log = { info = "*console" }
interfaces = { "127.0.0.1" }
c2s_ports = { $xmpp_port }
modules_enabled = { "roster", "saslauth", "disco", "ping", "smacks" }
modules_disabled = { "s2s" }
c2s_require_encryption = false
authentication = "internal_plain"
VirtualHost "localhost"
Component "pubsub.localhost" "pubsub"
    admins = { "publisher@localhost" }
CONFIGURATION
    start prosody prosody --config "$folder/prosody.cfg.lua" -F
    wait_for_log prosody ".*(Activated service 'c2s').*" >/dev/null
}

follow_a_node() {
    local base daemon subscriptions
    start_prosody
    start slixmpp-site "$python" "$here/node_site.py" "$xmpp_port" "$xmpp_password"
    base=$(wait_for_log slixmpp-site '^source (.*)/$')
    configure slixmpp "$base/sitemap.xml" 'poll_interval = "1h"' \
        '[xmpp]' 'jid = "resyncd@localhost"' 'password_file = "xmpp-password"' "server = \"127.0.0.1:$xmpp_port\""
    start slixmpp-resyncd "$resyncd" --config "$config" run
    daemon=$pid
    wait_for in-sync active=change-notification
    same_data a.txt first b.txt first c.txt first
    step "slixmpp: subscribed to the node that the Sitemap names; baseline equal"

    until_served "$base/control/update/a.txt/second"
    until_served "$base/control/update/new.txt/third"
    until_served "$base/control/delete/b.txt"
    same_data a.txt second c.txt first new.txt third
    wait_for in-sync "origin=notification:$base/data/new.txt"
    step "slixmpp: update, creation and deletion published and applied; mirror equal"

    subscriptions=$(curl -fsS "$base/control/subscriptions")
    [[ $subscriptions == resyncd@localhost/resyncd-* ]]
    "$resyncd" --config "$config" unsubscribe
    wait_for unsubscribed=change-notification
    subscriptions=$(curl -fsS "$base/control/subscriptions")
    [[ $subscriptions != *resyncd@* ]]
    stop "$daemon"
    step "slixmpp: the service has no subscription any more; the daemon stopped cleanly"
}

# Only the WARC has the resources: nothing is served at their URIs.
read_a_warc() {
    local site=$work/warc-site base port
    mkdir "$site"
    start warc-site "$python" -m http.server 0 --bind 127.0.0.1 --directory "$site"
    port=$(wait_for_log warc-site '.* port ([0-9]+).*')
    base=http://127.0.0.1:$port
    "$python" "$here/warc_site.py" "$site" "$work/warc-expected" "$base"
    configure warc "$base/sitemap.xml" 'notifications = false' 'poll_interval = "1s"'
    "$resyncd" --config "$config" sync
    diff -r "$work/warc-expected" "$mirror/127.0.0.1:$port/data"
    step "warcio: responses, chunked and coded, a resource and a revisit are mirrored from the WARC; mirror equal"
}

validate_written_documents() {
    local schema=$work/schema
    mkdir "$schema"
    curl -fsS --max-time 60 "https://registry.npmjs.org/sitemap/-/sitemap-$sitemap_version.tgz" >"$work/sitemap.tgz"
    printf '%s  %s\n' "$sitemap_sha256" "$work/sitemap.tgz" | sha256sum --check --quiet
    tar -xzf "$work/sitemap.tgz" -C "$schema" --strip-components=2 package/schema/sitemap.xsd
    cp "$here/resourcesync.xsd" "$schema"
    "$write_source" "$work/written" >"$work/write_source.log"
    "$python" "$here/written_documents.py" "$work/written" "$schema"
    step "resourcesync: resync reads the written documents, and they are valid"
}

publish_a_folder() {
    local folder=$work/published copy=$work/published-copy base list set name
    mkdir "$folder"
    for name in a b c; do
        printf 'first' >"$folder/$name.txt"
    done
    touch --date='1 minute ago' "$folder"/*
    start publish "$resyncd" publish "$folder" --state "$work/published-state" --listen 127.0.0.1:0
    publisher=$pid
    base=$(wait_for_log publish 'Source: +(http[^ ]*)/')
    list=$("$python" "$here/published_list.py" "$base/.well-known/resourcesync")
    set=${list%/*}
    resync_sync() {
        (cd "$work" && "$folder_of_python/resync-sync" "$@" "$base/published=$copy")
    }
    mkdir "$copy"
    resync_sync --baseline --sitemap "$set/resourcelist.xml" --hash sha-256
    diff -r "$folder" "$copy"
    start subscriber "$python" "$here/websub_subscriber.py" "$work/subscriber.sqlite" "$set/changes"
    subscriber=$pid
    wait_for_log subscriber '(subscribed)' >/dev/null
    printf 'second' >"$folder/a.txt"
    printf 'third' >"$folder/new.txt"
    rm "$folder/b.txt"
    wait_for_log subscriber '(updated http.*/a.txt)' >/dev/null
    wait_for_log subscriber '(created http.*/new.txt)' >/dev/null
    wait_for_log subscriber '(deleted http.*/b.txt)' >/dev/null
    step "resyncd as a Source: the subscriber of flask-websub is told of a change, a creation and a deletion"

    # The schema has no documents without entries.
    "$python" "$here/valid_documents.py" "$work/schema" "$base/.well-known/resourcesync" "$base/published/.rs/description.xml" \
        "$set"/{capabilitylist,resourcelist,changelist-open,resourcedump}.xml
    step "resyncd as a Source: its documents are valid"

    # It reads no index of Change Lists, and fails if it is to compare digests of changes.
    resync_sync --incremental --sitemap "$set/resourcelist.xml" --changelist-uri "$set/changelist-open.xml" --from 2013-01-03T00:00:00Z --delete
    diff -r "$folder" "$copy"
    resync_sync --audit --sitemap "$set/resourcelist.xml" --hash sha-256 2>&1 | tee "$work/resync-audit.log"
    grep --quiet 'Status: *IN SYNC' "$work/resync-audit.log"
    stop "$subscriber" || true
    stop "$publisher"
    step "resyncd as a Source: resync-sync --baseline, --incremental and --audit; copy equal"
}

prepare_python
validate_written_documents
publish_a_folder
poll_a_source_of_resync
apply_patches_of_others
follow_through_a_hub before
follow_through_a_hub after
store_versions_of_an_archive
follow_over_a_socket tornado
follow_over_a_socket websockets
follow_a_node
read_a_warc
tell_people
step "passed"
