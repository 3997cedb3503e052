#!/usr/bin/env bash
# A mirror in an object store, on loopback: the store is `moto` (PyPI), which speaks the protocol of Amazon S3, behind a layer that fails as
# services do.
# Usage: tests/objects/run.sh RESYNCD [FOLDER]
#   RESYNCD  the daemon's binary, built with `--features objects`
#   FOLDER   the Python environment, reused by later runs; default target/objects
set -euo pipefail

if (($# < 1)); then
    sed -n '2,6p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
resyncd=$(realpath "$1")
folder=${2:-${CARGO_TARGET_DIR:-$here/../../target}/objects}
mkdir -p "$folder"
python=$folder/venv/bin/python
[[ -x $python ]] || python3 -m venv "$folder/venv"
"$python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
work=$(mktemp -d "$folder/run.XXXXXX")
"$python" "$here/test_objects.py" "$resyncd" "$work"
rm -rf "$work"
