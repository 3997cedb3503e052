//! Whether the public URL of the callback leads here: a request through it must arrive at the callback listener.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use super::daemon_client::DaemonClient;
use crate::config::Config;
use crate::http::RejectionCounters;
use crate::status::Status;

/// How long the request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The number of random bytes of the path that is requested.
const RANDOM: usize = 16;
/// The count of requests for callbacks that do not exist.
const UNKNOWN: &str = "unknown-callback";

/// Requests a path below the public URL that nobody else knows. `daemon`: the running one, which counts such requests; without one this
/// process listens in its place. Returns what is right, or what is wrong and what to do about it.
pub(super) async fn leads_here(
    public_url: &Url,
    config: &Config,
    daemon: Option<&DaemonClient>,
) -> Result<String, String> {
    let token = random_token()?;
    let url = public_url.join(&token).map_err(|error| error.to_string())?;
    match daemon {
        Some(daemon) => through_daemon(&url, daemon).await,
        None => through_listener(&url, &token, config.callback.listen).await,
    }
}

/// Whether a request through the public URL arrives at the callback listener of this process. The error is for a person.
pub(super) async fn leads_to_listener(
    public_url: &Url,
    rejections: &RejectionCounters,
) -> Result<(), String> {
    let token = random_token()?;
    let url = public_url.join(&token).map_err(|error| error.to_string())?;
    let counted = || rejections.counts().get(UNKNOWN).copied().unwrap_or(0);
    let before = counted();
    let answer = request(&url).await?;
    match counted() > before {
        true => Ok(()),
        false => Err(elsewhere(&answer)),
    }
}

/// Whether requests to a URL need neither DNS nor a proxy: nobody else can make any.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(domain)) => domain == "localhost" || domain.ends_with(".localhost"),
        None => false,
    }
}

fn random_token() -> Result<String, String> {
    let mut random = [0_u8; RANDOM];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The running daemon counts the request if it arrives.
async fn through_daemon(url: &Url, daemon: &DaemonClient) -> Result<String, String> {
    let counted = async || -> Result<u64, String> {
        let answer = daemon.get("/status").await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status: Status = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        Ok(status.refused.get(UNKNOWN).copied().unwrap_or(0))
    };
    let before = counted().await?;
    let answer = request(url).await?;
    match counted().await? > before {
        true => Ok("leads to the running daemon".to_owned()),
        false => Err(elsewhere(&answer)),
    }
}

/// Listens in place of the daemon, and expects its own answer.
async fn through_listener(url: &Url, token: &str, address: SocketAddr) -> Result<String, String> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| {
        format!("not tried, because callback.listen can't be listened on: {error}")
    })?;
    let expected = token.to_owned();
    let router = Router::new().fallback(async move |uri: Uri| {
        // A proxy may have removed the path of the public URL.
        match uri.path().ends_with(&expected) {
            true => Ok(expected),
            false => Err(StatusCode::NOT_FOUND),
        }
    });
    let stop = CancellationToken::new();
    let serving =
        axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let serving = tokio::spawn(serving.into_future());
    let answer = request(url).await;
    stop.cancel();
    // Its end is not waited for: a proxy may hold the connection open.
    serving.abort();
    let answer = answer?;
    match answer.body == token {
        true => Ok("leads here".to_owned()),
        false => Err(elsewhere(&answer)),
    }
}

/// What was answered.
struct Answer {
    status: u16,
    server: Option<String>,
    body: String,
}

async fn request(url: &Url) -> Result<Answer, String> {
    // reqwest requires a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    let client = client.build().map_err(|error| error.to_string())?;
    let mut response = client.get(url.clone()).send().await.map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        format!(
            "can't be requested from here: {cause}; check its name in the DNS, the reverse proxy and the firewall"
        )
    })?;
    let server = response.headers().get("server");
    let server = server.and_then(|server| server.to_str().ok());
    let (status, server) = (response.status().as_u16(), server.map(str::to_owned));
    // Only a short answer is of interest.
    let chunk = response.chunk().await.ok().flatten().unwrap_or_default();
    let body = chunk.get(..2 * RANDOM + 1).unwrap_or(&chunk);
    Ok(Answer {
        status,
        server,
        body: String::from_utf8_lossy(body).into_owned(),
    })
}

fn elsewhere(answer: &Answer) -> String {
    let server = answer.server.as_deref();
    let server = server.map_or_else(String::new, |server| {
        format!(", from {}", crate::status::one_line(server, 100))
    });
    format!(
        "leads elsewhere (answered {}{server}): the reverse proxy must pass on everything below it to callback.listen",
        answer.status
    )
}
