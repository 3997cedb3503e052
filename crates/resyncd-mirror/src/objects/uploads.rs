//! Uploads in parts, of large files. The store keeps the parts of an upload that has no end, and charges for them: so each is noted on
//! this machine's disk as long as it is in progress.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{Attributes, Error, PutMultipartOptions, PutPayload};

use super::store::{Content, of_this_machine};
use crate::mirror_path::OWN_FOLDER;

/// The length of a part but the last one, in bytes: the services want 5 MiB at least, and no more than 10,000 parts.
const PART: u64 = 16 << 20;
const MOST_PARTS: u64 = 10_000;

/// Numbers the notes of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn folder(work: &Path) -> PathBuf {
    work.join(OWN_FOLDER).join("uploads")
}

/// Uploads a file in parts. What was uploaded is removed if that fails.
pub(super) async fn upload(
    uploads: &dyn MultipartStore,
    work: &Path,
    key: &Key,
    attributes: Attributes,
    content: &mut Content,
    length: u64,
) -> Result<(), Error> {
    let options = PutMultipartOptions {
        attributes,
        ..PutMultipartOptions::default()
    };
    let id = uploads.create_multipart_opts(key, options).await?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let noted_in = folder(work).join(number.to_string());
    let uploaded = async {
        note(&noted_in, key, &id).map_err(of_this_machine)?;
        let parts = send_parts(uploads, key, &id, content, length).await?;
        uploads.complete_multipart(key, &id, parts).await
    };
    let uploaded = uploaded.await;
    if uploaded.is_ok() {
        // What stays is removed as one without an end.
        let _ = fs::remove_file(noted_in);
    } else {
        abort(uploads, key, &id, &noted_in).await;
    }
    uploaded.map(drop)
}

/// Removes what was uploaded of a file, and then its note. What can't be removed now stays noted, and is removed by a later process.
async fn abort(uploads: &dyn MultipartStore, key: &Key, id: &String, noted_in: &Path) {
    let aborted = uploads.abort_multipart(key, id).await;
    if let Ok(()) | Err(Error::NotFound { .. }) = aborted {
        let _ = fs::remove_file(noted_in);
    }
}

async fn send_parts(
    uploads: &dyn MultipartStore,
    key: &Key,
    id: &String,
    content: &mut Content,
    length: u64,
) -> Result<Vec<PartId>, Error> {
    let size = PART.max(length.div_ceil(MOST_PARTS));
    let (mut parts, mut sent) = (Vec::new(), 0);
    while sent < length {
        let part = content.next(size).await?;
        if part.is_empty() {
            return Err(of_this_machine(io::ErrorKind::UnexpectedEof.into()));
        }
        sent += part.len() as u64;
        let sending = uploads.put_part(key, id, parts.len(), PutPayload::from(part));
        parts.push(sending.await?);
    }
    Ok(parts)
}

/// Notes an upload before its first part is sent.
fn note(path: &Path, key: &Key, id: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(path)?;
    write!(file, "{id}\n{key}")?;
    file.sync_all()
}

/// Removes what former processes have uploaded without an end.
pub(super) async fn remove_unfinished(uploads: &dyn MultipartStore, work: &Path) {
    let Ok(notes) = fs::read_dir(folder(work)) else {
        // There was none yet.
        return;
    };
    for path in notes.flatten().map(|note| note.path()) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        match text.split_once('\n').map(|(id, key)| (id, Key::parse(key))) {
            Some((id, Ok(key))) => abort(uploads, &key, &id.to_owned(), &path).await,
            // It was not written to its end: no part was sent.
            _ => drop(fs::remove_file(path)),
        }
    }
}
