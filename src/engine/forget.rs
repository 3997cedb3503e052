//! Forgets a Source that is not followed any more: ends its subscriptions, deletes its rows and, if asked to, its files of the mirror.
//!
//! Invariants:
//! - Only files are deleted that the database states to be those of the Source, below its mirror, and no symlink is followed. A mirror
//!   that another Source has as well, or that is not mounted, is not touched.
//! - It can be ended after each step, by a crash too, and begun again: what is left is forgotten then. A file is in doubt before it is
//!   deleted, and its row is deleted after it.
//! - The feed states each file that is deleted. Files that stay are no news.
//!
//! Must not know the configuration, but the mirrors of its Sources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use resyncd_core::{ErrorClass, one_line};
use resyncd_mirror::{Mirror, MirrorError, MirrorId, MirrorPath, OWN_FOLDER};
use tokio::task::JoinError;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::channels::{EndingSource, end_subscriptions};
use crate::clock;
use crate::config::{ObjectSettings, folders_overlap};
use crate::status::Forgotten;
use crate::store::{FilesOfForgotten, ForgottenResource, Store, StoreError};

/// How many paths are named that are not files of the Source.
const MOST_NAMED: usize = 10;
/// How much of such a path is shown, in bytes.
const LONGEST_PATH: usize = 300;

/// Why a Source was not forgotten, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// No Source of that name is known.
    #[error("no Source {0:?} is or was followed")]
    Unknown(String),
    /// It is followed.
    #[error(
        "the Source {0:?} is followed: remove it from the configuration and reload the daemon first"
    )]
    Followed(String),
    /// It is being forgotten already.
    #[error("the Source {0:?} is being forgotten already")]
    Running(String),
    /// It is not recorded where the files are.
    #[error(
        "the mirror of {0:?} is not recorded: forget it without its files, and delete the \
         folder yourself"
    )]
    NoMirror(String),
    /// Another Source has the same mirror.
    #[error(
        "the mirror {}, or a part of it, is also that of the Source {other:?}: forget the Source without its files",
        mirror.display()
    )]
    SharedMirror {
        /// The folder.
        mirror: PathBuf,
        /// The label of the other Source.
        other: String,
    },
    /// There is no mirror in the folder.
    #[error(
        "{} is no mirror, it has no folder .resyncd: mount its file system, or forget the Source without its files",
        .0.display()
    )]
    MissingMirror(PathBuf),
    /// The mirror can't be changed.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// A database error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It was ended before it was complete.
    #[error("forgetting was interrupted: run `resyncd forget` again to complete it")]
    Interrupted,
}

impl ForgetError {
    /// The stable code of the error, in kebab-case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown-source",
            Self::Followed(_) => "source-followed",
            Self::Running(_) => "forget-running",
            Self::NoMirror(_) => "mirror-unknown",
            Self::SharedMirror { .. } => "mirror-shared",
            Self::MissingMirror(_) => "mirror-missing",
            Self::Mirror(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Interrupted => "forget-interrupted",
        }
    }
}

impl From<JoinError> for ForgetError {
    /// A panic was logged by its hook.
    fn from(_: JoinError) -> Self {
        Self::Interrupted
    }
}

/// Which Source to forget.
pub struct ForgetRequest {
    /// Its label.
    pub name: String,
    /// Whether its files are deleted.
    pub delete_files: bool,
    /// The Sources that are followed: their labels and mirrors.
    pub mirrors: Vec<(String, PathBuf)>,
    /// By what a mirror in an object store is reached.
    pub objects: ObjectSettings,
}

/// The Sources that are being forgotten. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Forgetting(Arc<Mutex<HashMap<String, RunningForget>>>);

struct RunningForget {
    stop: CancellationToken,
    ended: CancellationToken,
}

/// A Source is being forgotten, until this is dropped.
pub(super) struct BegunForgetting {
    name: String,
    stop: CancellationToken,
    all: Forgetting,
    _ended: DropGuard,
}

impl BegunForgetting {
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

impl Drop for BegunForgetting {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.name);
    }
}

impl Forgetting {
    /// Notes that a Source is being forgotten; `stop` ends that.
    pub(super) fn begin(
        &self,
        name: &str,
        stop: &CancellationToken,
    ) -> Result<BegunForgetting, ForgetError> {
        let mut all = self.0.lock();
        if all.contains_key(name) {
            return Err(ForgetError::Running(name.to_owned()));
        }
        let (stop, ended) = (stop.child_token(), CancellationToken::new());
        let running = RunningForget {
            stop: stop.clone(),
            ended: ended.clone(),
        };
        all.insert(name.to_owned(), running);
        Ok(BegunForgetting {
            name: name.to_owned(),
            stop,
            all: self.clone(),
            _ended: ended.drop_guard(),
        })
    }

    /// Ends it for a Source that is to be followed again, and waits until it has ended.
    pub(super) async fn interrupt(&self, name: &str) {
        let ended = self.0.lock().get(name).map(|running| {
            running.stop.cancel();
            running.ended.clone()
        });
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }
}

/// Forgets a Source that nothing follows. The callback must be served meanwhile, so that hubs can verify the end of the
/// subscriptions; one that can't be ended is forgotten nevertheless.
///
/// # Errors
/// [`ForgetError`]. What was forgotten by then stays forgotten.
pub async fn forget_source(
    store: &Arc<Store>,
    ending: &EndingSource,
    request: &ForgetRequest,
    stop: &CancellationToken,
) -> Result<Forgotten, ForgetError> {
    let name = request.name.as_str();
    let Some(location) = store.location_of(name).await? else {
        return Err(ForgetError::Unknown(name.to_owned()));
    };
    let mirror = match (request.delete_files, &location.mirror) {
        (false, _) => None,
        (true, None) => return Err(ForgetError::NoMirror(name.to_owned())),
        (true, Some(mirror)) => Some(open_mirror(store, request, mirror).await?),
    };
    let subscriptions = tokio::select! {
        ended = end_subscriptions(store, ending) => ended,
        () = stop.cancelled() => return Err(ForgetError::Interrupted),
    };
    let mut forgotten = Forgotten {
        source: name.to_owned(),
        mirror: location.mirror.map(|path| path.display().to_string()),
        subscriptions,
        ..Forgotten::default()
    };
    store.begin_anew(name).await?;
    match mirror {
        Some(mirror) => forget_with_files(store, mirror, &mut forgotten, stop).await?,
        None => forget_rows(store, &mut forgotten, stop).await?,
    }
    store.end_forgetting_resources(name).await?;
    store.end_forgetting(name).await?;
    let Forgotten {
        resources,
        deleted_files,
        deleted_bytes,
        left,
        ..
    } = forgotten;
    tracing::info!(
        source = name,
        resources,
        deleted_files,
        deleted_bytes,
        left,
        "Source forgotten"
    );
    Ok(forgotten)
}

/// Opens the mirror of a Source, if it is a mirror of no other one.
async fn open_mirror(
    store: &Arc<Store>,
    request: &ForgetRequest,
    path: &Path,
) -> Result<Arc<Mirror>, ForgetError> {
    let mut others = request.mirrors.clone();
    let former = store.locations().await?.into_iter();
    others.extend(former.filter_map(|location| Some((location.name, location.mirror?))));
    others.retain(|(other, _)| *other != request.name);
    let known = store.mirror_id(&request.name).await?;
    let known = known.as_deref().and_then(MirrorId::parse);
    let (path, place) = (
        path.to_owned(),
        request.objects.place_of(path, &request.name),
    );
    let opening = tokio::task::spawn_blocking(move || {
        let mut others = others.into_iter();
        if let Some((other, _)) = others.find(|(_, mirror)| folders_overlap(&path, mirror)) {
            return Err(ForgetError::SharedMirror {
                mirror: path,
                other,
            });
        }
        if let Some(known) = &known {
            Mirror::check_id(&place, known)?;
        }
        let is_missing = match place.objects() {
            Some(_) => known.is_none(),
            None => {
                let own = fs::symlink_metadata(place.join(OWN_FOLDER));
                !own.is_ok_and(|own| own.is_dir())
            }
        };
        if is_missing {
            return Err(ForgetError::MissingMirror(path));
        }
        Ok(Arc::new(Mirror::open(place)?))
    });
    opening.await?
}

async fn forget_rows(
    store: &Arc<Store>,
    forgotten: &mut Forgotten,
    stop: &CancellationToken,
) -> Result<(), ForgetError> {
    loop {
        if stop.is_cancelled() {
            return Err(ForgetError::Interrupted);
        }
        match store.forget_next(&forgotten.source).await? {
            0 => return Ok(()),
            resources => forgotten.resources += resources as u64,
        }
    }
}

async fn forget_with_files(
    store: &Arc<Store>,
    mirror: Arc<Mirror>,
    forgotten: &mut Forgotten,
    stop: &CancellationToken,
) -> Result<(), ForgetError> {
    let name = forgotten.source.clone();
    loop {
        if stop.is_cancelled() {
            return Err(ForgetError::Interrupted);
        }
        let batch = store.begin_forgetting(&name).await?;
        if batch.is_empty() {
            break;
        }
        let (files, removed) = remove_files(&mirror, &batch).await?;
        for ((length, path), removed) in files.into_iter().zip(removed) {
            match removed {
                Ok(true) => {
                    forgotten.deleted_files += 1;
                    forgotten.deleted_bytes += length;
                }
                Ok(false) => {}
                // Something else is there, which is not the Source's.
                Err(error) if error.class() == ErrorClass::Unusable => {
                    forgotten.left += 1;
                    if forgotten.left_paths.len() < MOST_NAMED {
                        let path = one_line(path.as_str(), LONGEST_PATH);
                        forgotten.left_paths.push(path);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        forgotten.resources += batch.len() as u64;
        let now = clock::now().wall;
        let files = FilesOfForgotten::Removed;
        store.forget_resources(now, batch, files).await?;
    }
    let sweeping = tokio::task::spawn_blocking(move || mirror.sweep_packages(&|_| false));
    sweeping.await??;
    Ok(())
}

/// The results of removing files, each with the recorded length of the file and its path.
type RemovedFiles = (Vec<(u64, MirrorPath)>, Vec<Result<bool, MirrorError>>);

async fn remove_files(
    mirror: &Arc<Mirror>,
    batch: &[ForgottenResource],
) -> Result<RemovedFiles, ForgetError> {
    // A path that is invalid leads to no file.
    let files = batch.iter().filter_map(|resource| {
        let path = MirrorPath::parse(resource.path.as_deref()?).ok()?;
        Some((resource.length.unwrap_or_default(), path))
    });
    let files: Vec<(u64, MirrorPath)> = files.collect();
    let paths: Vec<MirrorPath> = files.iter().map(|(_, path)| path.clone()).collect();
    let mirror = Arc::clone(mirror);
    let removed = tokio::task::spawn_blocking(move || mirror.remove(&paths)).await?;
    Ok((files, removed))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use resourcesync::{Algorithm, ChangeKind, Digest};
    use resyncd_core::ResourceUri;
    use url::Url;

    use super::*;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::tests::database::TestDatabase;
    use crate::store::{Change, Publication, TaskResult, TasksInProgress};

    const CONTENT: &[u8] = b"content";

    /// A Source that nothing follows, with resources of these names in its mirror.
    struct Former {
        source: TestSource,
        mirror: PathBuf,
        files: Vec<PathBuf>,
    }

    impl Former {
        async fn with(names: &[&str]) -> Self {
            let url = Url::parse("https://example.org/").unwrap();
            let mut source = TestSource::new(&url, |client| client);
            // The mirror is locked while it is open.
            let mirror = source.close_mirror();
            let changes = names.iter().map(|name| {
                let uri = ResourceUri::parse(&format!("https://example.org/{name}")).unwrap();
                Change {
                    kind: ChangeKind::Created,
                    ..Change::deletion(uri, None)
                }
            });
            source.announce(changes.collect()).await;
            let (store, now) = (&source.store, clock::now().wall);
            let id = Mirror::open(&mirror).unwrap().id().to_string();
            let noting = store.note_location(NAME, url.as_str(), mirror.clone(), &id);
            noting.await.unwrap();
            let due = store.due_tasks(NAME, now, usize::MAX, TasksInProgress::default());
            let due = due.await.unwrap().tasks;
            let (mut files, mut results) = (Vec::new(), Vec::new());
            for task in due {
                let file = mirror.join(&task.path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, CONTENT).unwrap();
                files.push(file);
                results.push(TaskResult::Published(Publication {
                    path: task.path.clone(),
                    length: CONTENT.len() as u64,
                    media_type: None,
                    encoding: None,
                    hashes: vec![Digest::of(Algorithm::Sha256, CONTENT)],
                    lastmod: None,
                    version: None,
                    has_new_bytes: true,
                    is_patched: false,
                    stored_version: crate::store::StoredVersion::Ignored,
                    task,
                }));
            }
            store.complete(now, Arc::new(results)).await.unwrap();
            assert_eq!(files.len(), names.len());
            Self {
                source,
                mirror,
                files,
            }
        }

        async fn forget(
            &self,
            delete_files: bool,
            mirrors: &[(&str, &Path)],
        ) -> Result<Forgotten, ForgetError> {
            let ending = EndingSource::unfollowed(NAME, &self.source.context.transports, None);
            let mirrors = mirrors.iter();
            let request = ForgetRequest {
                name: NAME.to_owned(),
                delete_files,
                mirrors: mirrors
                    .map(|(name, mirror)| ((*name).to_owned(), mirror.to_path_buf()))
                    .collect(),
                objects: ObjectSettings::default(),
            };
            let stop = CancellationToken::new();
            forget_source(&self.source.store, &ending, &request, &stop).await
        }

        fn files_left(&self) -> usize {
            self.files.iter().filter(|file| file.exists()).count()
        }

        /// The URIs of which the feed states that their files were deleted.
        async fn deletions(&self) -> Vec<String> {
            let entries = self.source.store.feed(0, 100).await.unwrap();
            let deletions = entries
                .into_iter()
                .filter(|entry| entry.change == "deleted" && entry.origin == "forget");
            let mut uris: Vec<String> = deletions.map(|entry| entry.uri).collect();
            uris.sort();
            uris
        }

        /// Asserts that nothing is left in the database but the feed and what its entries name.
        fn assert_no_rows(&self) {
            TestDatabase::open(self.mirror.parent().unwrap()).assert_source_forgotten();
        }
    }

    #[tokio::test]
    async fn rows_are_deleted_and_files_stay_unless_they_are_to_be_deleted() {
        let names = ["a", "b/c", "b/d", "e", "f"];
        for delete_files in [false, true] {
            let former = Former::with(&names).await;
            let forgotten = former.forget(delete_files, &[]).await.unwrap();
            assert_eq!(forgotten.resources, 5);
            let (files, deletions) = if delete_files { (5, 5) } else { (0, 0) };
            assert_eq!(forgotten.deleted_files, files);
            assert_eq!(forgotten.deleted_bytes, files * CONTENT.len() as u64);
            assert_eq!(former.files_left() as u64, 5 - files);
            assert_eq!(former.deletions().await.len(), deletions);
            former.assert_no_rows();
            let again = former.forget(delete_files, &[]).await.unwrap_err();
            assert_eq!(again.code(), "unknown-source");
        }
    }

    #[tokio::test]
    async fn only_files_of_the_source_are_deleted() {
        let former = Former::with(&["a", "link", "folder", "gone", "below/x"]).await;
        let outside = former.mirror.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("x"), "not ours").unwrap();
        let host = former.mirror.join("example.org");
        fs::write(host.join("foreign"), "not ours").unwrap();
        for name in ["link", "folder", "gone"] {
            fs::remove_file(host.join(name)).unwrap();
        }
        symlink(outside.join("x"), host.join("link")).unwrap();
        fs::create_dir(host.join("folder")).unwrap();
        fs::remove_dir_all(host.join("below")).unwrap();
        symlink(&outside, host.join("below")).unwrap();
        let forgotten = former.forget(true, &[]).await.unwrap();
        assert_eq!((forgotten.resources, forgotten.deleted_files), (5, 1));
        // A folder in place of a file is none of it, and no reason to look.
        let mut left = forgotten.left_paths.clone();
        left.sort();
        assert_eq!(left, ["example.org/below/x", "example.org/link"]);
        assert_eq!(forgotten.left, 2);
        assert_eq!(fs::read_to_string(outside.join("x")).unwrap(), "not ours");
        assert!(host.join("foreign").exists() && host.join("folder").exists());
        assert!(!host.join("a").exists());
        // None of them is in the mirror any more.
        assert_eq!(former.deletions().await.len(), 5);
    }

    #[tokio::test]
    async fn mirror_of_another_source_or_without_its_folder_is_not_touched() {
        let former = Former::with(&["a"]).await;
        let inside = former.mirror.join("inside");
        for (mirror, name) in [
            (former.mirror.as_path(), "renamed"),
            (inside.as_path(), "inner"),
            (former.mirror.parent().unwrap(), "outer"),
        ] {
            let refused = former.forget(true, &[(name, mirror)]).await.unwrap_err();
            assert_eq!(refused.code(), "mirror-shared", "{name}: {refused}");
        }
        // Another one that is not followed any more, either.
        let store = &former.source.store;
        let (url, id) = ("https://example.org/", "any");
        let noting = store.note_location("renamed", url, former.mirror.clone(), id);
        noting.await.unwrap();
        let refused = former.forget(true, &[]).await.unwrap_err();
        assert_eq!(refused.code(), "mirror-shared");
        store.end_forgetting("renamed").await.unwrap();
        let own = former.mirror.join(OWN_FOLDER);
        fs::rename(&own, former.mirror.join("elsewhere")).unwrap();
        let refused = former.forget(true, &[]).await.unwrap_err();
        assert_eq!(refused.code(), "mirror-missing");
        // The mirror of something else is there.
        drop(Mirror::open(&former.mirror).unwrap());
        assert!(own.exists());
        let refused = former.forget(true, &[]).await.unwrap_err();
        assert_eq!(refused.code(), "mirror-missing");
        assert_eq!(former.files_left(), 1);
        assert!(former.deletions().await.is_empty());
        former.forget(false, &[]).await.unwrap();
        former.assert_no_rows();
    }

    #[tokio::test]
    async fn forgetting_that_is_killed_at_any_step_is_completed_by_the_next() {
        let names = ["a", "b", "c", "d", "e"];
        let mut killed = 0;
        loop {
            let former = Former::with(&names).await;
            let hook = former.source.store.commit_hook();
            hook.stop_after(killed);
            let first = former.forget(true, &[]).await;
            let was_killed = hook.is_stopped();
            hook.resume();
            if !was_killed {
                first.unwrap();
                break;
            }
            first.unwrap_err();
            // What is not deleted yet is in the database still, so that it is found again.
            let left = former.source.store.snapshot().await.unwrap();
            assert!(left.resources.len() >= former.files_left(), "{killed}");
            match former.forget(true, &[]).await {
                Ok(_) => {}
                // The last commit was on disk.
                Err(error) => assert_eq!(error.code(), "unknown-source", "{killed}"),
            }
            assert_eq!(former.files_left(), 0, "{killed}");
            let expected: Vec<String> = names
                .iter()
                .map(|name| format!("https://example.org/{name}"))
                .collect();
            assert_eq!(former.deletions().await, expected, "{killed}: each once");
            former.assert_no_rows();
            killed += 1;
        }
        assert!(killed > 10, "{killed}");
    }
}
