#!/usr/bin/env bash
# Runs `cargo test` RUNS times beside BUSY processes that use the processor all the time, 4 unless stated otherwise.
# Builds first. Prints a line per run; ends at the first run that fails, names the tests that failed and the file with the output of
# the run, and exits 1.
# A run that takes longer than MINUTES (environment, 30 unless stated otherwise) is ended and counts as failed.
# Usage: tests/under_load.sh RUNS [BUSY]
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

usage() {
    printf 'usage: %s RUNS [BUSY]\n' "$0" >&2
    exit 2
}

(($# == 1 || $# == 2)) || usage
runs=$1 busy=${2:-4} minutes=${MINUTES:-30}
for number in "$runs" "$busy" "$minutes"; do
    [[ $number =~ ^[0-9]{1,4}$ ]] || usage
done

output=$(mktemp)
load=()
under_way=
is_kept=0

# Ends the processes that this script started, by their ids.
finish() {
    local status=$? process
    trap - EXIT
    for process in $under_way ${load[@]+"${load[@]}"}; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    ((is_kept)) || rm -f "$output"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Uses one processor until it is ended; it ends by itself when this script is no longer there.
work_hard() {
    trap - EXIT INT TERM
    local number
    while kill -0 "$$" 2>/dev/null; do
        for ((number = 0; number < 200000; number++)); do :; done
    done
}

# within_limit COMMAND…: waits for it in a way that a signal to this script can interrupt.
within_limit() {
    local status=0
    timeout --kill-after=10s "${minutes}m" "$@" &
    under_way=$!
    wait "$under_way" || status=$?
    under_way=
    return "$status"
}

failed_tests() {
    printf 'failed:\n'
    # A run that was ended in its midst has no list of failures: then what had not ended yet is named.
    if ! grep -E '^test .* \.\.\. FAILED$|^error: test failed' "$output"; then
        grep -E 'has been running for over' "$output" || true
    fi
    printf 'why:\n'
    grep -A 3 -E "^thread '.*' .*panicked at" "$output" | cut -c 1-600 | tail -n 60 || true
    printf 'the output of the run: %s\n' "$output"
    is_kept=1
}

within_limit cargo test --no-run

for ((number = 0; number < busy; number++)); do
    work_hard &
    load+=("$!")
done

for ((run = 1; run <= runs; run++)); do
    begun=$SECONDS
    if ! within_limit cargo test >"$output" 2>&1; then
        printf 'run %d of %d beside %d busy processes: FAILED after %d s\n' "$run" "$runs" "$busy" "$((SECONDS - begun))"
        failed_tests
        exit 1
    fi
    passed=$(awk '/^test result: ok\./ { sum += $4 } END { print sum + 0 }' "$output")
    printf 'run %d of %d beside %d busy processes: ok, %d tests in %d s\n' \
        "$run" "$runs" "$busy" "$passed" "$((SECONDS - begun))"
done
