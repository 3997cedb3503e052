//! The folder of a Source's versions: `<host>/<path>/<time>`, where `<host>/<path>` is the path of the resource in the mirror.
//!
//! It is a mirror of its own: staged files, syncs, the lock and the rules of paths are the same. Where something is in the way of that
//! path, the version gets the made path of its resource.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use resourcesync::SourceTime;
use resyncd_core::{ResourceUri, is_plausible, names_version, version_name};
use resyncd_mirror::{
    CompletedFile, Mirror, MirrorError, MirrorFile, MirrorPath, MirrorPlace, publication_paths,
};
use tokio::sync::Semaphore;

use crate::store::{Publication, StoredVersion, TaskResult};

/// How many bytes are copied at once before the commit of their tasks, which waits for that. Beyond, the worker copies.
const MAX_COPIED: u64 = 8 << 20;

/// The folder of a Source's versions, open or not.
pub(crate) struct VersionsFolder {
    root: MirrorPlace,
    opened: Mutex<Option<Arc<Mirror>>>,
    /// For one page of a TimeMap in memory at once. Each Source has its own: another one may be slow.
    pub(super) reading: Semaphore,
}

impl VersionsFolder {
    pub(crate) fn at(root: impl Into<MirrorPlace>) -> Self {
        Self {
            root: root.into(),
            opened: Mutex::default(),
            reading: Semaphore::new(1),
        }
    }

    pub(crate) fn root(&self) -> &MirrorPlace {
        &self.root
    }

    /// The folder, if it is open.
    pub(crate) fn opened(&self) -> Option<Arc<Mirror>> {
        self.opened.lock().clone()
    }

    pub(super) fn set_opened(&self, opened: Mirror) -> Arc<Mirror> {
        let opened = Arc::new(opened);
        *self.opened.lock() = Some(Arc::clone(&opened));
        opened
    }

    /// Closes it: others may open it once nothing uses it any more.
    pub(crate) fn close(&self) {
        *self.opened.lock() = None;
    }

    /// Stores what was published in the mirror as versions, and notes that in the results. What is not done quickly is left to the
    /// worker. For a blocking thread.
    pub(crate) fn store_published(
        &self,
        mirror: &Mirror,
        results: &mut [TaskResult],
        now: DateTime<Utc>,
    ) {
        let opened = self.opened();
        let (mut files, mut publications) = (Vec::new(), Vec::new());
        let mut copied = MAX_COPIED;
        for result in results {
            let TaskResult::Published(publication) = result else {
                continue;
            };
            let Some(at) = version_time(publication, now) else {
                publication.stored_version = StoredVersion::Timeless;
                continue;
            };
            // Until it is.
            publication.stored_version = StoredVersion::Due(at);
            let Some(versions) = opened.as_deref().filter(|_| is_version(publication)) else {
                continue;
            };
            let of = MirrorPath::parse(&publication.path);
            let paths = version_paths(&publication.path, &publication.task.uri, at);
            let (Ok(of), Some(path)) = (of, paths.first()) else {
                continue;
            };
            if versions.shares_file_with(path, mirror, &of) {
                publication.stored_version = StoredVersion::Stored(at);
                continue;
            }
            match versions.stage_short_file_of(mirror, &of, &mut copied) {
                Ok(None) => {}
                Ok(Some(file)) if is_stored_at(versions, &paths) => {
                    let stored = publish_version(versions, file, &paths);
                    note(publication, at, stored);
                }
                Ok(Some(file)) => {
                    files.push((file, path.clone()));
                    publications.push((publication, paths, at));
                }
                Err(error) => report(publication, &error),
            }
        }
        let Some(versions) = opened.filter(|_| !files.is_empty()) else {
            return;
        };
        for (result, (publication, paths, at)) in
            versions.publish_new(files).into_iter().zip(publications)
        {
            let result = match result {
                Err(failed) => match (failed.file, &failed.error) {
                    (Some(file), MirrorError::Blocked { .. } | MirrorError::Exists { .. }) => {
                        publish_version(&versions, file, &paths)
                    }
                    _ => Err(failed.error),
                },
                Ok(()) => Ok(()),
            };
            note(publication, at, result);
        }
    }
}

/// Notes what became of a publication as a version.
fn note(publication: &mut Publication, at: SourceTime, stored: Result<(), MirrorError>) {
    match stored {
        Ok(()) => publication.stored_version = StoredVersion::Stored(at),
        Err(error @ MirrorError::Exists { .. }) => {
            let (source, uri) = (&publication.task.source, &publication.task.uri);
            tracing::warn!(code = error.code(), source, %uri, %at, %error,
                "the Source serves other bytes of the same time; the stored version stays");
            publication.stored_version = StoredVersion::Conflicting(at);
        }
        Err(error) => report(publication, &error),
    }
}

/// Whether one of these paths has a file.
fn is_stored_at(versions: &Mirror, paths: &[MirrorPath]) -> bool {
    paths.iter().any(|path| versions.open_file(path).is_ok())
}

/// The worker tries again, and reports what stays.
fn report(publication: &Publication, error: &MirrorError) {
    let (source, uri) = (&publication.task.source, &publication.task.uri);
    tracing::debug!(code = error.code(), source, %uri, %error, "version not stored; retrying");
}

/// The time of a published file as a version. `None`: it has none, or it is another one than a hub has stated that is not trusted to
/// speak for the Source.
fn version_time(publication: &Publication, now: DateTime<Utc>) -> Option<SourceTime> {
    let task = &publication.task;
    let mut digests = task.content.hashes.iter();
    if task.unconfirmed && !digests.all(|digest| publication.hashes.contains(digest)) {
        return None;
    }
    let stated = [task.lastmod, task.changed_at, publication.lastmod];
    let mut stated = stated.into_iter().flatten();
    stated.find(|&at| is_plausible(at, now))
}

/// Whether a published file is the version that was announced: it has the stated digest, or there is no other place of it.
fn is_version(publication: &Publication) -> bool {
    let task = &publication.task;
    let names_other_place = !task.unconfirmed && task.links.iter().any(names_version);
    !task.content.hashes.is_empty() || !names_other_place
}

/// The paths of a version, the first one first. `path`: that of the resource in the mirror. Empty: the time has no name.
pub(super) fn version_paths(path: &str, uri: &ResourceUri, at: SourceTime) -> Vec<MirrorPath> {
    let Some(name) = version_name(at) else {
        return Vec::new();
    };
    let folders = publication_paths(path, uri);
    // With the time the path may be too long.
    let paths = folders.filter_map(|folder| MirrorPath::parse(&format!("{folder}/{name}")).ok());
    paths.collect()
}

/// Publishes a file at the first of these paths that is not blocked. A version that is stored at one of them stays as it is: the same
/// bytes are stored then, others are an error. For a blocking thread.
pub(super) fn publish_version(
    versions: &Mirror,
    file: CompletedFile,
    paths: &[MirrorPath],
) -> Result<(), MirrorError> {
    let mut file = Some(file);
    let mut blocked = MirrorError::Blocked {
        path: String::new(),
    };
    for path in paths {
        if let (Some(file), Ok(stored)) = (&file, versions.open_file(path)) {
            return compare(versions, file, stored, path);
        }
    }
    for path in paths {
        let Some(next) = file.take() else { break };
        let published = versions.publish_new(vec![(next, path.clone())]);
        match published.into_iter().next() {
            None | Some(Ok(())) => return Ok(()),
            Some(Err(failed)) => {
                // Another task has stored it in this moment.
                if let (Some(file), Ok(stored)) = (&failed.file, versions.open_file(path)) {
                    return compare(versions, file, stored, path);
                }
                if !matches!(failed.error, MirrorError::Blocked { .. }) {
                    return Err(failed.error);
                }
                (blocked, file) = (failed.error, failed.file);
            }
        }
    }
    Err(blocked)
}

fn compare(
    versions: &Mirror,
    file: &CompletedFile,
    stored: MirrorFile,
    path: &MirrorPath,
) -> Result<(), MirrorError> {
    let is_same = file.has_bytes_of(stored);
    if is_same.map_err(|error| MirrorError::reading(path.as_str(), &error))? {
        // It may be there because the sync of its folder has failed.
        versions.sync_entry(path)
    } else {
        Err(MirrorError::Exists {
            path: path.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use resyncd_mirror::made_path;

    use super::*;

    fn paths(path: &str, uri: &str, at: &str) -> Vec<String> {
        let uri = ResourceUri::parse(uri).unwrap();
        let paths = version_paths(path, &uri, at.parse().unwrap());
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn versions_are_below_the_path_of_their_resource() {
        let uri = "http://a.example/b/c.txt";
        let found = paths("a.example/b/c.txt", uri, "2013-01-03T18:00:00.5Z");
        assert_eq!(found[0], "a.example/b/c.txt/20130103T180000.5Z");
        let made = made_path(&ResourceUri::parse(uri).unwrap());
        assert_eq!(found[1..], [format!("{made}/20130103T180000.5Z")]);
        let of_made = paths(made.as_str(), uri, "2013-01-03T18:00:00.5Z");
        assert_eq!(of_made, found[1..]);
        // Where the plain path would be too long.
        let long = format!("a.example/{}", vec!["name"; 599].join("/"));
        let found = paths(&long, uri, "2013-01-03");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("/20130103T000000Z"));
    }

    #[test]
    fn blocked_version_gets_the_made_path() {
        let folder = tempfile::tempdir().unwrap();
        let versions = Mirror::open(folder.path()).unwrap();
        let uri = ResourceUri::parse("http://a.example/b").unwrap();
        let paths = version_paths("a.example/b", &uri, "2013-01-03".parse().unwrap());
        let staged = || {
            let mut staged = versions.stage().unwrap();
            staged.write(b"version").unwrap();
            staged.finish(None).unwrap()
        };
        // The folder of the versions of another resource.
        std::fs::create_dir_all(folder.path().join(paths[0].as_str())).unwrap();
        publish_version(&versions, staged(), &paths).unwrap();
        assert_eq!(
            std::fs::read(folder.path().join(paths[1].as_str())).unwrap(),
            b"version"
        );
        std::fs::remove_file(folder.path().join(paths[1].as_str())).unwrap();
        std::fs::create_dir(folder.path().join(paths[1].as_str())).unwrap();
        let blocked = publish_version(&versions, staged(), &paths);
        assert!(matches!(blocked, Err(MirrorError::Blocked { .. })));
    }
}
