//! Adopts a file that the mirror has and the database does not, as after the database was lost: a complete file is not fetched
//! again.
//!
//! It is not a guess. Where the Source states a digest, the file is hashed. Where it states none, the file must have the stated
//! length, if there is one, and the stated time: only complete, verified files were ever given that time.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use crate::mirror::{Mirror, MirrorPath, file_time};
use crate::protocol::{Digest, Hashing, SourceTime};
use crate::store::{Origin, Task};

/// How many bytes are read at once.
const CHUNK: usize = 256 * 1024;

/// A file that is as the Source states.
pub(super) struct Adopted {
    pub(super) length: u64,
    pub(super) hashes: Vec<Digest>,
    pub(super) lastmod: Option<SourceTime>,
}

/// Checks whether the file of a task is in its place already; `None`: there is none, or nothing proves that it is the right
/// one, or an audit needs the Source's own bytes.
pub(super) async fn adopt(mirror: &Arc<Mirror>, task: &Task) -> Option<Adopted> {
    let proves = !task.hashes.is_empty() || task.lastmod.is_some();
    if task.live || task.origin == Origin::Audit || !proves {
        return None;
    }
    let (mirror, task) = (Arc::clone(mirror), task.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let path = MirrorPath::parse(&task.path).ok()?;
        let file = mirror.open_file(&path).ok()?;
        // A file that can't be read is fetched.
        examine(&file, &task).ok().flatten()
    });
    looking.await.ok().flatten()
}

/// For a blocking thread.
fn examine(file: &File, task: &Task) -> io::Result<Option<Adopted>> {
    let metadata = file.metadata()?;
    let length = metadata.len();
    if task.length.is_some_and(|stated| stated != length) {
        return Ok(None);
    }
    let is_dated = match task.lastmod {
        Some(stated) => metadata.modified()? == file_time(stated),
        None => false,
    };
    if task.hashes.is_empty() && !is_dated {
        return Ok(None);
    }
    let Some(hashes) = hashes_of(file, length, task)? else {
        return Ok(None);
    };
    let lastmod = task.lastmod.or(task.changed_at);
    if let Some(lastmod) = lastmod.filter(|_| !is_dated) {
        // A file whose time can't be set, as one of another owner, has the right bytes nevertheless.
        let _ = file.set_modified(file_time(lastmod));
    }
    // It may never have been synced.
    file.sync_all()?;
    Ok(Some(Adopted {
        length,
        hashes,
        lastmod,
    }))
}

/// The digests of a file, if it has the announced ones.
fn hashes_of(mut file: &File, length: u64, task: &Task) -> io::Result<Option<Vec<Digest>>> {
    let mut hashing = Hashing::against(&task.hashes);
    let mut chunk = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK)).max(1)];
    let mut read = 0;
    loop {
        let count = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hashing.update(&chunk[..count]);
        read += count as u64;
    }
    let hashes = hashing.finish();
    let is_right = read == length && task.hashes.iter().all(|stated| hashes.contains(stated));
    Ok(is_right.then_some(hashes))
}
