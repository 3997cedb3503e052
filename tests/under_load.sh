#!/usr/bin/env bash
# Runs `cargo test` RUNS times beside BUSY processes that use the processor all the time, 4 unless stated otherwise, LANES runs side by
# side, 1 unless stated otherwise.
# Builds first. Prints a line per run. At the first run that fails it names the tests that failed and the file with the output of the
# run, ends the others, and exits 1.
# A run that takes longer than MINUTES (environment, 30 unless stated otherwise) is ended and counts as failed.
# Usage: tests/under_load.sh RUNS [BUSY [LANES]]
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

usage() {
    printf 'usage: %s RUNS [BUSY [LANES]]\n' "$0" >&2
    exit 2
}

(($# >= 1 && $# <= 3)) || usage
runs=$1 busy=${2:-4} lanes=${3:-1} minutes=${MINUTES:-30}
for number in "$runs" "$busy" "$lanes" "$minutes"; do
    [[ $number =~ ^[0-9]{1,4}$ ]] || usage
done
((lanes > 0)) || usage

outputs=$(mktemp -d)
# The processes that this shell has started.
children=()

# Ends the processes that this shell started, by their ids.
end_children() {
    local process
    trap - EXIT
    for process in ${children[@]+"${children[@]}"}; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
}

# Of a run that has failed, the output remains.
finish() {
    local status=$?
    end_children
    ((status == 1)) || rm -rf "$outputs"
    exit "$status"
}

# Uses one processor until it is ended; it ends by itself when this script is no longer there.
work_hard() {
    trap - EXIT INT TERM
    local number
    while kill -0 "$$" 2>/dev/null; do
        for ((number = 0; number < 200000; number++)); do :; done
    done
}

# within_limit COMMAND…: waits for it in a way that a signal to this shell can interrupt.
within_limit() {
    local status=0
    timeout --kill-after=10s "${minutes}m" "$@" &
    children+=("$!")
    wait "$!" || status=$?
    unset 'children[-1]'
    return "$status"
}

# failed_tests FILE: what failed, and why, of the output of a run
failed_tests() {
    local output=$1
    printf 'failed:\n'
    # A run that was ended in its midst has no list of failures: then what had not ended yet is named.
    if ! grep -E '^test .* \.\.\. FAILED$|^error: test failed' "$output"; then
        grep -E 'has been running for over' "$output" || true
    fi
    printf 'why:\n'
    grep -A 3 -E "^thread '.*' .*panicked at" "$output" | cut -c 1-600 | tail -n 60 || true
    printf 'the output of the run: %s\n' "$output"
}

# lane FIRST: every LANES-th run, beginning with that one, one after the other
lane() {
    local run begun passed output
    children=()
    trap end_children EXIT
    trap 'exit 143' TERM
    for ((run = $1; run <= runs; run += lanes)); do
        output=$outputs/$run
        begun=$SECONDS
        if ! within_limit cargo test >"$output" 2>&1; then
            printf 'run %d of %d beside %d busy processes: FAILED after %d s\n' "$run" "$runs" "$busy" "$((SECONDS - begun))"
            failed_tests "$output"
            exit 1
        fi
        passed=$(awk '/^test result: ok\./ { sum += $4 } END { print sum + 0 }' "$output")
        printf 'run %d of %d beside %d busy processes: ok, %d tests in %d s\n' \
            "$run" "$runs" "$busy" "$passed" "$((SECONDS - begun))"
        rm -f "$output"
    done
}

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
within_limit cargo test --no-run

for ((number = 0; number < busy; number++)); do
    work_hard &
    children+=("$!")
done

declare -A under_way=()
for ((number = 1; number <= lanes; number++)); do
    lane "$number" &
    children+=("$!")
    under_way[$!]=
done
while ((${#under_way[@]})); do
    # Whichever ends next: one that fails ends the others.
    wait -n -p ended "${!under_way[@]}"
    unset "under_way[$ended]"
done
