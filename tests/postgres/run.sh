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
port=$(python3 -c 'import socket; it = socket.socket(); it.bind(("127.0.0.1", 0)); print(it.getsockname()[1])')
settings="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$work/server -c max_connections=400"
control() {
    as_server "$programs/pg_ctl" --pgdata "$work/server/data" --wait --silent "$@"
}
trap 'control stop --mode immediate || true; as_server "$programs/pg_ctl" --pgdata "$work/server/standby" --silent stop --mode immediate || true; rm -rf "$work"' EXIT
control start --log "$work/server/log" --options "$settings"
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
standby=$((port + 1))
as_server "$programs/pg_basebackup" --pgdata "$work/server/standby" --write-recovery-conf --host 127.0.0.1 --port "$port" --username postgres
as_server "$programs/pg_ctl" --pgdata "$work/server/standby" --wait --silent start --log "$work/server/standby.log" --options "${settings/-p $port/-p $standby}"
settings+=" -c synchronous_standby_names=*"
control restart --log "$work/server/log" --options "$settings"
export -f control as_server
mkdir "$work/run"
RESTART="control restart --mode immediate --log '$work/server/log' --options '$settings'" \
    FAILOVER="control stop --mode immediate; as_server '$programs/pg_ctl' --pgdata '$work/server/standby' --wait --silent promote" \
    programs=$programs work=$work python3 "$here/test_postgres.py" "$resyncd" "$work/run" "postgres://postgres@127.0.0.1:$port,127.0.0.1:$standby/resyncd?target_session_attrs=read-write"
