//! Adopts a file that the mirror has and the database does not, as after the database was lost: a complete file is not fetched
//! again.
//!
//! It is not a guess. Where the Source states a digest, the file is hashed. Where it states none, the file must have the stated
//! length, if there is one, and the stated time: only complete, verified files were ever given that time.

use std::io;
use std::sync::Arc;

use resourcesync::{Digest, SourceTime, Verifier};
use resyncd_mirror::{Mirror, MirrorFile, MirrorPath, file_time};

use crate::store::{Origin, Task};

/// A file that is as the Source states.
pub(super) struct Adopted {
    pub(super) length: u64,
    pub(super) hashes: Vec<Digest>,
    pub(super) lastmod: Option<SourceTime>,
}

/// Checks whether the file of a task is in its place already; `None`: there is none, or nothing proves that it is the right
/// one, or an audit needs the Source's own bytes.
pub(super) async fn adopt(mirror: &Arc<Mirror>, task: &Task) -> Option<Adopted> {
    let proves = !task.content.hashes.is_empty() || task.lastmod.is_some();
    if task.live || task.origin == Origin::Audit || !proves {
        return None;
    }
    let (mirror, task) = (Arc::clone(mirror), task.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let path = MirrorPath::parse(&task.path).ok()?;
        let file = mirror.open_file(&path).ok()?;
        // A file that can't be read is fetched.
        let adopted = examine(file, &task).ok().flatten()?;
        // It may be here because the sync of its folder has failed. It is published again while that still fails.
        mirror.sync_entry(&path).ok()?;
        Some(adopted)
    });
    reading.await.ok().flatten()
}

/// For a blocking thread.
fn examine(mut file: MirrorFile, task: &Task) -> io::Result<Option<Adopted>> {
    let metadata = file.metadata()?;
    let length = metadata.length;
    if task.content.length.is_some_and(|stated| stated != length) {
        return Ok(None);
    }
    let is_dated = match task.lastmod {
        Some(stated) => metadata.modified == file_time(stated),
        None => false,
    };
    if task.content.hashes.is_empty() && !is_dated {
        return Ok(None);
    }
    let hashes = if file.is_stored_with(&task.content.hashes) {
        task.content.hashes.clone()
    } else {
        let mut verifier = Verifier::new(Some(length), &task.content.hashes);
        verifier.read_all(&mut file, |_| {})?;
        let Ok(verified) = verifier.finish() else {
            return Ok(None);
        };
        verified.digests
    };
    let lastmod = task.lastmod.or(task.changed_at);
    if let Some(lastmod) = lastmod.filter(|_| !is_dated) {
        // A file whose time can't be set, as one of another owner, has the right bytes nevertheless.
        let _ = file.set_modified(file_time(lastmod));
    }
    // It may never have been synced.
    file.sync()?;
    Ok(Some(Adopted {
        length,
        hashes,
        lastmod,
    }))
}
