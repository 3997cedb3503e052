#!/usr/bin/env bash
# Installs a tool of cargo that packages are made with, unless there is one. A debug build takes a minute or two, a release build much
# longer; each runs for seconds.
# Usage: packaging/install-tool.sh cargo-deb | cargo-cyclonedx
set -euo pipefail
exec </dev/null

case ${1-} in
cargo-deb) install=(cargo-deb@3.8.0 --no-default-features --features debug-id) ;;
cargo-cyclonedx) install=(cargo-cyclonedx@0.5.9) ;;
*)
    printf 'Usage: packaging/install-tool.sh cargo-deb | cargo-cyclonedx\n' >&2
    exit 2
    ;;
esac
if ! cargo "${1#cargo-}" --version 2>/dev/null; then
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo install --locked --debug "${install[@]}"
fi
