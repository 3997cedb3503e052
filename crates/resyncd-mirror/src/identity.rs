//! The id of a mirror, in its own folder. It distinguishes a mirror from the empty folder that its disk is not mounted on, and from the
//! mirror of something else.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::MirrorError;
use super::disk::{DiskCall, DiskObserver};
use super::tree::{FolderTree, sync_entries};
use crate::mirror_path::OWN_FOLDER;

/// The file, in the own folder of the mirror.
const FILE: &str = "id";
/// Its name until it is complete.
const UNFINISHED: &str = "id.unfinished";
/// The number of random bytes of an id.
const RANDOM: usize = 16;
/// The number of bytes of the checksum that follows: a damaged id must not be taken for that of another mirror.
const CHECKSUM: usize = 4;
/// The number of characters of an id.
const LENGTH: usize = 2 * (RANDOM + CHECKSUM);

/// The id of a mirror: random, made with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorId(String);

impl MirrorId {
    fn of(random: [u8; RANDOM]) -> Self {
        let random = hexadecimal(&random);
        let checksum = checksum(&random);
        Self(random + &checksum)
    }

    /// A new one.
    pub(super) fn random() -> Result<Self, MirrorError> {
        let mut random = [0_u8; RANDOM];
        let filled = getrandom::fill(&mut random);
        filled.map_err(|_| MirrorError::classify("writing", ".resyncd/id", Errno::IO))?;
        Ok(Self::of(random))
    }

    /// An id that was stored; `None`: it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (random, found) = text.split_at_checked(2 * RANDOM)?;
        (checksum(random) == found).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn checksum(random: &str) -> String {
    hexadecimal(&Sha256::digest(random.as_bytes())[..CHECKSUM])
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for MirrorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a mirror; `None`: it has none, or one that was not written to its end.
pub(super) fn read(tree: &FolderTree) -> Result<Option<MirrorId>, MirrorError> {
    let path = format!("{OWN_FOLDER}/{FILE}");
    let file = match tree.file(&path) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(MirrorError::classify("opening", &path, errno)),
    };
    let mut text = String::new();
    match file.take(LENGTH as u64 + 2).read_to_string(&mut text) {
        Ok(_) => Ok(MirrorId::parse(text.trim_end())),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(MirrorError::reading(&path, &error)),
    }
}

/// Gives a mirror that has none an id. It is on disk afterwards.
pub(super) fn create(tree: &FolderTree) -> Result<MirrorId, MirrorError> {
    let failed = |errno| MirrorError::classify("writing", ".resyncd/id", errno);
    let own = tree.folder(OWN_FOLDER).map_err(failed)?;
    let id = MirrorId::random()?;
    write(&own, &id, &*tree.disk).map_err(failed)?;
    // The own folder may be new.
    let top = tree.folder("").map_err(failed)?;
    sync_entries(&top, "", &*tree.disk).map_err(failed)?;
    Ok(id)
}

fn write(own: &OwnedFd, id: &MirrorId, disk: &dyn DiskObserver) -> rustix::io::Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    disk.before(DiskCall::Create, b"")?;
    let file = openat(own, UNFINISHED, flags, Mode::from_raw_mode(0o644))?;
    let mut file = std::fs::File::from(file);
    let errno = |error: std::io::Error| super::error::errno(&error);
    disk.before(DiskCall::Write, b"")?;
    writeln!(file, "{id}").map_err(errno)?;
    disk.before(DiskCall::Fsync, b"")?;
    file.sync_all().map_err(errno)?;
    disk.before(DiskCall::Rename, b"")?;
    renameat(own, UNFINISHED, own, FILE)?;
    sync_entries(own, OWN_FOLDER, disk)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn id_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tree = FolderTree::open(folder.path(), Arc::new(())).unwrap();
        assert_eq!(read(&tree).unwrap(), None);
        let own = folder.path().join(OWN_FOLDER);
        std::fs::create_dir(&own).unwrap();
        assert_eq!(read(&tree).unwrap(), None);
        let id = create(&tree).unwrap();
        assert_eq!(read(&tree).unwrap(), Some(id.clone()));
        assert_eq!(MirrorId::parse(id.as_str()), Some(id.clone()));
        assert_ne!(create(&tree).unwrap(), id);
        // What is no id: an earlier process did not write it to its end.
        for text in [
            "",
            "abc",
            &"x".repeat(LENGTH),
            &"a".repeat(LENGTH + 1),
            "\u{fffd}",
        ] {
            std::fs::write(own.join(FILE), text).unwrap();
            assert_eq!(read(&tree).unwrap(), None, "{text}");
        }
        std::fs::write(own.join(FILE), b"\xff\xff").unwrap();
        assert_eq!(read(&tree).unwrap(), None);
        for at in 0..LENGTH {
            let mut damaged = id.as_str().as_bytes().to_vec();
            damaged[at] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(MirrorId::parse(&damaged), None, "{damaged}");
        }
    }
}
