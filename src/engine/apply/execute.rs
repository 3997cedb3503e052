//! Executes one task, up to the point where the result becomes visible.

use std::sync::Arc;

use chrono::TimeDelta;
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{ErrorClass, ServedVersion};
use resyncd_fetch::{AllowedHosts, FetchError};
use resyncd_mirror::{Mirror, MirrorPath};

use super::adoption::{Adopted, adopt};
use super::candidates;
use super::context::ApplyContext;
use super::download::{FetchOutcome, is_linked};
use super::received::ReceivedResource;
use super::task_error::TaskError;
use crate::clock;
use crate::engine::restarts::{Panicked, catch_panic};
use crate::store::{SourceAnswer, Task, TaskFailure};

/// How long a deletion waits for a set that was never read completely.
const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);

/// The result of a task before it is published.
pub(super) enum TaskOutcome {
    /// The bytes, received and verified.
    Fetched(Box<ReceivedResource>),
    /// The file has the announced content already; only its time is set.
    Same { lastmod: Option<SourceTime> },
    /// The file was in its place already, and not in the database.
    Adopted(Adopted),
    /// The file is to be removed.
    Remove,
    /// A deletion of a resource that the Source still serves: it was asked, because another set names the resource, or only an untrusted
    /// sender has stated the deletion.
    Served {
        /// Whether it serves what the mirror has, as far as that is known.
        is_same: bool,
    },
    /// It is served in a type that the configuration does not select.
    Unselected {
        /// That type.
        served: String,
    },
    /// It could not be executed.
    Failed(TaskFailure),
}

/// Executes a task. A panic fails the one task, no more.
pub(super) async fn execute(context: &Arc<ApplyContext>, task: &Task) -> TaskOutcome {
    let executed = match catch_panic(execute_unguarded(context, task)).await {
        Ok(executed) => executed,
        Err(Panicked) => Err(context.failure(task, TaskError::Panicked)),
    };
    executed.unwrap_or_else(TaskOutcome::Failed)
}

async fn execute_unguarded(
    context: &Arc<ApplyContext>,
    task: &Task,
) -> Result<TaskOutcome, TaskFailure> {
    let mirror = &context.mirror;
    if task.kind == ChangeKind::Deleted {
        return if task.origin.is_of_person() {
            Ok(TaskOutcome::Remove)
        } else if task.asks || task.unconfirmed {
            confirm_removal(context, task).await
        } else {
            remove_unless_awaited(context, task).await
        };
    }
    if let Some(stated) = unselected_type(context, task)
        && !is_linked(context, task).await
    {
        return Ok(TaskOutcome::Unselected { served: stated });
    }
    // What only a hub states of the bytes proves nothing of those of the Source.
    if !task.unconfirmed
        && !context.was_empty
        && let Some(adopted) = adopt(mirror, task).await
    {
        return Ok(TaskOutcome::Adopted(adopted));
    }
    let recorded = task.recorded_file();
    let is_proven = recorded.is_some_and(|file| file.is_proven(&task.content));
    let by_digest = is_proven && !task.unconfirmed;
    let mut known = known_version(task);
    if by_digest || known.is_some() {
        let in_place = is_in_place(mirror, task).await;
        if by_digest && in_place {
            let lastmod = task.lastmod.or(task.changed_at);
            return Ok(TaskOutcome::Same { lastmod });
        }
        known = known.filter(|_| in_place);
    }
    match candidates::fetch(context, task, known.as_ref()).await {
        Ok(FetchOutcome::Fetched(fetched)) => Ok(TaskOutcome::Fetched(fetched)),
        Ok(FetchOutcome::NotModified) => Ok(TaskOutcome::Same {
            lastmod: task.lastmod,
        }),
        Ok(FetchOutcome::Unselected(served)) => Ok(TaskOutcome::Unselected { served }),
        Err(failure) => {
            if task.unconfirmed
                && failure.is_given_up
                && failure.answer == Some(SourceAnswer::Absent)
            {
                candidates::report_contradiction(context, task, &failure.message).await;
            }
            Err(failure)
        }
    }
}

/// The stated type of a task's resource, if it is not selected any more.
fn unselected_type(context: &ApplyContext, task: &Task) -> Option<String> {
    let stated = task.content.media_type.as_deref();
    let selection = context.source.source.filter.selection();
    let unselected = stated.filter(|_| !selection.wants_type(stated));
    unselected.map(str::to_owned)
}

/// A resource may be in another set that was never read completely: then what the Source serves stays until that set is read,
/// which decides; but not for ever, because such a set may never be readable.
async fn remove_unless_awaited(
    context: &ApplyContext,
    task: &Task,
) -> Result<TaskOutcome, TaskFailure> {
    let has_waited = |since| clock::now().wall - since >= LONGEST_WAIT;
    let mut unread = task.unread_sets.iter();
    let awaited = unread.find(|set| context.source.source.wants_set(set));
    let Some(set) = awaited.filter(|_| !task.awaits_since.is_some_and(has_waited)) else {
        return Ok(TaskOutcome::Remove);
    };
    match ask(context, task).await {
        Err(error) if error.is_absent() => Ok(TaskOutcome::Remove),
        // Any other answer, or none, does not state that the resource is gone.
        _ => Err(context.failure(task, TaskError::AwaitsSet(set.clone()))),
    }
}

/// Asks the Source for a resource that is to be deleted; returns whether it serves what the mirror has.
async fn ask(context: &ApplyContext, task: &Task) -> Result<bool, FetchError> {
    let source = &context.source;
    let hosts = AllowedHosts::new(&source.source.hosts);
    let known = task.live_version.as_ref();
    let known = known.filter(|_| task.live && !task.live_doubted);
    let client = context.client_of(task);
    let served = client.get_content(&task.uri, &hosts, None, known).await?;
    Ok(served.is_none())
}

/// A resource that something else states to exist is removed only if the Source serves it no longer; so is one whose deletion only a hub has
/// stated. The Source may be behind its own notification: it is asked some times.
async fn confirm_removal(context: &ApplyContext, task: &Task) -> Result<TaskOutcome, TaskFailure> {
    let is_same = match ask(context, task).await {
        Ok(is_same) => is_same,
        Err(error) if error.is_absent() => return Ok(TaskOutcome::Remove),
        // A server may hide in this way that there is none.
        Err(error) if task.unconfirmed || error.class() == ErrorClass::Retry => {
            return Err(context.failure(task, error.into()));
        }
        Err(_) => {
            let is_same = task.live && !task.live_doubted;
            return Ok(TaskOutcome::Served { is_same });
        }
    };
    if task.unconfirmed {
        let failure = context.failure(task, TaskError::StillServed);
        if !failure.is_given_up {
            return Err(failure);
        }
        candidates::report_contradiction(context, task, &failure.message).await;
    }
    Ok(TaskOutcome::Served { is_same })
}

/// The version for a conditional request; `None` where the answer that it is not modified would not prove that the file is what is
/// announced.
fn known_version(task: &Task) -> Option<ServedVersion> {
    let recorded = task.recorded_file();
    let may_be_unmodified = recorded.is_some_and(|file| file.may_be_unmodified(&task.content));
    let known = task.live_version.as_ref();
    known.filter(|_| may_be_unmodified).cloned()
}

/// Whether the file is still there, and as long as it was. It is not hashed: where it may have been replaced without a record, it
/// is in doubt, and not compared at all.
async fn is_in_place(mirror: &Arc<Mirror>, task: &Task) -> bool {
    let (mirror, path, length) = (Arc::clone(mirror), task.path.clone(), task.live_length);
    let reading = tokio::task::spawn_blocking(move || {
        let path = MirrorPath::parse(&path).ok()?;
        let found = mirror.open_file(&path).ok()?.metadata().ok()?;
        Some(found.length)
    });
    reading
        .await
        .ok()
        .flatten()
        .is_some_and(|found| Some(found) == length)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{BoxFuture, FutureExt};
    use parking_lot::Mutex;
    use reqwest::{Request, Response};
    use resourcesync::{Algorithm, ContentInfo, Digest};
    use resyncd_core::ResourceUri;
    use resyncd_fetch::{Credentials, FetchError, HttpNetwork};
    use url::Url;

    use super::*;
    use crate::clock;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::{Change, TasksInProgress};

    /// Counts requests, and fails each.
    #[derive(Default)]
    struct FailingRequests(AtomicUsize);

    impl HttpNetwork for FailingRequests {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Err(FetchError::Timeout)).boxed()
        }
    }

    #[tokio::test]
    async fn no_file_is_adopted_where_the_mirror_had_none() {
        let url = Url::parse("https://example.org/").unwrap();
        let network = Arc::new(FailingRequests::default());
        let of_client = Arc::clone(&network);
        let source = TestSource::new(&url, |client| client.with_network(of_client));
        let uri = ResourceUri::parse("https://example.org/a").unwrap();
        let created = Change {
            kind: ChangeKind::Created,
            content: ContentInfo {
                hashes: vec![Digest::of(Algorithm::Sha256, b"bytes")],
                ..ContentInfo::default()
            },
            ..Change::deletion(uri, None)
        };
        source.announce(vec![created]).await;
        let now = clock::now().wall;
        let due = source
            .store
            .due_tasks(NAME, now, 1, TasksInProgress::default());
        let task = due.await.unwrap().tasks.remove(0);
        let path = source.mirror.root().join(&task.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "bytes").unwrap();
        for (was_empty, requests) in [(false, 0), (true, 1)] {
            let (of_source, mirror) = (Arc::clone(&source.context), Arc::clone(&source.mirror));
            let context = Arc::new(ApplyContext::new(of_source, mirror, was_empty));
            let outcome = execute(&context, &task).await;
            let is_adopted = matches!(outcome, TaskOutcome::Adopted(_));
            assert_eq!(is_adopted, !was_empty);
            assert_eq!(network.0.load(Ordering::SeqCst), requests);
        }
    }

    /// Answers that there is nothing, and notes which requests had credentials.
    #[derive(Default)]
    struct NotedCredentials(Mutex<Vec<bool>>);

    impl HttpNetwork for NotedCredentials {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let has_any = request.headers().contains_key("authorization");
            self.0.lock().push(has_any);
            let response = axum::http::Response::builder().status(403).body(Vec::new());
            std::future::ready(Ok(response.unwrap().into())).boxed()
        }
    }

    /// What a sender has named that may not speak for the Source, before the operator has added the credentials.
    #[tokio::test]
    async fn credentials_are_not_sent_for_what_no_document_of_the_source_names() {
        let url = Url::parse("https://me:secret@example.org/").unwrap();
        let network = Arc::new(NotedCredentials::default());
        let of_client = Arc::clone(&network);
        let mut credentials = Credentials::default();
        let url = credentials.extract(url);
        let mut source = TestSource::new(&url, |client| client.with_network(of_client));
        let context = Arc::get_mut(&mut source.context).unwrap();
        context.client = context.client.with_credentials(&credentials);
        let change = |name: &str, unconfirmed| Change {
            kind: ChangeKind::Created,
            unconfirmed,
            ..Change::deletion(ResourceUri::parse(name).unwrap(), None)
        };
        let (claimed, listed) = ("https://example.org/admin", "https://example.org/a");
        for (name, unconfirmed, expected) in [
            (claimed, true, false),
            (claimed, true, false),
            (claimed, false, true),
            (claimed, true, true),
            (listed, false, true),
            (listed, true, true),
        ] {
            source.announce(vec![change(name, unconfirmed)]).await;
            let (now, none) = (clock::now().wall, TasksInProgress::default());
            let due = source.store.due_tasks(NAME, now, 9, none).await;
            let mut tasks = due.unwrap().tasks.into_iter();
            let task = tasks.find(|task| task.uri.as_str() == name).unwrap();
            let (of_source, mirror) = (Arc::clone(&source.context), Arc::clone(&source.mirror));
            let context = Arc::new(ApplyContext::new(of_source, mirror, false));
            for kind in [ChangeKind::Created, ChangeKind::Deleted] {
                let task = Task {
                    kind,
                    unconfirmed: true,
                    ..task.clone()
                };
                execute(&context, &task).await;
                let found = std::mem::take(&mut *network.0.lock());
                assert_eq!(found, [expected], "{name}, {kind:?}, {unconfirmed}");
            }
        }
    }

    /// A Source that answers every request with that status, and the task of one resource that it has announced.
    async fn answering(status: u16) -> (TestSource, Task) {
        let url = Url::parse("https://example.org/").unwrap();
        let network = Arc::new(Answering(move |_: &Url| Some(status)));
        let source = TestSource::new(&url, |client| client.with_network(network));
        let created = Change {
            kind: ChangeKind::Created,
            ..Change::deletion(ResourceUri::parse("https://example.org/a").unwrap(), None)
        };
        source.announce(vec![created]).await;
        let (now, none) = (clock::now().wall, TasksInProgress::default());
        let due = source.store.due_tasks(NAME, now, 1, none).await;
        (source, due.unwrap().tasks.remove(0))
    }

    async fn outcome(source: &TestSource, task: &Task) -> TaskOutcome {
        let (of_source, mirror) = (Arc::clone(&source.context), Arc::clone(&source.mirror));
        execute(&Arc::new(ApplyContext::new(of_source, mirror, false)), task).await
    }

    #[tokio::test]
    async fn resource_that_the_mirror_does_not_have_is_not_the_same() {
        let (source, task) = answering(403).await;
        for (live, live_doubted, expected) in [
            (false, false, false),
            (true, false, true),
            (true, true, false),
        ] {
            let shared = Task {
                kind: ChangeKind::Deleted,
                asks: true,
                live,
                live_doubted,
                ..task.clone()
            };
            let TaskOutcome::Served { is_same } = outcome(&source, &shared).await else {
                panic!("it has not left the set");
            };
            assert_eq!(is_same, expected, "{live}, {live_doubted}");
        }
    }

    /// A package states a deletion that is older than what the Source has served since.
    #[tokio::test]
    async fn older_deletion_removes_only_what_the_source_does_not_serve() {
        for (status, is_removed) in [(200, false), (404, true)] {
            let (source, task) = answering(status).await;
            let older = Task {
                kind: ChangeKind::Deleted,
                asks: true,
                live: true,
                ..task
            };
            match outcome(&source, &older).await {
                TaskOutcome::Remove => assert!(is_removed, "{status}"),
                TaskOutcome::Served { .. } => assert!(!is_removed, "{status}"),
                _ => panic!("{status}"),
            }
        }
    }
}
