#!/usr/bin/env bash
# Writes what the program is made of, as CycloneDX 1.5: crates with their versions, licences and digests; not what only builds and tests
# need. It is that of the program for x86-64; those for other machines have no crate beyond it.
# Usage: packaging/build-sbom.sh FOLDER     FOLDER: where the file is written to
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

mkdir -p "$1"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p;T;q' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

packaging/install-tool.sh cargo-cyclonedx
# It writes one beside each Cargo.toml of the workspace.
trap 'rm -f release-sbom.json crates/*/release-sbom.json' EXIT
cargo cyclonedx --format json --spec-version 1.5 --target x86_64-unknown-linux-musl --no-build-deps --override-filename release-sbom
# Without where this machine has its files.
sed "s|file://$PWD|file:///source|g" release-sbom.json >"$1/resyncd-$version.cdx.json"
