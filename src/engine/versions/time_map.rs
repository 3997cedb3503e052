//! Reads a TimeMap with its pages: which versions of a resource a server has.
//!
//! Invariant: a TimeMap takes bounded requests, memory and rows, whatever its pages name. A page is read once.

use std::collections::{BTreeSet, VecDeque};

use resourcesync::SourceTime;
use resourcesync::uri::BaseUri;
use resyncd_core::{Memento, ResourceUri};
use resyncd_fetch::{AllowedHosts, Client, FetchError, SizeLimit, TimeMap, parse_time_map};
use tokio::sync::Semaphore;
use url::Url;

use super::fetch::{failure_of, is_in_future, task_of};
use crate::engine::apply::context::ApplyContext;
use crate::engine::apply::task_error::TaskError;
use crate::store::{VersionFailure, VersionResult, VersionTask};

/// How many pages are read.
const MAX_PAGES: usize = 100;
/// How many versions are stored.
const MAX_VERSIONS: usize = 10_000;
/// The length of the longest page, in bytes.
const MAX_PAGE: u64 = 8 << 20;

/// Reads the TimeMap of a task.
pub(super) async fn read_time_map(apply: &ApplyContext, task: &VersionTask) -> VersionResult {
    let start = task.links.first().map(|link| link.href.clone());
    let Some(start) = start else {
        return VersionResult::Pointless;
    };
    let Some(folder) = &apply.source.versions else {
        return VersionResult::Pointless;
    };
    let pages = TimeMapReader {
        reading: &folder.reading,
        client: &apply.source.client,
        hosts: &apply.source.source.hosts,
        max_uri_bytes: apply.source.limits.uri,
    };
    match pages.read(start).await {
        Ok(found) => {
            let failure = found.failure();
            if let Some(failure) = &failure {
                tracing::warn!(code = failure.code, source = apply.name(), uri = %task.uri, error = failure.message,
                    "TimeMap not used completely");
            }
            VersionResult::Listed(found.mementos, failure)
        }
        Err(error) => {
            let error = TaskError::from(error);
            VersionResult::Failed(failure_of(apply, &task_of(task), error))
        }
    }
}

/// What a TimeMap names.
#[derive(Debug, Default, PartialEq, Eq)]
struct TimeMapContents {
    mementos: Vec<Memento>,
    /// How many versions are in the future.
    in_future: usize,
    /// Whether there is more than is read.
    is_cut: bool,
}

impl TimeMapContents {
    /// What of it was not used.
    fn failure(&self) -> Option<VersionFailure> {
        let (code, message) = if self.is_cut {
            let message = format!(
                "the TimeMap has more than {MAX_PAGES} pages or {MAX_VERSIONS} versions; the further ones were ignored"
            );
            ("time-map-cut", message)
        } else if self.in_future > 0 {
            let message = format!(
                "{} versions of the TimeMap are in the future; they were ignored",
                self.in_future
            );
            ("memento-in-future", message)
        } else {
            return None;
        };
        Some(VersionFailure {
            code,
            message,
            retry_at: None,
            counts: true,
        })
    }
}

struct TimeMapReader<'a> {
    /// One page is in memory at once, of each Source.
    reading: &'a Semaphore,
    client: &'a Client,
    hosts: &'a [String],
    max_uri_bytes: usize,
}

impl TimeMapReader<'_> {
    async fn read(&self, start: Url) -> Result<TimeMapContents, FetchError> {
        let mut found = TimeMapContents::default();
        let mut times: BTreeSet<SourceTime> = BTreeSet::new();
        let mut known = BTreeSet::from([start.clone()]);
        let mut waiting = VecDeque::from([start]);
        let mut read = 0;
        while let Some(page) = waiting.pop_front() {
            if read == MAX_PAGES {
                found.is_cut = true;
                break;
            }
            read += 1;
            let most = MAX_VERSIONS - found.mementos.len();
            let map = self.page(&page, most).await?;
            found.is_cut |= map.is_cut;
            for memento in map.mementos {
                if is_in_future(memento.at) {
                    found.in_future += 1;
                } else if times.insert(memento.at) {
                    found.mementos.push(memento);
                }
            }
            let left = MAX_PAGES.saturating_sub(read);
            for page in map.pages {
                if known.contains(&page) {
                    continue;
                }
                if waiting.len() >= left {
                    found.is_cut = true;
                    break;
                }
                known.insert(page.clone());
                waiting.push_back(page);
            }
        }
        Ok(found)
    }

    /// One page.
    async fn page(&self, url: &Url, most: usize) -> Result<TimeMap, FetchError> {
        let uri = ResourceUri::try_from(url.clone()).map_err(|_| FetchError::LongUri)?;
        let hosts = AllowedHosts::new(self.hosts);
        let _reading = self.reading.acquire().await;
        let limit = SizeLimit::new(MAX_PAGE, "the limit of TimeMaps");
        let asked = self.client.get_content(&uri, &hosts, Some(limit), None);
        let Some(mut content) = asked.await? else {
            return Ok(TimeMap::default());
        };
        let mut bytes = Vec::new();
        while let Some(chunk) = content.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        let at = content.url().clone();
        drop(content);
        let base = BaseUri {
            uri: &at,
            max_bytes: self.max_uri_bytes,
        };
        let text = String::from_utf8_lossy(&bytes);
        Ok(parse_time_map(&text, base, most))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resyncd_fetch::{HttpNetwork, HttpSettings};

    use super::*;

    /// Answers each request with what a function returns for the path.
    struct Serving<F>(F, AtomicUsize);

    impl<F: Fn(&str) -> String + Send + Sync> HttpNetwork for Serving<F> {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            let body = (self.0)(request.url().path());
            let answer = http::Response::builder().body(body.into_bytes()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    /// What is found from `/1` on, and how many pages were requested.
    async fn read(
        page: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> (Result<TimeMapContents, FetchError>, usize) {
        let serving = Arc::new(Serving(page, AtomicUsize::new(0)));
        let client = Client::new(&HttpSettings::default(), crate::clock::now).unwrap();
        let client = client.with_network(serving.clone());
        let reading = Semaphore::new(1);
        let pages = TimeMapReader {
            reading: &reading,
            client: &client,
            hosts: &[],
            max_uri_bytes: 1000,
        };
        let found = pages
            .read(Url::parse("https://example.org/1").unwrap())
            .await;
        (found, serving.1.load(Ordering::SeqCst))
    }

    fn memento(number: usize, year: usize) -> String {
        format!(
            "<https://example.org/m{number}>;rel=memento;datetime=\"Thu, 03 Jan {year} 18:00:00 GMT\","
        )
    }

    fn code(found: &TimeMapContents) -> Option<&'static str> {
        found.failure().map(|failure| failure.code)
    }

    #[tokio::test]
    async fn pages_in_a_ring_are_read_once() {
        let (found, requests) = read(|path| match path {
            "/1" => format!("{}</2>;rel=timemap", memento(1, 2001)),
            "/2" => format!(
                "{}{}</1>;rel=timemap,</2>;rel=timemap",
                memento(1, 2001),
                memento(2, 2002)
            ),
            other => panic!("{other}"),
        })
        .await;
        let found = found.unwrap();
        assert_eq!((found.mementos.len(), code(&found), requests), (2, None, 2));
    }

    #[tokio::test]
    async fn time_map_that_pages_for_ever_is_cut() {
        let (found, requests) = read(|path| {
            let number: usize = path[1..].parse().unwrap();
            format!(
                "{}</{}>;rel=timemap",
                memento(number, 1000 + number),
                number + 1
            )
        })
        .await;
        let found = found.unwrap();
        assert_eq!(requests, MAX_PAGES);
        assert_eq!(
            (found.mementos.len(), code(&found)),
            (MAX_PAGES, Some("time-map-cut"))
        );
    }

    #[tokio::test]
    async fn pages_that_one_page_names_are_bounded() {
        let (found, requests) = read(|path| {
            let pages = (0..5000).map(|number| format!("<{path}/{number}>;rel=timemap,"));
            pages.collect()
        })
        .await;
        assert_eq!(
            (code(&found.unwrap()), requests),
            (Some("time-map-cut"), MAX_PAGES)
        );
    }

    #[tokio::test]
    async fn huge_time_map_is_cut_or_not_read() {
        let (found, _) = read(|_| {
            let all = (0..MAX_VERSIONS + 10).map(|number| {
                format!(
                    "</{number}>;rel=memento;datetime=\"Thu, 03 Jan 2001 {:02}:{:02}:{:02} GMT\",",
                    number / 3600,
                    number / 60 % 60,
                    number % 60
                )
            });
            all.collect()
        })
        .await;
        let found = found.unwrap();
        assert_eq!(
            (found.mementos.len(), code(&found)),
            (MAX_VERSIONS, Some("time-map-cut"))
        );
        let (found, _) = read(|_| " ".repeat(MAX_PAGE as usize + 1)).await;
        assert_eq!(found.unwrap_err().code(), "too-large");
    }

    #[tokio::test]
    async fn versions_in_the_future_and_private_addresses_are_not_used() {
        let (found, _) = read(|_| format!("{}{}", memento(1, 2001), memento(2, 9001))).await;
        let found = found.unwrap();
        assert_eq!(
            (found.mementos.len(), code(&found)),
            (1, Some("memento-in-future"))
        );
        let (found, requests) = read(|_| "<http://127.0.0.1/2>;rel=timemap".to_owned()).await;
        assert_eq!(
            (found.unwrap_err().code(), requests),
            ("forbidden-address", 1)
        );
    }
}
