//! Stores one version: from the mirror where that has it, else from its mementos, else as its TimeGate has it at its time.

use std::sync::Arc;

use chrono::TimeDelta;

use super::folder::{publish_version, version_paths};
use crate::clock;
use crate::engine::apply::context::ApplyContext;
use crate::engine::apply::download::{
    DownloadError, FetchOutcome, VersionCheck, download_version, may_pass,
};
use crate::engine::apply::staged::StagedResource;
use crate::fetch::AllowedHosts;
use crate::mirror::{Mirror, MirrorError};
use crate::mirror_path::MirrorPath;
use crate::protocol::{ChangeKind, Digest, SourceTime, Verifier};
use crate::store::{
    Origin, StoreError, Task, VersionFailure, VersionKind, VersionResult, VersionTask,
};
use crate::sync::{Candidate, Expected, latest_plausible, plan_version};

/// After the usual tries, a version is tried again so often, with that pause: an archive may have it later.
const LONG_TRIES: u32 = 12;
const LONG_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The pause before a version is tried again whose resource is being fetched.
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
    let task = task_of(version);
    match store_without_request(apply, mirror, version, &paths).await {
        Ok(true) => return Ok(VersionResult::Stored),
        Ok(false) => {}
        Err(error) => return Ok(failed(error, &task)),
    }
    let places = plan_version(&version.uri, &expected_of(version), &version.links);
    let hosts = &apply.source.source.hosts;
    let hosts = AllowedHosts::new(hosts);
    let mut candidates: Vec<(Candidate, VersionCheck)> = Vec::new();
    for memento in places.mementos {
        let check = match version.kind {
            VersionKind::Listed => VersionCheck::Exactly(version.at),
            VersionKind::Announced | VersionKind::TimeMap => VersionCheck::NotInFuture,
        };
        candidates.push((memento, check));
    }
    if let Some(timegate) = places.timegate {
        let after = apply.source.store.stored_version_before(version).await?;
        let candidate = Candidate {
            uri: timegate,
            is_own: false,
            expected: Expected {
                modified: None,
                ..expected_of(version)
            },
        };
        // A digest decides by itself.
        let after = after.filter(|_| version.content.hashes.is_empty());
        candidates.push((
            candidate,
            VersionCheck::AsOf {
                at: version.at,
                after,
            },
        ));
    }
    if candidates.is_empty() {
        return Ok(without_place(apply, mirror, version, &paths, &task).await);
    }
    candidates.retain(|(candidate, _)| hosts.allows(candidate.uri.url()));
    let mut last = None;
    for (candidate, check) in candidates {
        let fetched = download_version(apply, &task, &candidate, check).await;
        let error = match fetched {
            Ok(FetchOutcome::Fetched(fetched)) => {
                match publish_fetched(apply, mirror, version, &paths, *fetched).await {
                    Ok(()) => return Ok(VersionResult::Stored),
                    Err(error) => return Ok(failed(error, &task)),
                }
            }
            Ok(FetchOutcome::Unselected(_)) => return Ok(VersionResult::Unwanted),
            Ok(FetchOutcome::NotModified) => continue,
            Err(DownloadError::UnselectedType(_)) => return Ok(VersionResult::Unwanted),
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
    let failure = failure_of(error, &task);
    if failure.retry_at.is_none() && is_in_mirror(version) {
        // As usual: what the resource's own URI has served.
        if let Ok(true) = link(apply, mirror, version, &paths).await {
            return Ok(VersionResult::Stored);
        }
    }
    Ok(VersionResult::Failed(failure))
}

/// A version that has no place of its own: what the mirror has, or nothing.
async fn without_place(
    apply: &Arc<ApplyContext>,
    mirror: &Arc<Mirror>,
    version: &VersionTask,
    paths: &[MirrorPath],
    task: &Task,
) -> VersionResult {
    if version.is_pending {
        return VersionResult::Failed(VersionFailure {
            code: "version-waits",
            message: "its resource is being fetched".to_owned(),
            retry_at: Some(clock::now().wall + WAIT),
            counts: false,
        });
    }
    if is_in_mirror(version) {
        match link(apply, mirror, version, paths).await {
            Ok(true) => return VersionResult::Stored,
            Ok(false) => {}
            Err(error) => return failed(error, task),
        }
    }
    let message = "the Source has replaced it, and links to no other place of it".to_owned();
    VersionResult::Failed(final_failure("version-missed", message))
}

/// Whether the mirror's file is recorded as the one of that time.
fn is_in_mirror(version: &VersionTask) -> bool {
    version.live && version.live_at.contains(&Some(version.at))
}

/// Whether the mirror's file is proven to be the version.
fn is_proven(version: &VersionTask) -> bool {
    let stated = &version.content.hashes;
    version.live && stated.iter().any(|hash| version.live_hashes.contains(hash))
}

/// Stores a version that is in its place already, or that the mirror has; `false`: it must be fetched.
async fn store_without_request(
    apply: &Arc<ApplyContext>,
    mirror: &Arc<Mirror>,
    version: &VersionTask,
    paths: &[MirrorPath],
) -> Result<bool, DownloadError> {
    let (versions, of_check) = (Arc::clone(&apply.mirror), paths.to_vec());
    let checking = tokio::task::spawn_blocking(move || {
        let mut found = of_check
            .iter()
            .filter(|path| versions.open_file(path).is_ok());
        let Some(path) = found.next() else {
            return Ok(false);
        };
        // It may be there because the sync of its folder has failed.
        versions.sync_entry(path).map(|()| true)
    });
    let is_there = checking
        .await
        .map_err(|error| DownloadError::of_join(&error))?;
    if is_there? {
        return Ok(true);
    }
    if !is_proven(version) {
        return Ok(false);
    }
    link(apply, mirror, version, paths).await
}

/// Stores the mirror's file; `false`: it is not there, or not as it is recorded.
async fn link(
    apply: &Arc<ApplyContext>,
    mirror: &Arc<Mirror>,
    version: &VersionTask,
    paths: &[MirrorPath],
) -> Result<bool, DownloadError> {
    let (versions, mirror) = (Arc::clone(&apply.mirror), Arc::clone(mirror));
    let (path, hashes) = (version.path.clone(), version.live_hashes.clone());
    let paths = paths.to_vec();
    let linking =
        tokio::task::spawn_blocking(move || link_file(&versions, &mirror, &path, &hashes, &paths));
    let linked = linking
        .await
        .map_err(|error| DownloadError::of_join(&error))?;
    Ok(linked?)
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

/// Publishes what was fetched, or the mirror's file if that has the same bytes.
async fn publish_fetched(
    apply: &Arc<ApplyContext>,
    mirror: &Arc<Mirror>,
    version: &VersionTask,
    paths: &[MirrorPath],
    fetched: StagedResource,
) -> Result<(), DownloadError> {
    let same = fetched.description.hashes.iter();
    let mut same = same.filter(|hash| version.live_hashes.contains(hash));
    if version.live && same.next().is_some() && link(apply, mirror, version, paths).await? {
        return Ok(());
    }
    let (versions, paths) = (Arc::clone(&apply.mirror), paths.to_vec());
    let publishing = tokio::task::spawn_blocking(move || {
        let StagedResource { bytes, description } = fetched;
        let file = bytes.into_file(&versions, description.lastmod)?;
        publish_version(&versions, file, &paths)
    });
    let published = publishing
        .await
        .map_err(|error| DownloadError::of_join(&error))?;
    Ok(published?)
}

fn expected_of(version: &VersionTask) -> Expected {
    Expected {
        content: version.content.clone(),
        encoding: version.encoding.clone(),
        modified: Some(version.at),
    }
}

/// The version as a task of its resource, as far as a download is concerned.
pub(super) fn task_of(version: &VersionTask) -> Task {
    Task {
        resource: version.resource,
        version: 0,
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
        contradicted: false,
        attempts: version.attempts,
        path: version.path.clone(),
        live: false,
        live_length: None,
        live_hashes: Vec::new(),
        live_version: None,
        live_doubted: false,
        has_replaced: false,
        is_shared: false,
        unread_sets: Vec::new(),
        awaits_since: None,
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

fn failed(error: DownloadError, task: &Task) -> VersionResult {
    VersionResult::Failed(failure_of(error, task))
}

/// Why a version, or a TimeMap, could not be had, and when it is tried again.
pub(super) fn failure_of(error: DownloadError, task: &Task) -> VersionFailure {
    let has_patience = may_pass(&error) && task.attempts + 1 < LONG_TRIES;
    let failure = error.into_failure(task);
    let later = has_patience.then(|| clock::now().wall + LONG_PAUSE);
    VersionFailure {
        code: failure.code,
        message: failure.message,
        retry_at: failure.retry_at.or(later),
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
    use url::Url;

    use super::*;
    use crate::engine::test_source::{NAME, TestSource};
    use crate::fetch::FetchError;
    use crate::fetch::transport::Transport;
    use crate::protocol::{ContentInfo, Link, ResourceUri};
    use crate::store::{ResourceId, SetId};

    /// Redirects each request to this machine.
    struct Redirecting;

    impl Transport for Redirecting {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            assert_eq!(request.url().host_str(), Some("example.org"));
            let answer = http::Response::builder()
                .status(302)
                .header("location", "http://127.0.0.1:8462/");
            let answer = answer.body(Vec::new()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    #[tokio::test]
    async fn timegate_does_not_lead_to_private_addresses() {
        let url = Url::parse("https://example.org/").unwrap();
        let source = TestSource::new(&url, |client| client.with_transport(Arc::new(Redirecting)));
        let versions = source.mirror.root().with_file_name("versions");
        let versions = Arc::new(Mirror::open(&versions).unwrap());
        let apply = Arc::new(ApplyContext::new(
            Arc::clone(&source.context),
            versions,
            true,
        ));
        let task = |rel: &str, href: &str| VersionTask {
            resource: ResourceId(1),
            at: "2013-01-03T18:00:00Z".parse().unwrap(),
            kind: VersionKind::Announced,
            uri: ResourceUri::parse("https://example.org/a").unwrap(),
            source: NAME.to_owned(),
            set: SetId(1),
            content: ContentInfo::default(),
            encoding: None,
            links: vec![Link::new(rel, Url::parse(href).unwrap())],
            attempts: 0,
            path: "example.org/a".to_owned(),
            live: false,
            live_hashes: Vec::new(),
            live_at: [None, None],
            is_pending: false,
        };
        for (rel, href) in [
            ("timegate", "http://example.org/timegate"),
            ("timegate", "http://127.0.0.1/timegate"),
            ("memento", "http://example.org/1"),
            ("memento", "http://192.168.0.1/1"),
        ] {
            let result = store_version(&apply, &source.mirror, &task(rel, href))
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
}
