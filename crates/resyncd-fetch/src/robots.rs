//! robots.txt of the hosts of a site without ResourceSync (RFC 9309): which resources may be requested, and how fast.
//!
//! The robots.txt of a host is requested before its first resource, and again at most once a day. What it disallows is not requested, also
//! not after a redirect; its `Crawl-delay` holds for documents, too. Documents are read whatever it states: somebody has named them. What
//! discovery only guesses to be one is a page like any other.
//! A host without one allows everything. One that does not answer, or with 5xx, is asked again after an hour; until then what was known
//! last holds, and if nothing was, everything is allowed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use resyncd_core::ErrorClass;
use robotxt::{BYTE_LIMIT, Robots};
use url::Url;

use super::FetchError;
use super::client::Client;
use super::pace::Pace;
use super::permits::Pool;
use crate::Clock;

/// How long a robots.txt counts (section 2.4).
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The pause before one is requested again that could not be read.
const PAUSE: Duration = Duration::from_secs(3600);
/// The longest `Crawl-delay` that is respected.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// The maximum length in bytes of what may be a document in place of a robots.txt; of others the first [`BYTE_LIMIT`] bytes count.
const MAX_BYTES: u64 = 2 << 20;
/// How much of a robots.txt is received, in bytes.
const MAX_TEXT: u64 = 512 << 10;
/// How many hosts are remembered, and how many bytes of their files: they are remote input.
const MOST_HOSTS: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

/// The robots.txt of the hosts of one Source.
pub(super) struct RobotsFiles {
    /// The name of the Source, for the log.
    source: String,
    /// The product token of the `User-Agent` header.
    agent: String,
    is_obeyed: AtomicBool,
    clock: Clock,
    hosts: Mutex<HashMap<String, Arc<RobotsFile>>>,
}

/// The robots.txt of one host.
#[derive(Default)]
struct RobotsFile {
    /// Held while it is requested.
    requesting: tokio::sync::Mutex<()>,
    known: Mutex<Option<KnownFile>>,
}

#[derive(Clone)]
struct KnownFile {
    rules: Arc<RobotsRules>,
    bytes: usize,
    requested_at: Instant,
    /// When it is requested again.
    until: Instant,
}

/// What a robots.txt states for this program.
pub(super) struct RobotsRules {
    stated: Robots,
    /// That of its `Crawl-delay`.
    pace: Option<Pace>,
}

impl RobotsRules {
    fn new(stated: Robots, clock: Clock) -> Self {
        let delay = stated.crawl_delay().filter(|delay| !delay.is_zero());
        Self {
            pace: delay.map(|delay| Pace::new(delay.min(LONGEST_DELAY), None, clock)),
            stated,
        }
    }

    /// Waits until the `Crawl-delay` allows the next request.
    pub(super) async fn wait_for_request(&self) {
        if let Some(pace) = &self.pace {
            pace.wait_for_request().await;
        }
    }

    fn restricts(&self) -> bool {
        self.pace.is_some() || self.stated.always() != Some(true)
    }
}

impl RobotsFiles {
    /// Nothing is known of any host. `source`: the name of the Source; `user_agent`: the header of the requests.
    pub(super) fn new(source: &str, user_agent: &str, clock: Clock) -> Self {
        Self {
            source: source.to_owned(),
            agent: product_token(user_agent).to_owned(),
            is_obeyed: AtomicBool::new(true),
            clock,
            hosts: Mutex::default(),
        }
    }

    /// From now on nothing is asked for, and everything is allowed.
    pub(super) fn disregard(&self) {
        self.is_obeyed.store(false, Ordering::Relaxed);
    }

    /// The rules that a request must follow; `None`: there are none yet, and it need not wait for them.
    ///
    /// # Errors
    /// [`FetchError::Disallowed`] of a resource.
    pub(super) async fn admit(
        &self,
        client: &Client,
        pool: Pool,
        url: &Url,
    ) -> Result<Option<Arc<RobotsRules>>, FetchError> {
        if pool != Pool::Content {
            return Ok(self.known(url));
        }
        let rules = self.rules_of(client, url).await;
        if rules.stated.is_url_allowed(url) {
            Ok(Some(rules))
        } else {
            Err(FetchError::Disallowed {
                host: url.host_str().unwrap_or_default().to_owned(),
                agent: self.agent.clone(),
            })
        }
    }

    /// Whether the host of a URL wants a pause between two requests, as far as that is known.
    pub(super) fn has_delay(&self, url: &Url) -> bool {
        self.known(url).is_some_and(|rules| rules.pace.is_some())
    }

    /// The rules of the host of a URL, requested unless they are known. It is boxed because that is a request like any other.
    pub(super) fn rules_of<'a>(
        &'a self,
        client: &'a Client,
        url: &'a Url,
    ) -> BoxFuture<'a, Arc<RobotsRules>> {
        async move {
            let file = Arc::clone(self.hosts.lock().entry(host_of(url)).or_default());
            if let Some(rules) = file.current((self.clock)().mono) {
                return rules;
            }
            let _requesting = file.requesting.lock().await;
            if let Some(rules) = file.current((self.clock)().mono) {
                return rules;
            }
            let rules = self.request(client, url, &file).await;
            self.trim();
            rules
        }
        .boxed()
    }

    fn known(&self, url: &Url) -> Option<Arc<RobotsRules>> {
        let hosts = self.hosts.lock();
        let known = hosts.get(&host_of(url))?.known.lock();
        known.as_ref().map(|known| Arc::clone(&known.rules))
    }

    async fn request(&self, client: &Client, url: &Url, file: &RobotsFile) -> Arc<RobotsRules> {
        let Ok(url) = robotxt::robots_url(url) else {
            return Arc::new(self.allowing_all());
        };
        let read = read_text(&client.without_robots(), &url).await;
        let (source, now) = (&self.source, (self.clock)().mono);
        let (rules, bytes, age) = match read {
            Ok(text) => {
                let stated = Robots::parse(text.as_bytes(), &*self.agent);
                let rules = RobotsRules::new(stated, self.clock);
                if rules.restricts() {
                    let pace = rules.pace.as_ref();
                    let crawl_delay = pace.map(|pace| pace.between_requests.as_secs_f64());
                    tracing::info!(source, %url, rules = rules.stated.rules().len(), crawl_delay,
                        "robots.txt restricts what is requested; `robots = false` ignores it");
                }
                (Arc::new(rules), text.len(), MAX_AGE)
            }
            Err(error) => {
                let is_unreachable = is_unreachable(&error);
                if is_unreachable {
                    tracing::info!(code = error.code(), source, %url, %error,
                        "robots.txt can't be read; following the one that was read last, if any");
                }
                let age = if is_unreachable { PAUSE } else { MAX_AGE };
                match file.known.lock().clone().filter(|_| is_unreachable) {
                    Some(former) => (former.rules, former.bytes, age),
                    None => (Arc::new(self.allowing_all()), 0, age),
                }
            }
        };
        *file.known.lock() = Some(KnownFile {
            rules: Arc::clone(&rules),
            bytes,
            requested_at: now,
            until: now + age,
        });
        rules
    }

    fn allowing_all(&self) -> RobotsRules {
        RobotsRules::new(Robots::allow_all(), self.clock)
    }

    /// Forgets the files that were requested first, while there are too many of them.
    fn trim(&self) {
        let mut hosts = self.hosts.lock();
        let known = hosts.iter().filter_map(|(host, file)| {
            let known = file.known.lock();
            let known = known.as_ref()?;
            Some((known.requested_at, known.bytes, host.clone()))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        let mut bytes: usize = known.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, of_host, host) in known {
            if hosts.len() <= MOST_HOSTS && bytes <= MOST_BYTES {
                break;
            }
            hosts.remove(&host);
            bytes -= of_host;
        }
    }
}

impl RobotsFile {
    /// The rules, unless they are too old.
    fn current(&self, now: Instant) -> Option<Arc<RobotsRules>> {
        let known = self.known.lock();
        let known = known.as_ref().filter(|known| now < known.until)?;
        Some(Arc::clone(&known.rules))
    }
}

impl Client {
    /// The same client, which obeys robots.txt. All clones share what is known of it. `source`: the name of the Source, for the log.
    #[must_use]
    pub fn with_robots(mut self, source: &str) -> Self {
        let files = RobotsFiles::new(source, self.user_agent(), self.clock);
        self.robots = Some(Arc::new(files));
        self
    }

    /// This client and all its clones do not obey robots.txt any more: the Source has ResourceSync documents.
    pub fn disregard_robots(&self) {
        if let Some(robots) = &self.robots {
            robots.disregard();
        }
    }

    /// Reads the robots.txt of the host of a URL, unless it is known, so that its `Crawl-delay` holds also for documents.
    pub async fn read_robots(&self, url: &Url) {
        if let Some(robots) = self.obeyed_robots() {
            robots.rules_of(self, url).await;
        }
    }

    /// What is known of robots.txt, as long as it is obeyed.
    pub(super) fn obeyed_robots(&self) -> Option<&RobotsFiles> {
        let robots = self.robots.as_deref();
        robots.filter(|robots| robots.is_obeyed.load(Ordering::Relaxed))
    }

    /// Whether a URL may be requested that nobody has named as a document.
    pub(super) async fn is_allowed(&self, url: &Url) -> bool {
        match self.obeyed_robots() {
            Some(robots) => robots.rules_of(self, url).await.stated.is_url_allowed(url),
            None => true,
        }
    }

    /// The same client, which does not obey robots.txt.
    fn without_robots(&self) -> Self {
        let mut client = self.clone();
        client.robots = None;
        client
    }
}

/// The text of a robots.txt.
async fn read_text(client: &Client, url: &Url) -> Result<String, FetchError> {
    let mut document = client.try_document(url, MAX_BYTES, MAX_TEXT).await?;
    document.text(BYTE_LIMIT as u64 + 1)
}

/// Whether an error does not say that there is none (section 2.3.1.4).
fn is_unreachable(error: &FetchError) -> bool {
    error.status().is_some_and(|status| status >= 500) || error.class() == ErrorClass::Retry
}

fn host_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The name in a `User-Agent` header by which a robots.txt addresses the program (section 2.2.1).
fn product_token(user_agent: &str) -> &str {
    let end = user_agent.find(|c: char| c == '/' || c.is_whitespace());
    &user_agent[..end.unwrap_or(user_agent.len())]
}

#[cfg(test)]
mod tests;
