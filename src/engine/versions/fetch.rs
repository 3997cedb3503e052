//! Stores one version: from the mirror where that has it, else from its mementos, else as its TimeGate has it at its time.

use std::sync::Arc;

use chrono::TimeDelta;
use resourcesync::{ChangeKind, Digest, SourceTime, Verifier};
use resyncd_core::{
    Candidate, ContentMatch, Expected, RecordedFile, Revision, latest_plausible, plan_version,
    share_digest,
};
use resyncd_fetch::AllowedHosts;
use resyncd_mirror::{Mirror, MirrorError, MirrorPath};

use super::folder::{publish_version, version_paths};
use crate::clock;
use crate::engine::apply::context::ApplyContext;
use crate::engine::apply::download::{FetchOutcome, VersionCheck, download, may_pass};
use crate::engine::apply::received::ReceivedResource;
use crate::engine::apply::task_error::TaskError;
use crate::store::{
    Origin, StoreError, Task, VERSION_MISSED, VersionFailure, VersionKind, VersionResult,
    VersionTask,
};

/// After the usual tries, a version is tried again so often, with that pause: an archive may have it later.
const LONG_TRIES: u32 = 12;
const LONG_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The code of a version whose resource is being fetched.
pub(super) const WAITS: &str = "version-waits";
/// The pause before such a version is tried again.
const WAIT: TimeDelta = TimeDelta::seconds(10);

/// Stores a version. `apply`: whose mirror is the folder of versions; `mirror`: of the resources.
pub(super) async fn store_version(
    apply: &Arc<ApplyContext>,
    mirror: &Arc<Mirror>,
    version: &VersionTask,
) -> Result<VersionResult, StoreError> {
    let paths = version_paths(&version.path, &version.uri, version.at);
    if paths.is_empty() {
        let message = format!("the time {} is no name of a file", version.at);
        return Ok(VersionResult::Failed(final_failure(
            "version-time",
            message,
        )));
    }
    let storage = VersionStorage {
        apply,
        mirror,
        version,
        paths,
        task: task_of(version),
    };
    let candidates = candidates_of(apply, version).await?;
    let stored = storage.store(candidates).await;
    Ok(stored
        .unwrap_or_else(|error| VersionResult::Failed(failure_of(apply, &storage.task, error))))
}

/// One version on its way into the folder of versions.
struct VersionStorage<'a> {
    /// Whose mirror is the folder of versions.
    apply: &'a Arc<ApplyContext>,
    /// That of the resources.
    mirror: &'a Arc<Mirror>,
    version: &'a VersionTask,
    /// Where it may be stored; at least one.
    paths: Vec<MirrorPath>,
    /// The version as a task of its resource.
    task: Task,
}

impl VersionStorage<'_> {
    async fn store(
        &self,
        mut candidates: Vec<(Candidate, VersionCheck)>,
    ) -> Result<VersionResult, TaskError> {
        let Self { apply, version, .. } = *self;
        if self.store_without_request().await? {
            return Ok(VersionResult::Stored);
        }
        if candidates.is_empty() {
            return self.store_without_place().await;
        }
        let hosts = AllowedHosts::new(&apply.source.source.hosts);
        candidates.retain(|(candidate, _)| hosts.allows(candidate.uri.url()));
        let mut last = None;
        for (candidate, check) in candidates {
            let error = match download_as_of(apply, &self.task, &candidate, check).await {
                Ok(FetchOutcome::Fetched(fetched)) => {
                    self.publish_fetched(*fetched).await?;
                    return Ok(VersionResult::Stored);
                }
                Ok(FetchOutcome::Unselected(served)) | Err(TaskError::UnselectedType(served)) => {
                    return Ok(VersionResult::Unwanted(served));
                }
                Ok(FetchOutcome::NotModified) => continue,
                Err(error) => error,
            };
            tracing::debug!(code = error.code(), source = apply.name(), uri = %version.uri, at = %version.at,
                place = %candidate.uri, %error, "version not available there");
            last = Some(error);
        }
        let Some(error) = last else {
            let message = "its places are on hosts that are not among `hosts`".to_owned();
            return Ok(VersionResult::Failed(final_failure(
                "forbidden-host",
                message,
            )));
        };
        let failure = failure_of(apply, &self.task, error);
        if failure.retry_at.is_none() && is_in_mirror(version) {
            // As usual: what the resource's own URI has served.
            if let Ok(true) = self.link().await {
                return Ok(VersionResult::Stored);
            }
        }
        Ok(VersionResult::Failed(failure))
    }

    /// A version that has no place of its own: what the mirror has, or nothing.
    async fn store_without_place(&self) -> Result<VersionResult, TaskError> {
        if self.version.is_pending {
            return Ok(VersionResult::Failed(VersionFailure {
                code: WAITS,
                message: "its resource is being fetched".to_owned(),
                retry_at: Some(clock::now().wall + WAIT),
                counts: false,
            }));
        }
        if is_in_mirror(self.version) && self.link().await? {
            return Ok(VersionResult::Stored);
        }
        let message = "the Source has replaced it, and links to no other place of it".to_owned();
        Ok(VersionResult::Failed(final_failure(
            VERSION_MISSED,
            message,
        )))
    }

    /// Stores a version that is in its place already, or that the mirror has; `false`: it must be fetched.
    async fn store_without_request(&self) -> Result<bool, TaskError> {
        let (versions, paths) = (Arc::clone(&self.apply.mirror), self.paths.clone());
        let hashes = self.version.content.hashes.clone();
        let checking = move || is_stored_file(&versions, &paths, &hashes);
        let is_there = tokio::task::spawn_blocking(checking).await;
        if is_there.map_err(|error| TaskError::of_join(&error))?? {
            return Ok(true);
        }
        Ok(is_proven(self.version) && self.link().await?)
    }

    /// Stores the mirror's file; `false`: it is not there, or not as it is recorded.
    async fn link(&self) -> Result<bool, TaskError> {
        let (versions, mirror) = (Arc::clone(&self.apply.mirror), Arc::clone(self.mirror));
        let (path, hashes) = (self.version.path.clone(), self.version.live_hashes.clone());
        let paths = self.paths.clone();
        let linking = move || link_file(&versions, &mirror, &path, &hashes, &paths);
        let linked = tokio::task::spawn_blocking(linking).await;
        Ok(linked.map_err(|error| TaskError::of_join(&error))??)
    }

    /// Publishes what was fetched, or the mirror's file if that has the same bytes.
    async fn publish_fetched(&self, fetched: ReceivedResource) -> Result<(), TaskError> {
        let version = self.version;
        let is_same = share_digest(&version.live_hashes, &fetched.description.hashes);
        if version.live && is_same && self.link().await? {
            return Ok(());
        }
        let (versions, paths) = (Arc::clone(&self.apply.mirror), self.paths.clone());
        let publishing = tokio::task::spawn_blocking(move || {
            let ReceivedResource { bytes, description } = fetched;
            let file = bytes.into_file(&versions, description.lastmod)?;
            publish_version(&versions, file, &paths)
        });
        let published = publishing.await;
        Ok(published.map_err(|error| TaskError::of_join(&error))??)
    }
}

/// Where a version may be fetched, and what its `Memento-Datetime` must be there.
async fn candidates_of(
    apply: &ApplyContext,
    version: &VersionTask,
) -> Result<Vec<(Candidate, VersionCheck)>, StoreError> {
    let places = plan_version(&version.uri, &expected_of(version), &version.links);
    let check = match version.kind {
        VersionKind::Listed => VersionCheck::Exactly(version.at),
        VersionKind::Announced | VersionKind::TimeMap => VersionCheck::NotInFuture,
    };
    let mementos = places.mementos.into_iter().map(|memento| {
        // It is this version whenever it was modified: an archive may state when the resource itself was.
        let expected = Expected {
            modified: None,
            ..memento.expected
        };
        let memento = Candidate {
            expected,
            ..memento
        };
        (memento, check)
    });
    let mut candidates: Vec<(Candidate, VersionCheck)> = mementos.collect();
    if let Some(timegate) = places.timegate {
        let after = apply.source.store.stored_version_before(version).await?;
        let candidate = Candidate {
            uri: timegate,
            is_own: false,
            expected: expected_of(version),
        };
        // A digest decides by itself.
        let after = after.filter(|_| version.content.hashes.is_empty());
        let at = version.at;
        let check = VersionCheck::AsOf {
            at,
            after,
            asked: at,
        };
        candidates.push((candidate, check));
    }
    Ok(candidates)
}

/// Downloads a version from one candidate. A TimeGate that has only an earlier one is asked again for the end of the second.
async fn download_as_of(
    apply: &ApplyContext,
    task: &Task,
    candidate: &Candidate,
    check: VersionCheck,
) -> Result<FetchOutcome, TaskError> {
    let fetched = download(apply, task, candidate, None, check).await;
    let is_early = matches!(&fetched, Err(TaskError::OtherMemento { code, .. }) if *code == "memento-too-early");
    match check.at_end_of_second().filter(|_| is_early) {
        Some(later) => download(apply, task, candidate, None, later).await,
        None => fetched,
    }
}

/// Whether the mirror's file is recorded as the one of that time.
fn is_in_mirror(version: &VersionTask) -> bool {
    version.live && version.live_at.contains(&Some(version.at))
}

/// Whether the mirror's file is proven to be the version.
fn is_proven(version: &VersionTask) -> bool {
    let file = RecordedFile {
        length: None,
        hashes: &version.live_hashes,
        is_doubted: false,
    };
    version.live && file.compare(&version.content) == ContentMatch::Same
}

/// Whether one of these paths has the version: what a crash has left without a record. Other bytes stay as they are, which is an error.
/// For a blocking thread.
fn is_stored_file(
    versions: &Mirror,
    paths: &[MirrorPath],
    hashes: &[Digest],
) -> Result<bool, MirrorError> {
    let mut found = paths
        .iter()
        .filter_map(|path| Some((path, versions.open_file(path).ok()?)));
    let Some((path, mut file)) = found.next() else {
        return Ok(false);
    };
    let mut verifier = Verifier::new(None, hashes);
    if !hashes.is_empty() {
        let read = verifier.read_all(&mut file, |_| {});
        read.map_err(|error| MirrorError::reading(path.as_str(), &error))?;
        if verifier.finish().is_err() {
            return Err(MirrorError::Exists {
                path: path.to_string(),
            });
        }
    }
    // It may be there because the sync of its folder has failed.
    versions.sync_entry(path).map(|()| true)
}

/// For a blocking thread. The file may be replaced meanwhile: what was linked is compared.
fn link_file(
    versions: &Mirror,
    mirror: &Mirror,
    path: &str,
    hashes: &[Digest],
    paths: &[MirrorPath],
) -> Result<bool, MirrorError> {
    let path = MirrorPath::parse(path)?;
    let file = match versions.stage_file_of(mirror, &path) {
        Ok(file) => file,
        Err(MirrorError::Missing { .. } | MirrorError::Blocked { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut verifier = Verifier::new(None, hashes);
    let is_right = file
        .open()
        .and_then(|mut file| verifier.read_all(&mut file, |_| {}));
    if hashes.is_empty() || is_right.is_err() || verifier.finish().is_err() {
        return Ok(false);
    }
    publish_version(versions, file, paths).map(|()| true)
}

fn expected_of(version: &VersionTask) -> Expected {
    Expected {
        content: version.content.clone(),
        encoding: version.encoding.clone(),
        modified: None,
    }
}

/// The version as a task of its resource, as far as a download is concerned.
pub(super) fn task_of(version: &VersionTask) -> Task {
    Task {
        resource: version.resource,
        revision: 0,
        source: version.source.clone(),
        set: version.set,
        uri: version.uri.clone(),
        authority: version.uri.authority(),
        kind: ChangeKind::Created,
        changed_at: Some(version.at),
        lastmod: Some(version.at),
        content: version.content.clone(),
        encoding: version.encoding.clone(),
        links: version.links.clone(),
        origin: Origin::ChangeList,
        unconfirmed: false,
        is_named: true,
        attempts: version.attempts,
        path: version.path.clone(),
        live: false,
        live_length: None,
        live_type: None,
        live_hashes: Vec::new(),
        live_version: None,
        live_doubted: false,
        has_replaced: false,
        asks: false,
        unread_sets: Vec::new(),
        awaits_since: None,
        was_given_up: false,
        statements: Revision::default(),
        stated: Revision::default(),
    }
}

fn final_failure(code: &'static str, message: String) -> VersionFailure {
    VersionFailure {
        code,
        message,
        retry_at: None,
        counts: true,
    }
}

/// Why a version, or a TimeMap, could not be fetched, and when it is tried again.
pub(super) fn failure_of(apply: &ApplyContext, task: &Task, error: TaskError) -> VersionFailure {
    let has_patience = may_pass(&error) && task.attempts + 1 < LONG_TRIES;
    let failure = error.into_failure(task, &apply.source.client);
    let later = has_patience.then(|| clock::now().wall + LONG_PAUSE);
    VersionFailure {
        code: failure.code,
        message: failure.message,
        retry_at: (!failure.is_given_up).then_some(failure.retry_at).or(later),
        counts: failure.counts,
    }
}

/// Whether a time is in the future, by this machine's clock.
pub(super) fn is_in_future(at: SourceTime) -> bool {
    at > latest_plausible(clock::now().wall)
}

#[cfg(test)]
mod tests {
    use axum::http;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resourcesync::{Algorithm, ContentInfo, Link};
    use resyncd_core::ResourceUri;
    use resyncd_fetch::{FetchError, HttpNetwork};
    use url::Url;

    use super::*;
    use crate::engine::tests::{NAME, TestSource};
    use crate::engine::versions::folder::VersionsFolder;
    use crate::store::{Change, Publication, ResourceId, SetId, StoredVersion, TaskResult};

    /// Redirects each request to this machine.
    struct Redirecting;

    impl HttpNetwork for Redirecting {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            assert_eq!(request.url().host_str(), Some("example.org"));
            let answer = http::Response::builder()
                .status(302)
                .header("location", "http://127.0.0.1:8462/");
            let answer = answer.body(Vec::new()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    /// Answers each request with what a function returns for its path and `Accept-Datetime`: headers and body.
    struct ArchiveSite<F>(F);

    impl<F> HttpNetwork for ArchiveSite<F>
    where
        F: Fn(&str, Option<&str>) -> (Vec<(&'static str, String)>, String) + Send + Sync,
    {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let datetime = request.headers().get("accept-datetime");
            let datetime = datetime.map(|value| value.to_str().unwrap());
            let (headers, body) = (self.0)(request.url().path(), datetime);
            let mut answer = http::Response::builder();
            for (name, value) in headers {
                answer = answer.header(name, value);
            }
            let answer = answer.body(body.into_bytes()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    fn archive<F>(answer: F) -> ArchiveSite<F>
    where
        F: Fn(&str, Option<&str>) -> (Vec<(&'static str, String)>, String) + Send + Sync,
    {
        ArchiveSite(answer)
    }

    struct VersionSite {
        source: TestSource,
        apply: Arc<ApplyContext>,
    }

    impl VersionSite {
        fn from(transport: impl HttpNetwork + 'static) -> Self {
            let url = Url::parse("https://example.org/").unwrap();
            let source = TestSource::new(&url, |client| client.with_network(Arc::new(transport)));
            let versions = source.mirror.root().with_file_name("versions");
            let versions = Arc::new(Mirror::open(&versions).unwrap());
            let apply = ApplyContext::new(Arc::clone(&source.context), versions, true);
            let apply = Arc::new(apply);
            Self { source, apply }
        }

        /// Stores a version: its code where it failed.
        async fn store(&self, task: &VersionTask) -> Result<(), &'static str> {
            let stored = store_version(&self.apply, &self.source.mirror, task).await;
            match stored.unwrap() {
                VersionResult::Stored => Ok(()),
                VersionResult::Failed(failure) => Err(failure.code),
                other => panic!("{other:?}"),
            }
        }

        fn file(&self, task: &VersionTask) -> std::path::PathBuf {
            let paths = version_paths(&task.path, &task.uri, task.at);
            self.apply.mirror.root().join(paths[0].as_str())
        }

        fn bytes(&self, task: &VersionTask) -> String {
            std::fs::read_to_string(self.file(task)).unwrap()
        }
    }

    fn announced(at: &str, rel: &str) -> VersionTask {
        let href = Url::parse(&format!("https://example.org/{rel}")).unwrap();
        VersionTask {
            resource: ResourceId(1),
            at: at.parse().unwrap(),
            kind: VersionKind::Announced,
            uri: ResourceUri::parse("https://example.org/a").unwrap(),
            source: NAME.to_owned(),
            set: SetId(1),
            content: ContentInfo::default(),
            encoding: None,
            links: vec![Link::new(rel, href)],
            attempts: 0,
            path: "example.org/a".to_owned(),
            live: false,
            live_hashes: Vec::new(),
            live_at: [None, None],
            is_pending: false,
        }
    }

    fn digests(bytes: &str) -> Vec<Digest> {
        vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())]
    }

    #[tokio::test]
    async fn stored_version_is_never_replaced_by_other_bytes() {
        let versions = VersionSite::from(archive(|_, _| (Vec::new(), "second".to_owned())));
        let mut task = announced("2013-01-03T18:00:00Z", "memento");
        let file = versions.file(&task);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "first").unwrap();
        // What a crash has left is proven by the digest.
        task.content.hashes = digests("first");
        assert_eq!(versions.store(&task).await, Ok(()));
        task.content.hashes = digests("second");
        assert_eq!(versions.store(&task).await, Err("version-conflict"));
        assert_eq!(versions.bytes(&task), "first");
    }

    #[tokio::test]
    async fn memento_may_have_been_modified_earlier_than_announced() {
        let versions = VersionSite::from(archive(|_, _| {
            let modified = "Wed, 02 Jan 2013 10:00:00 GMT".to_owned();
            (vec![("last-modified", modified)], "first".to_owned())
        }));
        let mut task = announced("2013-01-03T18:00:00Z", "memento");
        task.links[0].modified = Some(task.at);
        assert_eq!(versions.store(&task).await, Ok(()));
        assert_eq!(versions.bytes(&task), "first");
    }

    #[tokio::test]
    async fn timegate_is_asked_for_the_whole_second_of_a_version() {
        // It has the version at half a second past, and what it states has whole seconds.
        let versions = VersionSite::from(archive(|_, asked| {
            let (found, bytes) = match asked.unwrap() {
                "Thu, 03 Jan 2013 18:00:00 GMT" => ("Wed, 02 Jan 2013 18:00:00 GMT", "before"),
                _ => ("Thu, 03 Jan 2013 18:00:00 GMT", "as it was"),
            };
            (
                vec![("memento-datetime", found.to_owned())],
                bytes.to_owned(),
            )
        }));
        let url = Url::parse("https://example.org/").unwrap();
        let store = &versions.source.store;
        let mut task = announced("2013-01-03T18:00:00.5Z", "timegate");
        task.set = store.begin_set(NAME, &url).await.unwrap().id;
        let change = Change {
            kind: ChangeKind::Created,
            ..Change::deletion(task.uri.clone(), Some("2013-01-01".parse().unwrap()))
        };
        versions.source.announce(vec![change]).await;
        let mut before = task.clone();
        before.at = "2013-01-02T18:00:00Z".parse().unwrap();
        let now = clock::now().wall;
        let stored = store.complete_version(now, before, VersionResult::Stored);
        stored.await.unwrap();
        assert_eq!(versions.store(&task).await, Ok(()));
        assert_eq!(versions.bytes(&task), "as it was");
    }

    #[tokio::test]
    async fn timegate_does_not_lead_to_private_addresses() {
        let versions = VersionSite::from(Redirecting);
        let task = |rel: &str, href: &str| VersionTask {
            links: vec![Link::new(rel, Url::parse(href).unwrap())],
            ..announced("2013-01-03T18:00:00Z", rel)
        };
        for (rel, href) in [
            ("timegate", "http://example.org/timegate"),
            ("timegate", "http://127.0.0.1/timegate"),
            ("memento", "http://example.org/1"),
            ("memento", "http://192.168.0.1/1"),
        ] {
            let result = store_version(&versions.apply, &versions.source.mirror, &task(rel, href))
                .await
                .unwrap();
            let VersionResult::Failed(failure) = result else {
                panic!("{href}: {result:?}");
            };
            assert_eq!(
                (failure.code, failure.retry_at),
                ("forbidden-address", None),
                "{href}"
            );
        }
    }

    #[test]
    fn publication_does_not_replace_a_stored_version() {
        let root = tempfile::tempdir().unwrap();
        let mirror = Mirror::open(root.path().join("mirror")).unwrap();
        let folder = VersionsFolder::at(root.path().join("versions"));
        folder.set_opened(Mirror::open(folder.root()).unwrap());
        let path = MirrorPath::parse("example.org/a").unwrap();
        let store = |bytes: &str| {
            let mut staged = mirror.stage().unwrap();
            staged.write(bytes.as_bytes()).unwrap();
            let file = staged.finish(None).unwrap();
            let published = mirror.publish(vec![(file, path.clone())]);
            assert!(published.iter().all(Result::is_ok));
            let mut results = [TaskResult::Published(published_now(bytes))];
            folder.store_published(&mirror, &mut results, clock::now().wall);
            let TaskResult::Published(publication) = &results[0] else {
                unreachable!();
            };
            let [first, _] = &version_paths("example.org/a", &publication.task.uri, time())[..]
            else {
                unreachable!();
            };
            let stored = std::fs::read_to_string(folder.root().join(first.as_str()));
            (stored.unwrap(), publication.stored_version)
        };
        let stored = StoredVersion::Stored(time());
        assert_eq!(store("first"), ("first".to_owned(), stored));
        // An audit fetches the same, or other bytes of the same time.
        assert_eq!(store("first"), ("first".to_owned(), stored));
        let conflicting = StoredVersion::Conflicting(time());
        assert_eq!(store("other"), ("first".to_owned(), conflicting));
    }

    fn time() -> SourceTime {
        "2013-01-03T18:00:00Z".parse().unwrap()
    }

    /// The publication of a resource of that time.
    fn published_now(bytes: &str) -> Publication {
        let version = announced("2013-01-03T18:00:00Z", "up");
        Publication {
            path: version.path.clone(),
            length: bytes.len() as u64,
            media_type: None,
            encoding: None,
            hashes: Vec::new(),
            lastmod: Some(version.at),
            version: None,
            has_new_bytes: true,
            is_patched: false,
            stored_version: StoredVersion::Ignored,
            task: task_of(&version),
        }
    }
}
