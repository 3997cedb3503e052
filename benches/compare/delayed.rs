//! A first copy from a Source that is far away: each answer, also each document, comes 20 ms after its request. What counts is how
//! many requests are on their way at once, over several connections of HTTP/1.1 and over one of HTTP/2.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::harness::{Bench, BenchResult, Home, Timed, by_turns, runtime, timed};
use super::resync::ResyncClient;
use super::site::Site;
use super::table::{Goal, Line};

/// Between a request and its answer.
const DELAY: Duration = Duration::from_millis(20);
/// Of a resource, in bytes.
const SIZE: usize = 4096;
/// As nginx allows.
const STREAMS: u32 = 128;

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let resources = bench.size(2_000, 100);
    let what = format!("first copy of {resources} resources of 4 KiB, answers after 20 ms");
    let plain = Site::create(bench, resources, SIZE)?;
    let encrypted = Site::with_scheme(bench, "https", resources, SIZE)?;
    let runtime = runtime()?;
    serve(&runtime, &plain, None)?;
    let mut tls = resyncd_testkit::tls::tls_server();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    serve(&runtime, &encrypted, Some(TlsAcceptor::from(Arc::new(tls))))?;

    let mut http1 = || resyncd(bench, &plain);
    let mut http2 = || resyncd(bench, &encrypted);
    let mut resync = || ResyncClient::new(bench)?.sync(bench, &plain);
    if let Err(missing) = bench.peers.find("resync-sync") {
        let [http1, http2] = by_turns(bench.rounds(), [&mut http1, &mut http2])?;
        let alone = |protocol: &str, ours: Timed| {
            Line::new(format!("{what}, {protocol}"))
                .resyncd(ours)
                .peer(missing)
        };
        return Ok(vec![alone("HTTP/1.1", http1), alone("HTTP/2", http2)]);
    }
    let [http1, http2, resync] = by_turns(bench.rounds(), [&mut http1, &mut http2, &mut resync])?;
    let against_resync = |protocol: &str, ours: Timed, goal| {
        Line::new(format!("{what}, {protocol}"))
            .resyncd(ours)
            .peer(format!("resync-sync, HTTP/1.1: {resync}"))
            .ratio(
                resync.seconds() / ours.seconds(),
                Goal::AtLeast(goal, " times as fast"),
            )
    };
    Ok(vec![
        against_resync("HTTP/1.1, 8 connections", http1, 7.0),
        against_resync("HTTP/2", http2, 50.0),
    ])
}

fn resyncd(bench: &Bench, site: &Site) -> BenchResult<Timed> {
    let home = Home::of_source(bench, &site.capability_list(), "")?;
    let authority = home.path().join("authority.pem");
    std::fs::write(&authority, resyncd_testkit::tls::AUTHORITY)?;
    let mut sync = bench.resyncd(&home, "sync");
    let timed = timed(sync.env("SSL_CERT_FILE", authority))?;
    site.compare(&home.mirror())?;
    Ok(timed)
}

/// Serves a site until the runtime ends: HTTP/2 if it is encrypted, else HTTP/1.1.
fn serve(runtime: &Runtime, site: &Site, tls: Option<TlsAcceptor>) -> BenchResult<()> {
    let listener = runtime.block_on(TcpListener::bind(site.address))?;
    let root = Arc::new(site.root().to_owned());
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_connection(stream, Arc::clone(&root), tls.clone()));
        }
    });
    Ok(())
}

/// What fails of a connection, the client sees.
async fn serve_connection(stream: TcpStream, root: Arc<PathBuf>, tls: Option<TlsAcceptor>) {
    let service = service_fn(|request: Request<Incoming>| {
        let root = Arc::clone(&root);
        async move { Ok::<_, Infallible>(answer(&root, &request).await) }
    });
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = connection.await;
        return;
    };
    if let Ok(stream) = tls.accept(stream).await {
        let mut server = http2::Builder::new(TokioExecutor::new());
        let server = server.max_concurrent_streams(STREAMS);
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }
}

async fn answer(root: &Path, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    tokio::time::sleep(DELAY).await;
    let path = request.uri().path().trim_start_matches('/');
    // From the page cache: a thread of its own would take longer.
    match std::fs::read(root.join(path)) {
        Ok(bytes) => Response::new(Full::new(Bytes::from(bytes))),
        Err(_) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}
