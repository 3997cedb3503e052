#!/usr/bin/env bash
# Builds the programs that are linked statically, for x86-64 and aarch64, with the profile `dist`; each in an archive with the manual, the
# completions, the unit and an example of the configuration. Needs Rust by rustup, and Python with venv. The C compiler and linker of both
# machines is Zig's, which packaging/static-tools.txt names and this installs into target/.
# Usage: packaging/build-static.sh FOLDER     FOLDER: where the archives are written to
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

mkdir -p "$1"
output=$(realpath "$1")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p;T;q' Cargo.toml)
machines=(x86_64 aarch64)
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(realpath "$target")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# What has nothing to do with a crate, and would be in the programs: where this machine has its files.
export RUSTFLAGS="--remap-path-prefix=$PWD=/source --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# There is no second file for the symbols.
export CARGO_PROFILE_DIST_STRIP=symbols CARGO_PROFILE_DIST_DEBUG=0

rustup target add "${machines[@]/%/-unknown-linux-musl}"
python3 -m venv "$target/static-tools"
"$target/static-tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement packaging/static-tools.txt
export PATH="$target/static-tools/bin:$PATH"

# The manual is that of the first program that runs here.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for machine in "${machines[@]}"; do
    # Zig links at fixed addresses unless it is told.
    cargo-zigbuild rustc --profile dist --locked --features objects,postgres --bin resyncd --target "$machine-unknown-linux-musl" -- -C link-arg=-pie
    if [[ $machine == "$(uname -m)" ]]; then
        program=$target/$machine-unknown-linux-musl/dist/resyncd
        mkdir "$work/man" "$work/completions"
        "$program" man "$work/man"
        "$program" completions bash >"$work/completions/resyncd.bash"
        "$program" completions zsh >"$work/completions/_resyncd"
        "$program" completions fish >"$work/completions/resyncd.fish"
    fi
done
for machine in "${machines[@]}"; do
    name=resyncd-$version-$machine-unknown-linux-musl
    mkdir "$work/$name"
    install "$target/$machine-unknown-linux-musl/dist/resyncd" "$work/$name/resyncd"
    cp -r "$work/man" "$work/completions" "$work/$name"
    cp config.example.toml systemd/resyncd.service README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT "$work/$name"
    # The same files give the same archive.
    chmod -R u=rwX,go=rX "$work/$name"
    tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory "$work" "$name" | gzip --no-name -9 >"$output/$name.tar.gz"
done
