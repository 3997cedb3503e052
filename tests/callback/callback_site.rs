//! A Source of the draft of version 0.1 that pushes Change Sets to the callbacks that are registered at its interface, and a daemon that
//! follows it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use resyncd::config::{CallbackProtocols, Config};
use resyncd::status::{ChannelStatus, SetStatus};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use url::{Url, form_urlencoded};

use crate::support::site::{ok, redirect, status};
use crate::support::{Destination, client, send, soon};

/// The protocol of the draft's example 5.6.
pub(crate) const PROTOCOL: &str = "http://example.com/protocol/callback";
pub(crate) const SITEMAP: &str = "/sitemap.xml";
pub(crate) const CHANGE_SET: &str = "/changesets/most_recent.xml";
pub(crate) const SUBSCRIBE: &str = "/subscribe";
const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml""#;

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, String>>,
    /// Where paths lead to.
    redirects: Mutex<HashMap<String, String>>,
    /// The callbacks of all registrations.
    registered: watch::Sender<Vec<String>>,
    /// The paths of all requests with GET.
    requested: Mutex<Vec<String>>,
    /// Other requests than GET.
    posted: Mutex<Vec<String>>,
    refuses: Mutex<bool>,
}

impl Shared {
    async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        if request.method() == Method::GET {
            self.requested.lock().unwrap().push(path.clone());
            let page = self.pages.lock().unwrap().get(&path).cloned();
            return page.map_or_else(|| status(404), ok);
        }
        self.posted.lock().unwrap().push(path.clone());
        if let Some(target) = self.redirects.lock().unwrap().get(&path) {
            return redirect(307, target);
        }
        if path != SUBSCRIBE || *self.refuses.lock().unwrap() {
            return status(403);
        }
        let kind = request.headers().get("content-type").cloned().unwrap();
        assert_eq!(kind, "application/x-www-form-urlencoded");
        let body = to_bytes(request.into_body(), 10_000).await.unwrap();
        let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
        let [(name, callback)] = &fields[..] else {
            panic!("{fields:?}");
        };
        assert_eq!(name, "callbackURI");
        let callback = callback.clone();
        self.registered.send_modify(|all| all.push(callback));
        ok("registered")
    }
}

/// The site, until it is dropped.
pub(crate) struct CallbackSite {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl CallbackSite {
    /// A site without pages.
    pub(crate) async fn start(host: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let answering = Arc::clone(&shared);
        let app = Router::new().fallback(move |request: Request| {
            let shared = Arc::clone(&answering);
            async move { shared.answer(request).await }
        });
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            shared,
            server,
        }
    }

    /// A Source whose Sitemap lists these resources, and names its interface. Each resource is its own name.
    pub(crate) async fn of(names: &[&str]) -> Self {
        let site = Self::start(Ipv4Addr::LOCALHOST).await;
        for name in names {
            site.put(name, &name[1..]);
        }
        let listed: Vec<_> = names.iter().map(|name| listed(name, "08")).collect();
        site.put(SITEMAP, &sitemap("12", &site.interface(SUBSCRIBE), &listed));
        site
    }

    /// The same with a Change Set of one change that the Sitemap has as well: those that follow it in the set are all there are.
    pub(crate) async fn with_change_set(names: &[&str]) -> Self {
        let site = Self::of(names).await;
        let links = site.interface(SUBSCRIBE) + &change_set_link(CHANGE_SET);
        let listed: Vec<_> = names.iter().map(|name| listed(name, "08")).collect();
        site.put(SITEMAP, &sitemap("12", &links, &listed));
        site.put(
            CHANGE_SET,
            &change_set(&[changed(names[0], "created", "08")]),
        );
        site
    }

    /// A link to an interface, as in example 5.6.
    pub(crate) fn interface(&self, path: &str) -> String {
        interface(&self.url(path), PROTOCOL)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Writes a page. `{site}` stands for the site.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let text = text.replace("{site}", &self.url(""));
        let mut pages = self.shared.pages.lock().unwrap();
        pages.insert(path.to_owned(), text);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.shared.pages.lock().unwrap().remove(path);
    }

    /// Whether to answer registrations with 403.
    pub(crate) fn refuse(&self, refuses: bool) {
        *self.shared.refuses.lock().unwrap() = refuses;
    }

    /// Answers registrations at a path with 307.
    pub(crate) fn redirect(&self, path: &str, to: &str) {
        let mut redirects = self.shared.redirects.lock().unwrap();
        redirects.insert(path.to_owned(), to.to_owned());
    }

    /// The paths of all requests with GET.
    pub(crate) fn requested(&self) -> Vec<String> {
        self.shared.requested.lock().unwrap().clone()
    }

    /// The paths of all requests but GET.
    pub(crate) fn posted(&self) -> Vec<String> {
        self.shared.posted.lock().unwrap().clone()
    }

    /// The callbacks of all registrations.
    pub(crate) fn registered(&self) -> Vec<String> {
        self.shared.registered.borrow().clone()
    }

    /// Waits until so many registrations were made; returns the callback of the last one.
    pub(crate) async fn until_registered(&self, number: usize) -> String {
        let mut registered = self.shared.registered.subscribe();
        let registered = registered.wait_for(|all| all.len() >= number);
        let all = soon("callbacks are registered", registered).await.unwrap();
        all.last().unwrap().clone()
    }

    /// Pushes a document to the callback that was registered last.
    pub(crate) async fn push(&self, document: &str) -> StatusCode {
        let callback = self.until_registered(1).await;
        deliver(&callback, document.replace("{site}", &self.url(""))).await
    }
}

impl Drop for CallbackSite {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Delivers a body to a callback.
pub(crate) async fn deliver(callback: &str, body: String) -> StatusCode {
    let client = client();
    let answer = send(|| client.post(callback).body(body.clone())).await;
    answer.status()
}

/// A time of the day of the draft's examples.
fn at(hour: &str) -> String {
    format!("2012-08-08T{hour}:00:00Z")
}

/// An entry of a Sitemap.
pub(crate) fn listed(path: &str, hour: &str) -> String {
    let time = at(hour);
    format!("<url><loc>{{site}}{path}</loc><lastmod>{time}</lastmod></url>")
}

pub(crate) fn expired(path: &str, hour: &str) -> String {
    let time = at(hour);
    format!("<url><loc>{{site}}{path}</loc><expires>{time}</expires></url>")
}

/// An entry of a Change Set that states no deletion.
pub(crate) fn changed(path: &str, kind: &str, hour: &str) -> String {
    let time = at(hour);
    format!("<url><loc>{{site}}{path}</loc><lastmod rs:type=\"{kind}\">{time}</lastmod></url>")
}

/// A link to an interface.
pub(crate) fn interface(uri: &str, protocol: &str) -> String {
    format!("<xhtml:link href=\"{uri}\" rs:protocol=\"{protocol}\"/>")
}

pub(crate) fn change_set_link(path: &str) -> String {
    format!(
        "<xhtml:link rel=\"current http://www.openarchives.org/rs/changeset\" href=\"{{site}}{path}\"/>"
    )
}

pub(crate) fn sitemap(hour: &str, links: &str, entries: &[String]) -> String {
    let (modified, entries) = (modified(hour), entries.concat());
    format!("<urlset {NAMESPACES}>{modified}{links}{entries}</urlset>")
}

/// A Sitemap that states no time of its own.
pub(crate) fn undated_sitemap(links: &str, entries: &[String]) -> String {
    let entries = entries.concat();
    format!("<urlset {NAMESPACES}>{links}{entries}</urlset>")
}

/// An index with a time and links of its own. Without a time it would be one of its receipt, long after all that the changes state.
pub(crate) fn dated_index(hour: &str, links: &str, parts: &[&str]) -> String {
    let modified = modified(hour);
    let entry = |path: &&str| format!("<sitemap><loc>{{site}}{path}</loc></sitemap>");
    let parts: String = parts.iter().map(entry).collect();
    format!("<sitemapindex {NAMESPACES}>{modified}{links}{parts}</sitemapindex>")
}

/// When a document was modified.
fn modified(hour: &str) -> String {
    let time = at(hour);
    format!("<xhtml:meta name=\"DCTERMS.modified\" content=\"{time}\"/>")
}

/// A Change Set, as in example 5.7.
pub(crate) fn change_set(entries: &[String]) -> String {
    let entries = entries.concat();
    format!("<urlset rs:type=\"changeset\" {NAMESPACES}>{entries}</urlset>")
}

/// The channel of a set that has a callback.
fn called_back(set: &SetStatus) -> Option<&ChannelStatus> {
    let mut channels = set.channels.iter();
    channels.find(|channel| channel.transport == "callback")
}

/// A daemon that follows such a site.
pub(crate) struct Follower {
    pub(crate) site: CallbackSite,
    pub(crate) destination: Destination,
}

impl Follower {
    pub(crate) async fn start(site: CallbackSite) -> Self {
        Self::start_with(site, |_| {}).await
    }

    pub(crate) async fn start_with(site: CallbackSite, change: impl FnOnce(&mut Config)) -> Self {
        let url = Url::parse(&site.url(SITEMAP)).unwrap();
        let configure = |config: &mut Config| {
            config.sources[0].callback_protocols = CallbackProtocols::new([PROTOCOL]);
            change(config);
        };
        let destination = Destination::start(url, configure).await;
        Self { site, destination }
    }

    /// Waits until the status of the set satisfies a condition.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        self.destination.until(what, wanted).await
    }

    /// Waits until the channel satisfies a condition.
    pub(crate) async fn until_channel(
        &self,
        what: &str,
        wanted: impl Fn(&ChannelStatus) -> bool,
    ) -> ChannelStatus {
        let set = self.until(what, |set| called_back(set).is_some_and(&wanted));
        called_back(&set.await).unwrap().clone()
    }

    /// Waits until the set is in sync with nothing pending, and the callback is registered.
    pub(crate) async fn settled(&self) -> SetStatus {
        self.until("in sync, with a callback", |set| {
            let is_active = called_back(set).is_some_and(|it| it.state == "active");
            set.state == "in-sync" && set.pending == 0 && is_active
        })
        .await
    }

    /// Waits until everything that was delivered is processed.
    pub(crate) async fn processed(&self, deliveries: u64) -> ChannelStatus {
        let is_done = |it: &ChannelStatus| it.inbox == 0 && it.received == deliveries;
        let set = self.until("processed", |set| {
            set.pending == 0 && called_back(set).is_some_and(is_done)
        });
        called_back(&set.await).unwrap().clone()
    }

    /// Waits until the mirror has exactly these files.
    pub(crate) async fn until_mirrored(&self, expected: &[(&str, &str)]) {
        let host = self.site.address.to_string();
        self.destination.until_mirrored(&host, expected).await;
    }
}
