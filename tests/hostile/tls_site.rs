//! A server behind https that asks for a certificate of the client, and notes what it received.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::support::asking_tls_server;

/// What a request had.
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) has_certificate: bool,
    pub(crate) version: Version,
}

/// The server, for as long as the test runs. `/to?URL` redirects to the URL; everything else is there.
pub(crate) struct TlsSite {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl TlsSite {
    /// One that speaks HTTP/1.1.
    pub(crate) async fn start() -> Self {
        Self::offering(&[]).await
    }

    /// One that offers these protocols in the TLS handshake (ALPN): `h2` is HTTP/2.
    pub(crate) async fn offering(protocols: &[&str]) -> Self {
        let mut tls = asking_tls_server();
        let protocols = protocols.iter();
        tls.alpn_protocols = protocols.map(|it| it.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, Arc::clone(&noted)));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("https://{}{path}", self.address)).unwrap()
    }

    /// What was received since the last time.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, seen: Arc<Mutex<Vec<Seen>>>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let connection = stream.get_ref().1;
    let has_certificate = connection.peer_certificates().is_some();
    let is_http2 = connection.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        let target = request
            .uri()
            .query()
            .filter(|_| request.uri().path() == "/to");
        let mut answer = Response::new(Full::new(Bytes::from("here")));
        if let Some(target) = target {
            *answer.status_mut() = hyper::StatusCode::FOUND;
            answer
                .headers_mut()
                .insert("location", target.parse().unwrap());
        }
        seen.lock().unwrap().push(Seen {
            path: request.uri().path().to_owned(),
            headers: request.headers().clone(),
            has_certificate,
            version: request.version(),
        });
        async move { Ok::<_, Infallible>(answer) }
    });
    let stream = TokioIo::new(stream);
    let _ = if is_http2 {
        let builder = http2::Builder::new(TokioExecutor::new());
        builder.serve_connection(stream, service).await
    } else {
        let builder = http1::Builder::new();
        builder.serve_connection(stream, service).await
    };
}
