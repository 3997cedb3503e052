//! Whether the public URL of the callback leads here: a request through it must arrive at the callback listener.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use resourcesync::uri::{parse_uri, resolve_reference};
use resyncd_fetch::{AnswerStart, Client, HttpSettings, Proxies, is_own_machine};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::daemon_client::{DaemonClient, reachable};
use crate::config::Config;
use crate::http::{PROBE, RejectionCounters};
use crate::random::hex_name;

/// How long the request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The number of random bytes of the path that is requested.
const RANDOM: usize = 16;
/// The length of that path, in bytes.
const MOST_TOKEN: usize = PROBE.len() + 2 * RANDOM;

/// Whether the public URL leads here. `daemon`: the running one, which counts such requests; without one this process listens in its
/// place. Returns what is right, or what is wrong and what to do about it.
pub(super) async fn leads_here(
    public_url: &Url,
    config: &Config,
    daemon: Option<&DaemonClient>,
) -> Result<&'static str, String> {
    match daemon {
        Some(daemon) => {
            leads_to_daemon(public_url, &config.http, daemon).await?;
            Ok("leads to the running daemon")
        }
        None => {
            leads_to_this_process(public_url, config).await?;
            Ok("leads here")
        }
    }
}

/// Whether the callback listener of the running daemon is at that address. The error is for a person.
pub(super) async fn is_callback_listener(
    address: SocketAddr,
    config: &Config,
    daemon: &DaemonClient,
) -> Result<(), String> {
    let path = config.callback.public_url.as_ref().map_or("/", Url::path);
    let url = parse_uri(&format!("http://{}{path}", reachable(address)));
    let url = url.map_err(|error| error.to_string())?;
    // It is on this machine.
    let http = HttpSettings {
        proxies: Proxies::default(),
        ..config.http.clone()
    };
    leads_to_daemon(&url, &http, daemon).await
}

/// Whether a request through the public URL arrives at the callback listener of this process. The error is for a person.
pub(super) async fn leads_to_listener(
    public_url: &Url,
    http: &HttpSettings,
    rejections: &RejectionCounters,
) -> Result<(), String> {
    let (token, answer) = probe(public_url, http).await?;
    arrived(rejections.has_probe(&token), &answer)
}

/// Whether requests to a URL need neither DNS nor a proxy: nobody else can make any.
pub(super) fn is_loopback(url: &Url) -> bool {
    url.host().is_some_and(|host| is_own_machine(&host))
}

/// Requests a path below a URL that nobody else knows; returns its token, and the answer.
async fn probe(base: &Url, http: &HttpSettings) -> Result<(String, AnswerStart), String> {
    let random = hex_name(RANDOM).map_err(|error| error.to_string())?;
    let token = format!("{PROBE}{random}");
    let url = resolve_reference(base, &token).map_err(|error| error.to_string())?;
    let answer = request(&url, http).await?;
    Ok((token, answer))
}

/// The running daemon knows whether the request has arrived.
async fn leads_to_daemon(
    base: &Url,
    http: &HttpSettings,
    daemon: &DaemonClient,
) -> Result<(), String> {
    let (token, answer) = probe(base, http).await?;
    let has_arrived = daemon.has_probe(&token).await;
    arrived(has_arrived.map_err(|error| error.to_string())?, &answer)
}

/// Listens in place of the daemon, and expects its own answer: the token.
async fn leads_to_this_process(public_url: &Url, config: &Config) -> Result<(), String> {
    let listener = TcpListener::bind(config.callback.listen).await;
    let listener = listener.map_err(|error| {
        format!("not tried, because callback.listen can't be listened on: {error}")
    })?;
    let router = Router::new().fallback(async |uri: Uri| {
        // A proxy may have removed the path of the public URL.
        let token = uri.path().rsplit('/').next().unwrap_or_default();
        if token.starts_with(PROBE) && token.len() == MOST_TOKEN {
            Ok(token.to_owned())
        } else {
            Err(StatusCode::NOT_FOUND)
        }
    });
    let stop = CancellationToken::new();
    let serving =
        axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let serving = tokio::spawn(serving.into_future());
    let probed = probe(public_url, &config.http).await;
    stop.cancel();
    // Its end is not waited for: a proxy may hold the connection open.
    serving.abort();
    let (token, answer) = probed?;
    arrived(answer.body == token.as_bytes(), &answer)
}

/// Requests a URL once, through the configured proxy if there is one for it: a proxy is how requests get out of this network.
async fn request(url: &Url, http: &HttpSettings) -> Result<AnswerStart, String> {
    let client = Client::new(http, crate::clock::now).map_err(|error| error.to_string())?;
    // Only a short answer is of interest.
    let answer = client.get_own_url(url, TIMEOUT, 2 * MOST_TOKEN).await;
    answer.map_err(|error| {
        format!(
            "can't be requested from here: {error}; check its name in the DNS, the reverse proxy and the firewall"
        )
    })
}

/// The result of a request with this answer.
fn arrived(has_arrived: bool, answer: &AnswerStart) -> Result<(), String> {
    if has_arrived {
        return Ok(());
    }
    let server = answer.server.as_deref();
    let server = server.map_or_else(String::new, |server| {
        format!(", from {}", resyncd_core::one_line(server, 100))
    });
    Err(format!(
        "leads elsewhere (answered {}{server}): the reverse proxy must pass on everything below it to callback.listen",
        answer.status
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use resyncd_core::Redaction;

    use super::*;
    use crate::http::{Callback, SharedRedaction, callback_router};
    use crate::store::Store;

    /// Serves what stands for a proxy; returns its URL.
    async fn serve(router: Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router).into_future());
        url
    }

    /// The name leads nowhere: only a proxy answers.
    async fn probe(proxy: &str, rejections: &RejectionCounters) -> Result<(), String> {
        let text = format!(
            "state_dir = \"state\"\n[http]\nproxy = \"{proxy}\"\n\
             [[source]]\nname = \"a\"\nurl = \"https://library.org/\"\nmirror = \"mirror\"\n"
        );
        let config = Config::parse(&text, Path::new("/srv/resyncd.toml")).unwrap();
        let url = Url::parse("http://destination.library.org/hooks/").unwrap();
        leads_to_listener(&url, &config.http, rejections).await
    }

    #[tokio::test]
    async fn probe_goes_through_the_proxy_and_is_recognized_by_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let rejections = RejectionCounters::default();
        let secrets = SharedRedaction::new(&Redaction::default());
        let counted = rejections.clone();
        let callback = Callback::new(store, "/hooks/", 1 << 20, 1 << 20, counted, secrets);
        let here = serve(callback_router(callback)).await;
        assert_eq!(probe(&here, &rejections).await, Ok(()));
        // Another request for a callback that there is not arrives, and the probe does not.
        let other = format!("{here}/hooks/probe-of-another");
        let elsewhere = Router::new().fallback(async move || {
            let _ = reqwest::get(&other).await;
            StatusCode::NOT_FOUND
        });
        let elsewhere = serve(elsewhere).await;
        let error = probe(&elsewhere, &rejections).await.unwrap_err();
        assert!(error.contains("leads elsewhere (answered 404"), "{error}");
        assert_eq!(rejections.counts()["unknown-callback"], 2);
    }
}
