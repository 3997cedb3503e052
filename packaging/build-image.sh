#!/usr/bin/env bash
# Builds the container image for this machine, with podman or else Docker.
# Usage: packaging/build-image.sh NAME     NAME: of the image, as resyncd or registry.example.com/resyncd:0.1.0
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p;T;q' Cargo.toml)
# As build.rs states it: the folder of the repository is not part of what the image is built from.
commit=$(git describe --always --abbrev=12 --exclude='*' --dirty=-modified 2>/dev/null || true)
if command -v podman >/dev/null; then
    # Images in the OCI format have no health check.
    build=(podman build --format docker)
else
    build=(docker build)
fi
"${build[@]}" --tag "$1" --build-arg "RESYNCD_COMMIT=$commit" \
    --label org.opencontainers.image.title=resyncd \
    --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || true)" \
    --label 'org.opencontainers.image.licenses=MIT OR Apache-2.0' \
    --file packaging/oci/Containerfile .
