#!/usr/bin/env bash
# Builds the Debian package, and a second one with its debug symbols, with the profile `dist`. Needs cargo-deb and the tools of
# build-essential.
# Usage: packaging/build-deb.sh FOLDER [VERSION]     FOLDER: where the packages are written to; VERSION: instead of that of Cargo.toml
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."

output=$1
# 0.2.0~rc.1 is earlier than 0.2.0, and 0.2.0-rc.1 is not.
version=${2:-$(sed -n 's/^version = "\(.*\)"$/\1/p;T;q' Cargo.toml | sed 's/-/~/')-1}
# Where Cargo.toml names it, also if the target directory is another one.
files=target/packaging
mkdir -p "$output"
rm -rf "$files"
mkdir -p "$files"

cargo build --profile dist --features objects,postgres --bin resyncd
program=${CARGO_TARGET_DIR:-target}/dist/resyncd
mkdir "$files/man" "$files/completions"
"$program" man "$files/man"
"$program" completions bash >"$files/completions/resyncd.bash"
"$program" completions zsh >"$files/completions/_resyncd"
"$program" completions fish >"$files/completions/resyncd.fish"

# The package does what the first lines of the unit explain, and installs the program elsewhere.
sed -e '/^# Before the first start:$/,/^#$/d' -e 's|^\(Exec[A-Za-z]*\)=/usr/local/bin/|\1=/usr/bin/|' \
    systemd/resyncd.service >"$files/resyncd.service"
grep --quiet '^ExecStart=/usr/bin/resyncd run$' "$files/resyncd.service"

maintainer=$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' Cargo.toml)
date=$(date --utc --rfc-email --date="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")
cat >"$files/changelog" <<CHANGELOG
resyncd ($version) unstable; urgency=medium

  * See /usr/share/doc/resyncd/changelog.gz.

 -- $maintainer  $date
CHANGELOG

cargo deb --no-build --locked --profile dist --compress-system --deb-version "$version" --output "$output/"
# GitHub would name them otherwise than SHA256SUMS does.
for file in "$output"/*~*; do
    if [[ -e $file ]]; then mv "$file" "${file//\~/.}"; fi
done
