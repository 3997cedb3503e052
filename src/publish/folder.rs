//! A folder as a Source: its files are recorded as they are, at the start, once an hour, and whenever the system reports that one has changed.
//!
//! Invariants:
//! - A file that is being written is recorded when it has been left alone for [`QUIET`], and only if it has not changed while it was read.
//! - Nothing counts as deleted because the folder can't be read, and nothing if it is empty: a file system that is not mounted looks like
//!   that.
//! - What has a name that begins with a dot is not published, nor is what a symbolic link leads to.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use resourcesync::{SourceTime, Verifier};
use resyncd_core::ResourceUri;
use resyncd_mirror::{MirrorError, MirrorFile, MirrorPath, MirrorReader};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{PublishedSource, Publisher};
use crate::clock;
use crate::store::{FolderEntry, FolderFile, ResourceId, SetId, StoreError};

/// How long a file has to be left alone until it is recorded.
const QUIET: Duration = Duration::from_secs(2);
/// How often everything is looked at, whatever the system has reported.
const INTERVAL: Duration = Duration::from_secs(3600);
/// How long what the system reports is gathered.
const GATHERED: Duration = Duration::from_millis(200);
/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(30);
/// How many files are recorded at once.
const TOGETHER: usize = 100;
/// How many reported paths are remembered: of more, everything is looked at.
const MOST_REPORTED: usize = 10_000;

/// Why a folder can't be recorded.
#[derive(Debug, thiserror::Error)]
enum FolderError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(
        "the folder is empty, and had files: nothing counts as deleted, because its file system may not be mounted"
    )]
    Empty,
    #[error("{0}")]
    Thread(#[from] tokio::task::JoinError),
}

impl FolderError {
    fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Mirror(error) => error.code(),
            Self::Empty => "folder-empty",
            Self::Thread(_) => "panicked",
        }
    }
}

/// What the system has reported.
#[derive(Default)]
struct Reported {
    paths: Mutex<Paths>,
    notify: Notify,
}

#[derive(Default)]
struct Paths {
    /// Relative to the folder.
    changed: BTreeSet<String>,
    /// Whether some were left out.
    is_cut: bool,
}

impl Reported {
    fn note(&self, root: &Path, event: notify::Result<Event>) {
        let mut paths = self.paths.lock();
        match event {
            Ok(event) if matches!(event.kind, EventKind::Access(kind) if !kind_is_close(kind)) => {
                return;
            }
            Ok(event) if !event.need_rescan() => {
                for path in &event.paths {
                    let relative = path.strip_prefix(root).ok().and_then(Path::to_str);
                    // Of the folder itself: another one may have taken its place.
                    match relative.filter(|relative| !relative.is_empty()) {
                        Some(relative) if paths.changed.len() < MOST_REPORTED => {
                            paths.changed.insert(relative.to_owned());
                        }
                        _ => paths.is_cut = true,
                    }
                }
            }
            _ => paths.is_cut = true,
        }
        drop(paths);
        self.notify.notify_one();
    }

    fn take(&self) -> Paths {
        std::mem::take(&mut self.paths.lock())
    }
}

fn kind_is_close(kind: notify::event::AccessKind) -> bool {
    use notify::event::{AccessKind, AccessMode};
    kind == AccessKind::Close(AccessMode::Write)
}

/// Records a folder until it is stopped.
pub(super) async fn record_folder(
    publisher: &Publisher,
    folder: &PublishedSource,
    stop: &CancellationToken,
) {
    let recorder = Recorder { publisher, folder };
    tokio::select! {
        () = stop.cancelled() => {}
        () = recorder.record() => {}
    }
}

struct Recorder<'a> {
    publisher: &'a Publisher,
    folder: &'a PublishedSource,
}

/// What a look at the folder has left.
#[derive(Default)]
struct Looked {
    /// What is to be looked at again, because it is being written.
    unsettled: BTreeSet<String>,
    /// How many files and folders can't be read, and the first of the errors. What is recorded of these stays.
    unreadable: u64,
    first_error: Option<MirrorError>,
}

impl Looked {
    fn note_unreadable(&mut self, error: MirrorError) {
        self.unreadable += 1;
        self.first_error.get_or_insert(error);
    }
}

impl Recorder<'_> {
    async fn record(&self) {
        let reported = Arc::new(Reported::default());
        let mut watcher = None;
        let mut unsettled = BTreeSet::new();
        let mut unreadable = 0;
        // When everything has been looked at.
        let mut complete_at = None;
        let mut error_code = "";
        loop {
            let now = clock::now().mono;
            let is_due = complete_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
            let news = reported.take();
            let is_complete = is_due || news.is_cut;
            let looked = if is_complete {
                complete_at = Some(now);
                // Anew: another file system may have been mounted.
                drop(watcher.take());
                watcher = self.watch(&reported);
                self.look_at_all().await
            } else {
                unsettled.extend(news.changed);
                self.look_at(std::mem::take(&mut unsettled)).await
            };
            let pause = match looked {
                Ok(left) => {
                    let (number, error) = (left.unreadable, left.first_error);
                    if let Some(error) = error.filter(|_| number > unreadable) {
                        tracing::warn!(code = "folder-unreadable", %error, number, folder = self.folder.name,
                            "files or folders can't be read; what is published of them stays as it was");
                    }
                    unreadable = if is_complete {
                        number
                    } else {
                        number.max(unreadable)
                    };
                    if !std::mem::take(&mut error_code).is_empty() {
                        tracing::info!(folder = self.folder.name, "the folder can be read again");
                    }
                    unsettled.extend(left.unsettled);
                    if unsettled.is_empty() {
                        INTERVAL
                    } else {
                        QUIET
                    }
                }
                Err(error) => {
                    if std::mem::replace(&mut error_code, error.code()) != error.code() {
                        tracing::warn!(code = error.code(), %error, folder = self.folder.name, path = %self.folder.root.display(),
                            "the folder is not published as it is; retrying");
                    }
                    complete_at = None;
                    PAUSE
                }
            };
            let notified = async {
                reported.notify.notified().await;
                tokio::time::sleep(GATHERED).await;
            };
            tokio::select! {
                () = notified => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Has the system report changes. Without that they are found when everything is looked at.
    fn watch(&self, reported: &Arc<Reported>) -> Option<RecommendedWatcher> {
        let root = self.folder.root.canonicalize().ok()?;
        let (noting, of) = (Arc::clone(reported), root.clone());
        // What symbolic links lead to is not published.
        let config = notify::Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(move |event| noting.note(&of, event), config);
        let watching = watcher.and_then(|mut watcher| {
            watcher.watch(&root, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        let unwatched = |error: &notify::Error| {
            tracing::warn!(code = "folder-unwatched", %error, folder = self.folder.name,
                "changes of the folder are not reported; it is looked at once an hour");
        };
        watching.inspect_err(unwatched).ok()
    }

    async fn set(&self) -> Result<SetId, StoreError> {
        let (store, name) = (&self.publisher.store, &self.folder.name);
        let list = self.publisher.uris.list_of_folder(name);
        store.begin_folder(name, &list).await
    }

    /// Looks at all files, and at all that are recorded.
    async fn look_at_all(&self) -> Result<Looked, FolderError> {
        let (store, begun_at) = (&self.publisher.store, clock::now().wall);
        let set = self.set().await?;
        let mut looked = Looked::default();
        self.look_below("", set, &mut looked).await?;
        let mut after = ResourceId::NONE;
        loop {
            let entries = store.folder_entries(set, after).await?;
            let Some(last) = entries.last() else { break };
            after = last.id;
            self.delete_missing(set, entries).await?;
        }
        store.end_folder_scan(set, begun_at).await?;
        Ok(looked)
    }

    /// Looks at all files in a folder of the folder; empty: in all.
    async fn look_below(
        &self,
        below: &str,
        set: SetId,
        looked: &mut Looked,
    ) -> Result<(), FolderError> {
        let (sender, mut found) = mpsc::channel(TOGETHER);
        let (root, below) = (self.folder.root.clone(), below.to_owned());
        let walking = tokio::task::spawn_blocking(move || -> Result<(), MirrorError> {
            let mirror = MirrorReader::open(&root)?;
            for found in mirror.files_of_folder(&below) {
                let found = match found {
                    // Nothing is known of a folder that can't be read itself.
                    Err(MirrorError::Io { ref path, .. }) if path.is_empty() => {
                        return found.map(drop);
                    }
                    found => found,
                };
                if sender.blocking_send(found).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let mut files = Vec::new();
        while let Some(found) = found.recv().await {
            let path = match found {
                Ok(path) => path,
                Err(error) => {
                    looked.note_unreadable(error);
                    continue;
                }
            };
            match self.read(&path).await? {
                Found::New(file) => files.push(*file),
                Found::Unsettled => {
                    looked.unsettled.insert(path.as_str().to_owned());
                }
                Found::Unreadable(error) => looked.note_unreadable(error),
                Found::Same | Found::Nothing => {}
            }
            if files.len() >= TOGETHER {
                self.put(set, std::mem::take(&mut files)).await?;
            }
        }
        walking.await??;
        self.put(set, files).await?;
        Ok(())
    }

    /// Looks at what was reported.
    async fn look_at(&self, paths: BTreeSet<String>) -> Result<Looked, FolderError> {
        let set = self.set().await?;
        let (mut looked, mut files) = (Looked::default(), Vec::new());
        for text in paths.into_iter().filter(|text| is_published(text)) {
            let Ok(path) = MirrorPath::parse_in_folder(&text) else {
                continue;
            };
            match self.read(&path).await? {
                Found::New(file) => files.push(*file),
                Found::Unsettled => {
                    looked.unsettled.insert(text);
                }
                Found::Unreadable(error) => looked.note_unreadable(error),
                Found::Same => {}
                Found::Nothing => {
                    // It is, or was, a file or a folder.
                    self.look_below(&text, set, &mut looked).await?;
                    let (store, name) = (&self.publisher.store, &self.folder.name);
                    let entries = store.folder_entries_at(name, &text).await?;
                    self.delete_missing(set, entries).await?;
                }
            }
        }
        self.put(set, files).await?;
        Ok(looked)
    }

    async fn put(&self, set: SetId, files: Vec<FolderFile>) -> Result<(), StoreError> {
        if files.is_empty() {
            return Ok(());
        }
        let (store, now) = (&self.publisher.store, clock::now().wall);
        store
            .put_folder_files(&self.folder.name, set, now, files)
            .await
    }

    /// Records which of these files are gone, unless all are.
    async fn delete_missing(
        &self,
        set: SetId,
        mut entries: Vec<FolderEntry>,
    ) -> Result<(), FolderError> {
        let root = self.folder.root.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let mirror = MirrorReader::open(&root)?;
            entries.retain(|entry| {
                let path = MirrorPath::parse_in_folder(&entry.path).ok();
                let opened = path.map(|path| mirror.open_file(&path));
                // Or another kind of thing has taken its place.
                let is_gone = |error: &MirrorError| {
                    matches!(
                        error,
                        MirrorError::Missing { .. } | MirrorError::Blocked { .. }
                    )
                };
                opened.is_some_and(|opened| opened.is_err_and(|error| is_gone(&error)))
            });
            if !entries.is_empty() && mirror.files_of_folder("").flatten().next().is_none() {
                return Err(FolderError::Empty);
            }
            Ok(entries)
        });
        let gone = looking.await??;
        if !gone.is_empty() {
            let (store, now) = (&self.publisher.store, clock::now().wall);
            store.delete_folder_files(set, now, gone).await?;
        }
        Ok(())
    }

    /// Reads a file, unless it is recorded as it is.
    async fn read(&self, path: &MirrorPath) -> Result<Found, FolderError> {
        let store = &self.publisher.store;
        let known = store.folder_entry(&self.folder.name, path.as_str()).await?;
        let (root, path, now) = (self.folder.root.clone(), path.clone(), clock::now().wall);
        let uri = self.publisher.uris.file(&self.folder.name, path.as_str());
        let reading = tokio::task::spawn_blocking(move || {
            let opened = MirrorReader::open(&root)?.open_file(&path);
            let file = match opened.map(MirrorFile::into_disk) {
                Ok(Some(file)) => file,
                // A folder has files of its own.
                Ok(None) | Err(MirrorError::Missing { .. } | MirrorError::Blocked { .. }) => {
                    return Ok(Found::Nothing);
                }
                Err(error) => return Ok(Found::Unreadable(error)),
            };
            let read = read_file(file, &path, uri, known.as_ref(), now);
            let unreadable = |error| Found::Unreadable(MirrorError::reading(path.as_str(), &error));
            Ok::<_, MirrorError>(read.unwrap_or_else(unreadable))
        });
        Ok(reading.await??)
    }
}

/// What there is at a path.
enum Found {
    Nothing,
    /// What is recorded.
    Same,
    /// A file that is being written.
    Unsettled,
    Unreadable(MirrorError),
    New(Box<FolderFile>),
}

fn read_file(
    mut file: File,
    path: &MirrorPath,
    uri: Url,
    known: Option<&FolderEntry>,
    now: DateTime<Utc>,
) -> io::Result<Found> {
    let before = file.metadata()?;
    let (length, modified) = (before.len(), modified_at(&before));
    let is_known = known.is_some_and(|known| {
        let (of_known, inode) = (known.modified.map(SourceTime::micros), known.inode);
        known.length == Some(length) && inode == Some(before.ino()) && of_known == Some(modified)
    });
    if is_known {
        return Ok(Found::Same);
    }
    let age = now.timestamp_micros().saturating_sub(modified);
    // One of the future, as of a clock that was set back, is not waited for.
    if (0..QUIET.as_micros() as i64).contains(&age) {
        return Ok(Found::Unsettled);
    }
    let mut verifier = Verifier::new(Some(length), &[]);
    verifier.read_all(&mut file, |_| ())?;
    let after = file.metadata()?;
    let is_whole = after.len() == length && modified_at(&after) == modified;
    let verified = verifier.finish().ok().filter(|_| is_whole);
    let digest = verified.and_then(|verified| verified.digests.into_iter().next());
    let Some(digest) = digest else {
        return Ok(Found::Unsettled);
    };
    let Ok(uri) = ResourceUri::try_from(uri) else {
        return Ok(Found::Nothing);
    };
    let guessed = mime_guess::from_path(path.as_str()).first_raw();
    Ok(Found::New(Box::new(FolderFile {
        uri,
        path: path.as_str().to_owned(),
        length,
        media_type: guessed.map(str::to_owned),
        digest,
        modified: SourceTime::from_micros(modified),
        inode: before.ino(),
    })))
}

/// In microseconds since 1970.
fn modified_at(metadata: &Metadata) -> i64 {
    let micros = metadata.mtime_nsec().div_euclid(1000);
    metadata
        .mtime()
        .saturating_mul(1_000_000)
        .saturating_add(micros)
}

/// Whether no part of a path is hidden.
fn is_published(path: &str) -> bool {
    path.split('/').all(|name| !name.starts_with('.'))
}
