#!/usr/bin/env bash
# The state in a PostgreSQL database, on loopback: the tests of the store and the simulated scenarios, then daemons that are killed, paused and
# moved, and a server that is restarted.
# Usage: tests/postgres/run.sh RESYNCD [TESTS]
#   RESYNCD  the daemon's binary, built with `--features postgres`
#   TESTS    the program of the library's tests, built with the same; without it they are left out
set -euo pipefail

if (($# < 1)); then
    sed -n '2,7p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
resyncd=$(realpath "$1")
tests=${2:+$(realpath "$2")}
programs=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin | sort -V | tail -1)
if [[ -z $programs ]]; then
    echo "no PostgreSQL server is installed" >&2
    exit 1
fi
work=$(mktemp -d)
# The server refuses to run as root.
as_server() {
    if ((EUID == 0)); then
        setpriv --reuid postgres --regid postgres --clear-groups "$@"
    else
        "$@"
    fi
}
mkdir "$work/server"
((EUID != 0)) || chown postgres "$work" "$work/server"
as_server "$programs/initdb" --pgdata "$work/server/data" --auth trust --username postgres >"$work/initdb.log"
read -r port standby < <(PYTHONPATH=$here/.. python3 -c 'from running import free_port; print(free_port(), free_port())')
settings="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$work/server -c max_connections=400"
# control SERVER ARGUMENT…: of `data`, or of its standby
control() {
    local server=$1
    shift
    as_server "$programs/pg_ctl" --pgdata "$work/server/$server" --wait --silent "$@"
}
trap 'for server in data standby; do control $server stop --mode immediate 2>/dev/null || true; done; rm -rf "$work"' EXIT
control data start --log "$work/server/log" --options "$settings"
createdb=("$programs/createdb" --host 127.0.0.1 --port "$port" --username postgres)

if [[ -n $tests ]]; then
    "${createdb[@]}" tests
    # What is about the file of SQLite is left out.
    RESYNCD_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/tests" "$tests" --test-threads 4 store::tests engine::simulation::scenarios \
        --skip store::tests::corruption --skip store::tests::opening --skip store::tests::size \
        --skip database_shrinks_when_entries_are_removed --skip feed_has_another_id_in_each_database \
        --skip resource_is_written_once_for_its_entry --quiet
fi
"${createdb[@]}" resyncd
# A standby that lacks nothing that was committed.
as_server "$programs/pg_basebackup" --pgdata "$work/server/standby" --write-recovery-conf --host 127.0.0.1 --port "$port" --username postgres
control standby start --log "$work/server/standby.log" --options "${settings/-p $port/-p $standby}"
settings+=" -c synchronous_standby_names=*"
control data stop
control data start --log "$work/server/log" --options "$settings"
mkdir "$work/run"
export -f control as_server
export programs work
to="--host 127.0.0.1 --port $standby --username postgres"
STOP='control data stop --mode immediate' \
    START="control data start --log '$work/server/log' --options '$settings'" \
    PROMOTE='control standby promote' \
    DUMP="'$programs/pg_dump' $to --format custom --file '$work/dump' resyncd" \
    RESTORE="'$programs/dropdb' $to resyncd && '$programs/createdb' $to resyncd && '$programs/pg_restore' $to --dbname resyncd '$work/dump'" \
    python3 "$here/test_postgres.py" "$resyncd" "$work/run" \
    "postgres://postgres@127.0.0.1:$port,127.0.0.1:$standby/resyncd?target_session_attrs=read-write"
