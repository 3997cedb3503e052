use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::{Request, Response};
use resourcesync::{Capability, Entry, SourceTime};
use resyncd_fetch::{Bounds, FetchError, HttpNetwork, SizeLimit};

use super::*;
use crate::engine::set::list_parts::SnapshotParts;
use crate::engine::set::package_files::PackageFiles;
use crate::engine::set::polled_document::read_document;
use crate::engine::set::state::SetState;
use crate::engine::tests::{Answering, NAME, TestSource};

const LIMIT: Duration = Duration::from_secs(120);

/// A Source whose requests are answered by this transport, and not repeated.
fn source_of(transport: impl HttpNetwork + 'static) -> TestSource {
    let once = Bounds {
        tries: 1,
        first: Duration::ZERO,
        longest: Duration::ZERO,
    };
    TestSource::new(&uri("set"), |client| {
        client
            .with_document_retries(once)
            .with_network(Arc::new(transport))
    })
}

/// A Source that answers as the function says, a set of it, and how many requests it has had.
async fn source(
    answer: impl Fn() -> Option<u16> + Send + Sync + 'static,
) -> (TestSource, SetId, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let source = source_of(Answering(move |_: &Url| {
        count.fetch_add(1, Ordering::SeqCst);
        answer()
    }));
    let set = source.store.begin_set(NAME, &uri("set")).await.unwrap().id;
    (source, set, requests)
}

fn uri(name: &str) -> Url {
    Url::parse(&format!("https://example.org/{name}")).unwrap()
}

#[tokio::test]
async fn answer_counts_for_the_request_that_was_made() {
    let (source, set, requests) = source(|| Some(404)).await;
    let etag = Validators {
        etag: Some("\"1\"".to_owned()),
        last_modified: None,
    };
    let begun = async || {
        let mut ahead = FetchAhead::of(&source.context, set);
        ahead.begin(uri("a"), false).await;
        let early = ahead.take(&uri("a")).unwrap();
        assert!(!ahead.has_begun(&uri("a")));
        early
    };
    let fetched = begun().await.anew().await.unwrap();
    assert_eq!(fetched.unwrap_err().code(), "not-found");
    assert!(begun().await.if_changed(&etag).await.is_none());
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[test]
fn answer_does_not_count_where_another_request_may_succeed_by_now() {
    let limited = FetchError::ThirdPartyLimit {
        host: "example.org:443".to_owned(),
        retry_after: Duration::from_secs(60),
    };
    for (error, counts) in [
        (limited, false),
        (FetchError::Io("no space left on device".to_owned()), false),
        (FetchError::Timeout, false),
        (FetchError::TooLarge(SizeLimit::document(5)), true),
    ] {
        let fetched = Err::<(), _>(EngineError::Fetch {
            uri: uri("a").to_string(),
            error,
        });
        assert_eq!(counting(fetched).is_some(), counts);
    }
}

#[tokio::test]
async fn nothing_is_fetched_ahead_of_a_host_that_is_slowed_down() {
    let (source, set, requests) = source(|| Some(503)).await;
    let mut ahead = FetchAhead::of(&source.context, set);
    ahead.begin(uri("a"), true).await;
    let early = ahead.take(&uri("a")).unwrap();
    assert!(early.anew().await.is_none(), "it is requested again");
    ahead.begin(uri("b"), true).await;
    assert!(!ahead.has_begun(&uri("b")));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn early_request_that_panics_is_none() {
    let (source, set, requests) = source(|| panic!("a test")).await;
    let mut ahead = FetchAhead::of(&source.context, set);
    ahead.begin(uri("a"), true).await;
    let early = ahead.take(&uri("a")).unwrap();
    assert!(early.anew().await.is_none());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn few_documents_are_fetched_ahead_and_to_drop_them_ends_their_requests() {
    let (source, set, requests) = source(|| None).await;
    let users = Arc::strong_count(&source.context);
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let waiting = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(LIMIT, waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}"));
    };
    let mut ahead = FetchAhead::of(&source.context, set);
    for name in ["a", "b", "c"] {
        ahead.begin(uri(name), true).await;
    }
    assert!(ahead.has_begun(&uri("b")) && !ahead.has_begun(&uri("c")));
    let asked = || requests.load(Ordering::SeqCst) == AHEAD;
    until("all have been requested", &asked).await;
    let mut walk = DocumentWalk::of(Capability::ChangeList);
    let next = ["b", "c"].map(|name| Child::from(&Entry::new(uri(name))));
    walk.push(next.to_vec()).unwrap();
    let not_begun = ahead.not_begun(&uri("z"), &mut walk);
    assert_eq!(not_begun.len(), 1);
    assert_eq!(not_begun[0].uri, uri("c"));
    assert!(!ahead.has_begun(&uri("a")));
    // Each request uses the context, and so does what has begun them.
    let one_left = || Arc::strong_count(&source.context) == users + 2;
    until("one request has ended", &one_left).await;
    drop(ahead);
    let none_left = || Arc::strong_count(&source.context) == users;
    until("the other one has ended", &none_left).await;
    assert_eq!(requests.load(Ordering::SeqCst), AHEAD);
}

/// A Resource List Index of three lists with a resource each; notes when each document is requested.
#[derive(Clone, Default)]
struct Index {
    requested: Arc<Mutex<Vec<Requested>>>,
}

/// The name of a document, and when it was requested.
type Requested = (String, DateTime<Utc>);

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;
const AT: &str = "2026-01-01T00:00:00Z";

impl Index {
    fn document(name: &str) -> String {
        let md = format!(r#"<rs:md capability="resourcelist" at="{AT}"/>"#);
        if name == "index" {
            let lists = ["1", "2", "3"].map(|list| {
                let uri = uri(list);
                format!("<sitemap><loc>{uri}</loc></sitemap>")
            });
            let lists = lists.concat();
            format!("<sitemapindex {NAMESPACES}>{md}{lists}</sitemapindex>")
        } else {
            let resource = uri(&format!("r/{name}"));
            let lastmod = "<lastmod>2025-01-01T00:00:00Z</lastmod>";
            format!("<urlset {NAMESPACES}>{md}<url><loc>{resource}</loc>{lastmod}</url></urlset>")
        }
    }

    /// When a document was requested.
    fn requested(&self, name: &str) -> Vec<DateTime<Utc>> {
        let requested = self.requested.lock();
        let of_name = requested.iter().filter(|(of, _)| of == name);
        of_name.map(|(_, at)| *at).collect()
    }
}

impl HttpNetwork for Index {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
        async move {
            let name = request.url().path().trim_start_matches('/').to_owned();
            let body = Self::document(&name);
            self.requested.lock().push((name, clock::now().wall));
            let answer = http::Response::builder().body(body.into_bytes());
            Ok(answer.unwrap().into())
        }
        .boxed()
    }
}

#[tokio::test]
async fn each_list_is_requested_once_and_proves_nothing_of_the_time_after_that() {
    let index = Index::default();
    let source = source_of(index.clone());
    let (store, context) = (&source.store, &source.context);
    let record = store.begin_set(NAME, &uri("set")).await.unwrap();
    let set = record.id;
    let packages = Arc::new(PackageFiles::new(Arc::clone(context), &source.mirror));
    let mut state = SetState::load(Arc::clone(context), packages, record)
        .await
        .unwrap();

    let polled = read_document(context, set, &uri("index")).await;
    let list = polled.unwrap();
    store.begin_parts(set, &uri("index"), None).await.unwrap();
    store.begin_list(set).await.unwrap();
    let at: SourceTime = AT.parse().unwrap();
    let mut parts = SnapshotParts::of(&Capability::ResourceList, &list.read.summary, true);
    let index_uri = uri("index");
    let ingesting = state.ingest_parts(&index_uri, list, at, &mut parts);
    ingesting.await.unwrap();
    assert_eq!(parts.entries, 3);
    for name in ["1", "2", "3"] {
        let requested = index.requested(name);
        assert_eq!(requested.len(), 1, "{name}: {requested:?}");
        let part = store.part(set, &uri(name)).await.unwrap().unwrap();
        let asked_at = part.known.asked_at.unwrap();
        assert!(asked_at <= requested[0], "{name}: {asked_at} {requested:?}");
    }
}
