//! Rejects Sources, folders and listeners that overlap.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::file::FileReader;
use crate::config::table_reader::Located;

/// Names are unique.
pub(super) fn check_names(file: &mut FileReader<'_>, names: &[Located<String>]) {
    let mut known: HashMap<&str, &Located<String>> = HashMap::new();
    for name in names {
        match known.entry(&name.value) {
            Entry::Vacant(new) => {
                new.insert(name);
            }
            Entry::Occupied(first) => {
                let line = reference(file, first.get());
                reject!(file, name, "duplicate-name": "{:?} is used twice{line}", name.value);
            }
        }
    }
}

/// Mirrors and `state_dir` do not contain each other: an audit removes files of a mirror that its Source does not have.
pub(super) fn check_folders(
    file: &mut FileReader<'_>,
    state_dir: &Located<PathBuf>,
    mirrors: &[Located<PathBuf>],
) {
    let state = resolve(&state_dir.value);
    // The first mirror of each folder; those in a folder follow it.
    let mut known: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (index, mirror) in mirrors.iter().enumerate() {
        let (shown, folder) = (mirror.value.display(), resolve(&mirror.value));
        if nested(&folder, &state) {
            let state = state_dir.value.display();
            reject!(file, mirror, "mirror-in-state": "{shown} and state_dir, {state}, contain each other");
        }
        let around = folder.ancestors().filter_map(|it| known.get_key_value(it));
        let below = known.range(folder.clone()..);
        let inside = below.take_while(|(other, _)| other.starts_with(&folder));
        let other = around.chain(inside).min_by_key(|(_, index)| **index);
        if let Some((other, &first)) = other {
            let first = &mirrors[first];
            let (line, first) = (reference(file, first), first.value.display());
            let reason = if folder == *other {
                reason!("duplicate-mirror": "{shown} is used twice{line}")
            } else if folder.starts_with(other) {
                reason!("nested-mirror": "{shown} is inside {first}{line}")
            } else {
                reason!("nested-mirror": "{first} is inside {shown}{line}")
            };
            file.reject(mirror, reason);
        }
        known.entry(folder).or_insert(index);
    }
}

/// The listeners have different addresses.
pub(super) fn check_listeners(file: &mut FileReader<'_>, listeners: &[Located<SocketAddr>]) {
    for (index, other) in listeners.iter().enumerate() {
        for one in &listeners[..index] {
            let (first, second) = (one.value, other.value);
            // Port 0: the system chooses a free port for each listener.
            let same = first.port() == second.port() && first.port() != 0;
            if same && (covers(first.ip(), second.ip()) || covers(second.ip(), first.ip())) {
                let at = if other.line.is_some() { other } else { one };
                let (first_key, second_key) = (&one.key, &other.key);
                reject!(file, at, "same-listener": "{first_key}, {first}, and {second_key}, {second}, conflict");
            }
        }
    }
}

/// Whether a listener on `one` also receives connections to `other`.
fn covers(one: IpAddr, other: IpAddr) -> bool {
    // On Linux the IPv6 wildcard accepts IPv4 connections by default.
    one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
}

/// Whether two folders are the same, or one contains the other, also through symbolic links.
#[must_use]
pub fn folders_overlap(one: &Path, other: &Path) -> bool {
    nested(&resolve(one), &resolve(other))
}

fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn reference<T>(file: &FileReader<'_>, first: &Located<T>) -> String {
    let line = first.line.map(|line| file.joined.shown_line(line));
    line.map_or_else(String::new, |line| format!(", see {line}"))
}

/// Resolves `..` and the symbolic links that exist.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            resolved.pop();
            continue;
        }
        resolved.push(part);
        if let Ok(target) = resolved.canonicalize() {
            resolved = target;
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_addresses_cover_specific_ones() {
        let check = |one: &str, other: &str, expected: bool| {
            let found = covers(one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(found, expected, "{one} {other}");
        };
        check("127.0.0.1", "127.0.0.1", true);
        check("127.0.0.1", "127.0.0.2", false);
        check("0.0.0.0", "127.0.0.1", true);
        check("127.0.0.1", "0.0.0.0", false);
        check("0.0.0.0", "::1", false);
        check("::", "127.0.0.1", true);
        check("::", "::1", true);
    }

    #[test]
    fn symlinks_and_parent_components_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("a")).unwrap();
        std::os::unix::fs::symlink(base.join("a"), base.join("b")).unwrap();
        assert_eq!(resolve(&base.join("b/new/x")), base.join("a/new/x"));
        assert_eq!(resolve(&base.join("new/../a")), base.join("a"));
    }
}
