//! What must not share a place: the names, the mirrors, the state, the listeners.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::fault::{FaultCollector, FaultKind};
use crate::config::section::Located;

/// A name stands for one Source.
pub(super) fn check_names(faults: &mut FaultCollector<'_>, names: &[Located<String>]) {
    for (index, name) in names.iter().enumerate() {
        if let Some(first) = names[..index].iter().find(|it| it.value == name.value) {
            let text = format!("{:?} is taken{}", name.value, seen(first));
            faults.add(name.line, &name.key, &FaultKind::DuplicateName(text));
        }
    }
}

/// A mirror belongs to one Source, with all that is in it: what a Source does not list is removed as extra. The
/// database is no resource either.
pub(super) fn check_folders(
    faults: &mut FaultCollector<'_>,
    state_dir: &Located<PathBuf>,
    mirrors: &[Located<PathBuf>],
) {
    let state = real(&state_dir.value);
    let folders: Vec<PathBuf> = mirrors.iter().map(|it| real(&it.value)).collect();
    for (index, mirror) in mirrors.iter().enumerate() {
        let folder = &folders[index];
        let line = mirror.line;
        if nested(folder, &state) {
            let text = format!(
                "{} and state_dir, {}, must be apart",
                mirror.value.display(),
                state_dir.value.display()
            );
            faults.add(line, &mirror.key, &FaultKind::MirrorInState(text));
        }
        let Some(other) = (0..index).find(|other| nested(folder, &folders[*other])) else {
            continue;
        };
        let first = &mirrors[other];
        let kind = if *folder == folders[other] {
            let text = format!("{} is taken{}", mirror.value.display(), seen(first));
            FaultKind::DuplicateMirror(text)
        } else {
            let (inner, outer) = if folder.starts_with(&folders[other]) {
                (mirror, first)
            } else {
                (first, mirror)
            };
            FaultKind::NestedMirror(format!(
                "{} is inside {}{}",
                inner.value.display(),
                outer.value.display(),
                seen(first)
            ))
        };
        faults.add(line, &mirror.key, &kind);
    }
}

/// Hubs and operators come in by different doors.
pub(super) fn check_listeners(
    faults: &mut FaultCollector<'_>,
    callback: &Located<SocketAddr>,
    status: &Located<SocketAddr>,
) {
    let (one, other) = (callback.value, status.value);
    // Port 0 is a free one, another at each listener.
    let same = one.port() == other.port() && one.port() != 0;
    if same && (covers(one.ip(), other.ip()) || covers(other.ip(), one.ip())) {
        let at = if status.line.is_some() {
            status
        } else {
            callback
        };
        let text =
            format!("callback.listen, {one}, and status.listen, {other}, are in each other's way");
        faults.add(at.line, &at.key, &FaultKind::SameListener(text));
    }
}

/// Whether listening on `one` takes `other` too.
fn covers(one: IpAddr, other: IpAddr) -> bool {
    // The IPv6 wildcard takes IPv4 as well, as Linux is set up.
    one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
}

fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn seen<T>(first: &Located<T>) -> String {
    match first.line {
        Some(line) => format!(", see line {line}"),
        None => String::new(),
    }
}

/// Where a path leads, through `..` and those links that are there already.
fn real(path: &Path) -> PathBuf {
    let mut real = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            real.pop();
            continue;
        }
        real.push(part);
        if let Ok(target) = real.canonicalize() {
            real = target;
        }
    }
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_cover_what_they_listen_on() {
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
    fn links_and_steps_back_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("a")).unwrap();
        std::os::unix::fs::symlink(base.join("a"), base.join("b")).unwrap();
        assert_eq!(real(&base.join("b/new/x")), base.join("a/new/x"));
        assert_eq!(real(&base.join("new/../a")), base.join("a"));
    }
}
