//! For tests: a Source with an empty database and an empty mirror. Nothing follows it but what a test starts.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::{Request, Response};
use resyncd_fetch::{Client, FetchError, HttpNetwork};
use resyncd_mirror::{DiskCall, DiskObserver, Mirror};
use url::Url;

use super::Engine;
use super::context::SourceContext;
use crate::clock;
use crate::config::{Config, Source};
use crate::store::{Change, ChangeBatch, Origin, Store};

/// The name of the Source.
pub(super) const NAME: &str = "source";

pub(super) struct TestSource {
    pub(super) store: Arc<Store>,
    pub(super) context: Arc<SourceContext>,
    pub(super) mirror: Arc<Mirror>,
    pub(super) disk: Arc<TestDisk>,
    #[expect(dead_code, reason = "dropped last")]
    folder: tempfile::TempDir,
}

impl TestSource {
    /// A Source at that URL; `client` changes the client for its requests.
    pub(super) fn new(url: &Url, client: impl FnOnce(Client) -> Client) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_hooked(folder.path()).unwrap();
        let source = Source::new(NAME, url.clone(), folder.path().join("mirror"));
        let config = Config::new(folder.path(), vec![source]);
        let client = client(Client::new(&config.http, crate::clock::now).unwrap());
        let engine = Engine::new(&config, Arc::clone(&store), &client, false);
        let context = engine.sources.contexts().remove(0);
        // Its documents, which no test reads, are those of ResourceSync.
        context.client.disregard_robots();
        let disk = Arc::new(TestDisk::default());
        let mirror = Mirror::open_observed(&context.source.mirror, None, Arc::clone(&disk) as _);
        Self {
            store,
            context,
            mirror: Arc::new(mirror.unwrap()),
            disk,
            folder,
        }
    }

    /// Closes the mirror, so that others can open it; returns its folder.
    pub(super) fn close_mirror(&mut self) -> PathBuf {
        let root = self.mirror.root().to_owned();
        let elsewhere = root.with_file_name("unused");
        self.mirror = Arc::new(Mirror::open(&elsewhere).unwrap());
        root
    }

    /// Announces changes in a set, the same one each time; each must become a task.
    pub(super) async fn announce(&self, changes: Vec<Change>) {
        let url = &self.context.source.url;
        let set = self.store.begin_set(NAME, url).await.unwrap().id;
        let number = changes.len() as u64;
        let applied = self.store.ingest(ChangeBatch {
            set,
            source: NAME.to_owned(),
            origin: Origin::Notification,
            now: clock::now().wall,
            begins: true,
            changes,
            end: None,
        });
        assert_eq!(applied.await.unwrap().tasks, number);
    }
}

type IsFatal = Box<dyn Fn(DiskCall, &[u8]) -> bool + Send>;

/// The disk of the mirror, which may panic.
#[derive(Default)]
pub(super) struct TestDisk(Mutex<Option<IsFatal>>);

impl TestDisk {
    /// Lets calls panic.
    pub(super) fn panic_at(&self, is_fatal: impl Fn(DiskCall, &[u8]) -> bool + Send + 'static) {
        *self.0.lock() = Some(Box::new(is_fatal));
    }
}

impl DiskObserver for TestDisk {
    fn before(&self, call: DiskCall, of: &[u8]) -> rustix::io::Result<()> {
        let is_fatal = self.0.lock().as_ref().is_some_and(|it| it(call, of));
        assert!(!is_fatal, "a test");
        Ok(())
    }
}

/// Answers each request with the status that a function returns for its URL, and with no bytes. `None`: never. The function may
/// panic.
pub(super) struct Answering<F>(pub(super) F);

impl<F: Fn(&Url) -> Option<u16> + Send + Sync> HttpNetwork for Answering<F> {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
        async move {
            match (self.0)(request.url()) {
                Some(status) => {
                    let answer = http::Response::builder().status(status);
                    Ok(answer.body(Vec::new()).unwrap().into())
                }
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}
