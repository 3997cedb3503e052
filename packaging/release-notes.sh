#!/usr/bin/env bash
# Prints what CHANGELOG.md says of a version. Fails if it says nothing, or if the tag is not that of the version in Cargo.toml.
# Usage: packaging/release-notes.sh TAG     TAG: v0.1.0
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p;T;q' Cargo.toml)
if [[ $1 != "v$version" ]]; then
    printf 'Cargo.toml has version %s: its tag is v%s, not %s\n' "$version" "$version" "$1" >&2
    exit 1
fi
notes=$(awk -v heading="## [$version]" 'index($0, "## [") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md)
if [[ -z $notes ]]; then
    printf 'CHANGELOG.md has no section "## [%s]"\n' "$version" >&2
    exit 1
fi
printf '%s\n' "$notes"
