//! A site of pages written by the test, and a daemon that follows it.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ETAG, IF_NONE_MATCH, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use resyncd::config::{Config, Source};
use resyncd::status::{SetStatus, SourceStatus};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use crate::support::{Destination, NAME, eventually, files};

#[derive(Clone, Default)]
struct Page {
    headers: HeaderMap,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Pages {
    pages: HashMap<String, Page>,
    /// Pages for requests with a header that contains a text, in place of others: path, header, text, page.
    variants: Vec<(String, HeaderName, String, Page)>,
    hits: HashMap<String, usize>,
}

/// A server of pages, until it is dropped. `{site}` in a page is replaced by the base URL.
pub(crate) struct Site {
    base: String,
    pages: Arc<Mutex<Pages>>,
    server: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let pages = Arc::new(Mutex::new(Pages::default()));
        let served = Arc::clone(&pages);
        let app = Router::new().fallback(move |request: Request| {
            let served = Arc::clone(&served);
            async move { answer(&served, request.uri().path(), request.headers()) }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            base,
            pages,
            server,
        }
    }

    /// A site with a Source Description, a Capability List of `/list.xml` and `/changes.xml`, and an empty Change List.
    pub(crate) async fn with_lists(resource_list: &str) -> Self {
        let site = Self::start().await;
        site.put(
            "/.well-known/resourcesync",
            &description("/capabilities.xml"),
        );
        site.put(
            "/capabilities.xml",
            &capability_list(&[
                ("resourcelist", "/list.xml"),
                ("changelist", "/changes.xml"),
            ]),
        );
        site.put("/list.xml", resource_list);
        site.put("/changes.xml", &change_list(""));
        site
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn put(&self, path: &str, page: &str) {
        self.put_bytes(path, &[], self.expand(page));
    }

    /// Serves a compressed page, with or without `Content-Encoding`.
    pub(crate) fn put_gzip(&self, path: &str, page: &str, has_header: bool) {
        let headers: &[(&str, &str)] = if has_header {
            &[("content-encoding", "gzip")]
        } else {
            &[]
        };
        self.put_bytes(path, headers, gzip(&self.expand(page)));
    }

    pub(crate) fn put_bytes(&self, path: &str, headers: &[(&str, &str)], bytes: Vec<u8>) {
        let page = page(headers, bytes);
        let mut pages = self.pages.lock().unwrap();
        pages.pages.insert(path.to_owned(), page);
    }

    /// Serves another page where a header of the request contains a text.
    pub(crate) fn put_variant(
        &self,
        path: &str,
        (header, text): (&'static str, &str),
        headers: &[(&str, &str)],
        bytes: Vec<u8>,
    ) {
        let header = HeaderName::from_static(header);
        let page = page(headers, bytes);
        let variant = (path.to_owned(), header, text.to_owned(), page);
        self.pages.lock().unwrap().variants.push(variant);
    }

    pub(crate) fn put_redirect(&self, path: &str, to: &str) {
        self.put_bytes(path, &[("location", to)], Vec::new());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.pages.lock().unwrap().pages.remove(path);
    }

    /// Number of requests for a page.
    pub(crate) fn hits(&self, path: &str) -> usize {
        let pages = self.pages.lock().unwrap();
        pages.hits.get(path).copied().unwrap_or_default()
    }

    /// A page with the base URL of the site.
    pub(crate) fn expand(&self, page: &str) -> Vec<u8> {
        page.replace("{site}", &self.base).into_bytes()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn page(headers: &[(&str, &str)], bytes: Vec<u8>) -> Page {
    let header = |&(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(name).unwrap();
        (name, HeaderValue::try_from(value).unwrap())
    };
    Page {
        headers: headers.iter().map(header).collect(),
        bytes,
    }
}

fn answer(pages: &Mutex<Pages>, path: &str, headers: &HeaderMap) -> Response {
    let mut pages = pages.lock().unwrap();
    *pages.hits.entry(path.to_owned()).or_default() += 1;
    let is_asked = |name: &HeaderName, text: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.contains(text))
    };
    let mut variants = pages.variants.iter();
    let variant = variants.find(|(of, name, text, _)| of == path && is_asked(name, text));
    let page = variant.map(|(.., page)| page).or(pages.pages.get(path));
    match page.cloned() {
        Some(page) if page.headers.contains_key(LOCATION) => {
            (StatusCode::FOUND, page.headers).into_response()
        }
        Some(page)
            if page.headers.contains_key(ETAG)
                && page.headers.get(ETAG) == headers.get(IF_NONE_MATCH) =>
        {
            (StatusCode::NOT_MODIFIED, page.headers).into_response()
        }
        Some(page) => (page.headers, Body::from(page.bytes)).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// A document with these attributes of its `rs:md` and a link `up` to the Capability List.
pub(crate) fn document(root: &str, md: &str, inside: &str) -> String {
    with_up(root, "/capabilities.xml", md, inside)
}

/// A document with a link `up` to this path, or without it if the path is empty.
pub(crate) fn with_up(root: &str, up: &str, md: &str, inside: &str) -> String {
    let up = match up {
        "" => String::new(),
        up => format!("<rs:ln rel=\"up\" href=\"{{site}}{up}\"/>"),
    };
    format!("<{root} {NAMESPACES}>{up}<rs:md {md}/>{inside}</{root}>")
}

pub(crate) fn description(capability_list: &str) -> String {
    let entry = entry(capability_list, r#"<rs:md capability="capabilitylist"/>"#);
    with_up("urlset", "", r#"capability="description""#, &entry)
}

pub(crate) fn capability_list(offers: &[(&str, &str)]) -> String {
    let offer = |(capability, path): &(&str, &str)| {
        entry(path, &format!("<rs:md capability=\"{capability}\"/>"))
    };
    let offers: String = offers.iter().map(offer).collect();
    with_up(
        "urlset",
        "/.well-known/resourcesync",
        r#"capability="capabilitylist""#,
        &offers,
    )
}

pub(crate) fn resource_list(entries: &str) -> String {
    let md = r#"capability="resourcelist" at="2026-03-01T00:00:00Z""#;
    document("urlset", md, entries)
}

pub(crate) fn change_list(entries: &str) -> String {
    let md = r#"capability="changelist" from="2026-03-01T00:00:00Z""#;
    document("urlset", md, entries)
}

/// An entry of a page of the site.
pub(crate) fn entry(path: &str, inside: &str) -> String {
    format!("<url><loc>{{site}}{path}</loc>{inside}</url>")
}

/// An entry of a Resource List.
pub(crate) fn listed(path: &str) -> String {
    entry(path, "<lastmod>2026-02-01T00:00:00Z</lastmod>")
}

/// An entry of a Change List, of March 2026.
pub(crate) fn changed(path: &str, change: &str, time: &str) -> String {
    let inside = format!("<lastmod>2026-03-{time}Z</lastmod><rs:md change=\"{change}\"/>");
    entry(path, &inside)
}

/// A daemon that follows a site.
pub(crate) struct Follower {
    pub(crate) site: Site,
    pub(crate) destination: Destination,
}

impl Follower {
    /// Follows the site from its root.
    pub(crate) async fn start(site: Site) -> Self {
        Self::start_at(site, "/").await
    }

    /// Follows the site from a page.
    pub(crate) async fn start_at(site: Site, path: &str) -> Self {
        Self::start_with(site, path, |_| {}).await
    }

    pub(crate) async fn start_with(
        site: Site,
        path: &str,
        change: impl FnOnce(&mut Source),
    ) -> Self {
        let url = Url::parse(&site.url(path)).unwrap();
        let configure = |config: &mut Config| change(&mut config.sources[0]);
        let destination = Destination::start(url, configure).await;
        Self { site, destination }
    }

    async fn source(&self) -> SourceStatus {
        let status = self.destination.operator.status().await;
        status.sources.into_iter().next().unwrap()
    }

    /// Waits until every set satisfies a condition. Returns the first set.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        eventually(what, Some(self.destination.wakes()), async || {
            let mut source = self.source().await;
            if !source.sets.is_empty() && source.sets.iter().all(&wanted) {
                Ok(source.sets.remove(0))
            } else {
                Err(format!("{source:#?}"))
            }
        })
        .await
    }

    /// The pages that the mirror holds, with their paths.
    pub(crate) fn mirrored(&self) -> Vec<(String, String)> {
        let host = self.site.base.trim_start_matches("http://");
        let found = files(&self.destination.config.sources[0].mirror).into_iter();
        found
            .map(|(path, bytes)| {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (path.trim_start_matches(host).to_owned(), text)
            })
            .collect()
    }

    /// Waits until the mirror holds exactly these pages, and every set is in sync without an error.
    pub(crate) async fn until_mirrored(&self, pages: &[(&str, &str)]) -> SetStatus {
        let expected: Vec<(String, String)> = pages
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        eventually(
            "pages mirrored",
            Some(self.destination.wakes()),
            async || {
                let found = self.mirrored();
                if found == expected {
                    Ok(())
                } else {
                    let source = self.source().await;
                    Err(format!("{found:#?}, not {expected:#?}; {source:#?}"))
                }
            },
        )
        .await;
        self.until("in sync", |set| {
            set.state == "in-sync" && set.error.is_none()
        })
        .await
    }

    /// Requests that what has failed is tried now.
    pub(crate) async fn retry(&self) {
        self.destination.operator.retry(NAME).await;
    }

    /// Requests a poll, and waits until it has begun.
    pub(crate) async fn poll(&self) {
        let before = self.until("polled", |set| set.last_poll_at.is_some()).await;
        self.destination.operator.poll(NAME).await;
        self.until("polled again", |set| {
            set.last_poll_at != before.last_poll_at
        })
        .await;
    }

    /// Waits until the status shows these oddities, such as `/list.xml no-at=1`, sorted.
    pub(crate) async fn until_oddities(&self, expected: &[&str]) {
        eventually(
            "oddities shown",
            Some(self.destination.wakes()),
            async || {
                let found = self.oddities().await;
                if found == expected {
                    Ok(())
                } else {
                    Err(format!("{found:#?}"))
                }
            },
        )
        .await;
    }

    pub(crate) async fn oddities(&self) -> Vec<String> {
        let sets = self.source().await.sets.into_iter();
        let rows = sets.flat_map(|set| set.oddities);
        let mut shown: Vec<String> = rows
            .map(|row| {
                let path = row.document.trim_start_matches(&self.site.base);
                format!("{path} {}={}", row.code, row.count)
            })
            .collect();
        shown.sort();
        shown
    }
}
