#!/usr/bin/env bash
# Writes SHA256SUMS of the other files of a folder: `sha256sum --check SHA256SUMS` compares them.
# Usage: packaging/checksums.sh FOLDER
set -euo pipefail
exec </dev/null
cd "$1"

rm -f SHA256SUMS
files=(*)
sums=$(sha256sum -- "${files[@]}")
printf '%s\n' "$sums" >SHA256SUMS
