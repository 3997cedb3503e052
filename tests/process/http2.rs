//! A Source that speaks HTTP/2 over TLS: many requests at once on one connection, and fewer while it refuses some. Documents
//! have a connection of their own.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use resyncd::status::{HostStatus, Status};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;

use crate::support::process::{Home, Running, text};
use crate::support::{AUTHORITY, NAME, eventually, files, tls_server};

/// How long a resource takes, so that some are in progress when a connection ends.
const DELAY: Duration = Duration::from_millis(100);

/// The round in which no request waits.
const LAST_ROUND: u64 = u64::MAX;

/// What a server allows.
#[derive(Clone, Copy)]
struct Limits {
    resources: usize,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`.
    streams: u32,
    /// After so many requests it ends a connection.
    requests_per_connection: usize,
    /// Requests for resources beyond so many at once are answered 429.
    at_once: usize,
}

/// The server, for as long as the test runs.
struct Site {
    limits: Limits,
    origin: String,
    /// Whether requests are refused.
    refuses: AtomicBool,
    /// Requests for resources wait for the round after the one in which they arrive.
    round: watch::Sender<u64>,
    connections: AtomicUsize,
    /// Connections that a request has come over.
    used_connections: AtomicUsize,
    ended_connections: AtomicUsize,
    /// Requests for documents.
    documents: AtomicUsize,
    /// Requests for resources.
    in_progress: AtomicUsize,
    peak: AtomicUsize,
    refused: AtomicUsize,
}

impl Site {
    async fn start(limits: Limits) -> Arc<Self> {
        let mut tls = tls_server();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Arc::new(Self {
            limits,
            origin: format!("https://{}", listener.local_addr().unwrap()),
            refuses: AtomicBool::new(true),
            round: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
            used_connections: AtomicUsize::new(0),
            ended_connections: AtomicUsize::new(0),
            documents: AtomicUsize::new(0),
            in_progress: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&site);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = Arc::clone(&serving).serve(acceptor.clone(), stream);
                tokio::spawn(connection);
            }
        });
        site
    }

    /// Serves one connection. One that speaks anything but HTTP/2 fails.
    async fn serve(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        self.connections.fetch_add(1, Ordering::SeqCst);
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        let (requests, enough) = (AtomicUsize::new(0), Notify::new());
        let service = service_fn(|request: Request<Incoming>| {
            let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
            if number == 1 {
                self.used_connections.fetch_add(1, Ordering::SeqCst);
            }
            if number == self.limits.requests_per_connection {
                enough.notify_one();
            }
            let site = Arc::clone(&self);
            async move { Ok::<_, Infallible>(site.answer(request.uri().path()).await) }
        });
        let mut connection = pin!(
            http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(self.limits.streams)
                .serve_connection(TokioIo::new(stream), service)
        );
        tokio::select! {
            _ = connection.as_mut() => return,
            () = enough.notified() => {}
        }
        self.ended_connections.fetch_add(1, Ordering::SeqCst);
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }

    async fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        if path.starts_with("/r/") {
            return self.resource(path).await;
        }
        self.documents.fetch_add(1, Ordering::SeqCst);
        let origin = &self.origin;
        match path {
            "/capabilities.xml" => {
                let list = format!(
                    "<url><loc>{origin}/list.xml</loc><rs:md capability=\"resourcelist\"/></url>"
                );
                ok(urlset("capability=\"capabilitylist\"", &list))
            }
            "/list.xml" => {
                let mut entries = String::new();
                for number in 0..self.limits.resources {
                    let uri = format!("{origin}/r/{number}");
                    write!(
                        entries,
                        "<url><loc>{uri}</loc><lastmod>2026-01-01T00:00:00Z</lastmod></url>"
                    )
                    .unwrap();
                }
                let head = "capability=\"resourcelist\" at=\"2026-01-02T00:00:00Z\"";
                ok(urlset(head, &entries))
            }
            _ => answer(StatusCode::NOT_FOUND, String::new()),
        }
    }

    async fn resource(&self, path: &str) -> Response<Full<Bytes>> {
        let in_progress = self.in_progress.fetch_add(1, Ordering::SeqCst) + 1;
        let _ending = Ending(&self.in_progress);
        self.peak.fetch_max(in_progress, Ordering::SeqCst);
        if in_progress > self.limits.at_once && self.refuses.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return answer(StatusCode::TOO_MANY_REQUESTS, String::new());
        }
        let mut round = self.round.subscribe();
        let arrived_in = *round.borrow();
        let is_next = |&round: &u64| round > arrived_in || round == LAST_ROUND;
        let _ = round.wait_for(is_next).await;
        tokio::time::sleep(DELAY).await;
        ok(path.to_owned())
    }

    /// Answers the requests that wait, if they are as many as the daemon sends at once.
    fn answer_if_full(&self, status: &Status) {
        let in_progress = self.in_progress.load(Ordering::SeqCst) as u64;
        let host = self.host_in(status);
        if host.is_some_and(|host| in_progress >= host.at_once) {
            self.round.send_modify(|round| *round += 1);
        }
    }

    /// Nothing is refused any more.
    fn stop_refusing(&self) {
        self.peak.store(0, Ordering::SeqCst);
        self.refuses.store(false, Ordering::SeqCst);
    }

    /// No request waits any more.
    fn answer_all(&self) {
        self.round.send_replace(LAST_ROUND);
    }

    /// One connection for documents, which has shown the version, and one for resources at a time were enough.
    ///
    /// The pool looks for a connection and begins to open one in two steps: a request between them, at the moment at which another
    /// request has opened one, opens one more, which nothing is sent over.
    fn assert_few_connections(&self) {
        let ended = self.ended_connections.load(Ordering::SeqCst);
        let used = self.used_connections.load(Ordering::SeqCst);
        let unused = self.connections.load(Ordering::SeqCst) - used;
        assert!(used <= ended + 2, "{used} for {ended}");
        assert!(unused <= ended + 1, "{unused} unused for {ended}");
    }

    /// Starts a daemon that follows it.
    fn follow(&self, streams_per_host: usize) -> (Home, Running) {
        let home = Home::new(&format!("{}/capabilities.xml", self.origin), "");
        let text = std::fs::read_to_string(&home.config).unwrap();
        // No request times out during the test.
        let http = format!("[http]\nstreams_per_host = {streams_per_host}\ntimeout = \"1h\"\n");
        std::fs::write(&home.config, text.replace("[http]\n", &http)).unwrap();
        let authority = home.folder().join("authority.pem");
        std::fs::write(&authority, AUTHORITY).unwrap();
        let running = home.run_with([("SSL_CERT_FILE", &authority)]);
        (home, running)
    }

    /// Its part of the status.
    fn host_in<'a>(&self, status: &'a Status) -> Option<&'a HostStatus> {
        let mut hosts = status.hosts.iter();
        hosts.find(|host| host.origin == self.origin)
    }

    /// Waits until all resources are in the mirror. None was given up.
    async fn until_mirrored(&self, home: &Home) {
        let resources = self.limits.resources as u64;
        let has_failed = AtomicBool::new(false);
        home.until("all resources mirrored", |set| {
            has_failed.fetch_or(set.failed > 0, Ordering::SeqCst);
            set.resources == resources && set.pending == 0
        })
        .await;
        assert!(!has_failed.into_inner(), "a resource was given up");
        let mirrored = files(&home.mirror);
        assert_eq!(mirrored.len(), self.limits.resources);
        for (path, bytes) in mirrored {
            assert!(
                path.ends_with(std::str::from_utf8(&bytes).unwrap()),
                "{path}"
            );
        }
    }
}

/// Ends a request, also one that the client cancels.
struct Ending<'a>(&'a AtomicUsize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn urlset(head: &str, entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md {head}/>{entries}</urlset>"
    )
}

fn ok(body: String) -> Response<Full<Bytes>> {
    answer(StatusCode::OK, body)
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_become_fewer_while_the_server_refuses_some_and_more_again() {
    const MOST: u64 = 24;
    const ALLOWED: usize = 12;
    let site = Site::start(Limits {
        resources: 1000,
        streams: 100,
        requests_per_connection: usize::MAX,
        at_once: ALLOWED,
    })
    .await;
    let (home, _running) = site.follow(MOST as usize);
    let what = "no more requests at once than allowed";
    let status = home
        .until_status(what, |status| {
            if site.refused.load(Ordering::SeqCst) == 0 {
                site.answer_if_full(status);
            }
            let in_progress = site.in_progress.load(Ordering::SeqCst) as u64;
            site.host_in(status).is_some_and(|host| {
                let is_slowed = host.slowed.is_some() && host.at_once <= ALLOWED as u64;
                is_slowed && host.requests == in_progress && in_progress <= ALLOWED as u64
            })
        })
        .await;
    let host = site.host_in(&status).unwrap();
    assert_eq!(host.protocol.as_deref(), Some("HTTP/2"));
    assert_eq!(host.most, MOST);
    let slowed = host.slowed.as_ref().unwrap();
    assert_eq!(slowed.code, "http-status");
    assert!(slowed.message.contains("429"), "{slowed:?}");
    let printed = home.run_command(&["status"]).stdout;
    let line = format!("{}: slowed down to {} of {MOST}", site.origin, host.at_once);
    assert!(text(&printed).contains(&line), "{}", text(&printed));
    let refused = site.refused.load(Ordering::SeqCst);
    assert!(site.peak.load(Ordering::SeqCst) > ALLOWED);
    assert!(refused > 0);

    site.stop_refusing();
    home.until_status("as many requests at once as configured", |status| {
        site.answer_if_full(status);
        site.host_in(status)
            .is_some_and(|host| host.slowed.is_none() && host.at_once == MOST)
    })
    .await;
    site.answer_all();
    site.until_mirrored(&home).await;
    assert!(site.peak.load(Ordering::SeqCst) > ALLOWED, "they were used");
    assert_eq!(site.refused.load(Ordering::SeqCst), refused);
    // One for documents, which has shown the version, and one for resources.
    assert_eq!(site.used_connections.load(Ordering::SeqCst), 2);
    site.assert_few_connections();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_replaces_one_that_the_server_ends() {
    let site = Site::start(Limits {
        resources: 600,
        // More requests than that wait for those before them.
        streams: 16,
        requests_per_connection: 100,
        at_once: usize::MAX,
    })
    .await;
    site.answer_all();
    let (home, _running) = site.follow(64);
    site.until_mirrored(&home).await;
    let ended = site.ended_connections.load(Ordering::SeqCst);
    assert!(ended >= 2, "{ended}");
    site.assert_few_connections();
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_is_full_of_resources_delays_no_document() {
    const STREAMS: u32 = 4;
    let site = Site::start(Limits {
        resources: 100,
        streams: STREAMS,
        requests_per_connection: usize::MAX,
        at_once: usize::MAX,
    })
    .await;
    let (home, _running) = site.follow(64);
    home.until_status("requests wait for a stream", |status| {
        let is_full = site.in_progress.load(Ordering::SeqCst) == STREAMS as usize;
        let host = site.host_in(status);
        is_full && host.is_some_and(|host| host.requests > STREAMS.into())
    })
    .await;
    let before = site.documents.load(Ordering::SeqCst);
    home.operator.poll(NAME).await;
    eventually("a document is requested", None, async || {
        let documents = site.documents.load(Ordering::SeqCst);
        let is_more = documents > before;
        is_more.then_some(()).ok_or(documents.to_string())
    })
    .await;
    site.answer_all();
    site.until_mirrored(&home).await;
}
