//! A server of any documents, and a daemon that treats its address as public.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use resyncd::cli::Daemon;
use resyncd::config::{self, Config};
use resyncd::status::SetStatus;
use resyncd_fetch::{Client, HttpSettings};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::support::{NAME, Operator, eventually, tls_server};

/// The address that counts as public; all others of this machine are private.
pub(crate) const PUBLIC: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The namespace declarations of documents that a test writes by hand.
pub(crate) const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// A document of a capability with these entries.
pub(crate) fn urlset(capability: &str, more: &str, entries: &str) -> String {
    format!(
        r#"<urlset {NAMESPACES}>{more}<rs:md capability="{capability}" at="2024-01-01T00:00:00Z" from="2024-01-01T00:00:00Z"/>{entries}</urlset>"#
    )
}

/// An entry with an unescaped `loc` and more elements.
pub(crate) fn entry(loc: &str, more: &str) -> String {
    format!("<url><loc>{loc}</loc>{more}</url>")
}

/// The number in a path such as `/set/7/list.xml`.
pub(crate) fn number(path: &str) -> usize {
    path.split('/').nth(2).unwrap().parse().unwrap()
}

pub(crate) fn ok(body: impl Into<Body>) -> Response {
    Response::new(body.into())
}

pub(crate) fn status(code: u16) -> Response {
    let mut response = ok("");
    *response.status_mut() = code.try_into().unwrap();
    response
}

pub(crate) fn redirect(code: u16, to: &str) -> Response {
    let mut response = status(code);
    let to = HeaderValue::from_bytes(to.as_bytes()).unwrap();
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// Serves until it is dropped.
pub(crate) struct Site {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Site {
    /// Answers every request by a function of the path and the headers; `answers` makes the function for the address.
    pub(crate) async fn start<A>(host: Ipv4Addr, answers: impl FnOnce(SocketAddr) -> A) -> Self
    where
        A: Fn(&str, &HeaderMap) -> Response + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answers(address));
        let app = Router::new().fallback(move |request: Request| {
            let response = answer(request.uri().path(), request.headers());
            async { response }
        });
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, server }
    }

    /// A site of one set. `list` makes the entries of its Resource List for its base; `resource` answers `/r/N`.
    pub(crate) async fn of_list(
        host: Ipv4Addr,
        list: impl FnOnce(&str) -> String,
        resource: impl Fn(usize) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start(host, |address| {
            let base = format!("http://{address}");
            let list = urlset("resourcelist", "", &list(&base));
            let description = urlset(
                "description",
                "",
                &entry(
                    &format!("{base}/caps.xml"),
                    r#"<rs:md capability="capabilitylist"/>"#,
                ),
            );
            let caps = urlset(
                "capabilitylist",
                "",
                &entry(
                    &format!("{base}/list.xml"),
                    r#"<rs:md capability="resourcelist"/>"#,
                ),
            );
            move |path: &str, _: &_| match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(caps.clone()),
                "/list.xml" => ok(list.clone()),
                path if path.starts_with("/r/") => resource(number(path)),
                _ => status(404),
            }
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The configuration of a daemon that may not connect to private addresses.
pub(crate) fn configuration(folder: &TempDir, url: Url) -> Config {
    let source = config::Source::new(NAME, url, folder.path().join("mirror"));
    let mut config = Config::new(folder.path().join("state"), vec![source]);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.callback.listen = any_port;
    config.callback.public_url = Url::parse("http://127.0.0.1:0/hooks/").ok();
    config.status.listen = any_port;
    config
}

/// A client of that configuration that treats [`PUBLIC`] as public.
pub(crate) fn guarded_client(http: &HttpSettings) -> Client {
    assert!(!http.allow_private_addresses);
    Client::with_public(http, &[IpAddr::V4(PUBLIC)], resyncd::clock::now).unwrap()
}

/// A daemon that treats only [`PUBLIC`] as public.
pub(crate) struct GuardedDaemon {
    pub(crate) operator: Operator,
    pub(crate) config: Config,
    _daemon: Daemon,
    _folder: TempDir,
}

impl GuardedDaemon {
    pub(crate) async fn follow(url: Url) -> Self {
        Self::follow_with(url, |_| {}).await
    }

    /// The same; `change` may alter the configuration of the Source.
    pub(crate) async fn follow_with(url: Url, change: impl FnOnce(&mut config::Source)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = configuration(&folder, url);
        change(&mut config.sources[0]);
        let client = guarded_client(&config.http);
        let daemon = Daemon::start_with(config.clone(), client).await.unwrap();
        Self {
            operator: Operator::new(daemon.status),
            config,
            _daemon: daemon,
            _folder: folder,
        }
    }

    /// Waits until the status of the sets satisfies `wanted`.
    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&[SetStatus]) -> bool,
    ) -> Vec<SetStatus> {
        eventually(what, None, async || {
            let sources = self.operator.status().await.sources;
            let sets: Vec<SetStatus> = sources.iter().flat_map(|s| s.sets.clone()).collect();
            if wanted(&sets) {
                Ok(sets)
            } else {
                Err(format!("{sources:#?}"))
            }
        })
        .await
    }
}

/// Serves what another server has without TLS behind https, for as long as the test runs.
pub(crate) async fn serve_behind_tls(listener: TcpListener, plain: SocketAddr) {
    let acceptor = TlsAcceptor::from(Arc::new(tls_server()));
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let mut stream = acceptor.accept(stream).await?;
            let mut server = TcpStream::connect(plain).await?;
            copy_bidirectional(&mut stream, &mut server).await
        });
    }
}
