//! Limits the requests that a Source can cause to hosts that are not its own: hubs, topics, documents, packages, resources.
//!
//! Own hosts are those that the configuration names, and names below them. Every other host has two leaky buckets per Source: a
//! large one for resources and their duplicates, because many Sources keep them on another host than their documents, and a
//! small one for everything else. In no hour are there more requests than the limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::FetchError;
use super::permits::Pool;
use crate::clock;
use crate::config::Source;

const HOUR: Duration = Duration::from_secs(3600);
/// How many times as many requests for resources there may be as other requests.
const RESOURCES_PER_REQUEST: u32 = 600;
/// How long a request waits until it is allowed; if that takes longer it fails.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How many buckets are remembered. A Source that names more hosts at once waits.
const MOST_BUCKETS: usize = 16_384;
/// How often the buckets that are empty are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// The limit of one Source.
pub(super) struct ThirdParties {
    /// Host names, with or without a port.
    own: Vec<String>,
    /// The most requests to one host in any hour, without those for resources.
    per_hour: u32,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// When each bucket will be empty.
    empty_at: HashMap<(bool, String), Instant>,
    swept_at: Option<Instant>,
}

impl ThirdParties {
    /// The limit of a Source: so many requests per hour.
    pub(super) fn of(source: &Source, per_hour: u32) -> Self {
        let hub = source.hub.as_ref().map(|hub| hub.url());
        let urls = [&source.url].into_iter().chain(&source.sets).chain(hub);
        let mut own: Vec<String> = urls.map(authority).collect();
        own.extend(source.hosts.iter().cloned());
        own.extend(source.credentials.hosts());
        Self {
            own,
            per_hour: per_hour.max(2),
            buckets: Mutex::default(),
        }
    }

    /// Counts a request, and waits until it is allowed.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if that takes longer than 15 seconds.
    pub(super) async fn wait(&self, pool: Pool, url: &Url) -> Result<(), FetchError> {
        loop {
            match self.count(pool, url, clock::now().mono) {
                Err(FetchError::ThirdPartyLimit { retry_after, .. })
                    if retry_after <= LONGEST_WAIT =>
                {
                    tokio::time::sleep(retry_after).await;
                }
                counted => return counted,
            }
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if there were too many to its host.
    fn count(&self, pool: Pool, url: &Url, now: Instant) -> Result<(), FetchError> {
        if self.owns(url) {
            return Ok(());
        }
        let is_resource = pool == Pool::Content;
        let most = match is_resource {
            true => self.per_hour.saturating_mul(RESOURCES_PER_REQUEST),
            false => self.per_hour,
        };
        // A full bucket and what leaks in an hour are the limit together.
        let burst = most / 2;
        let interval = HOUR / burst;
        let host = authority(url);
        let limited = |retry_after| FetchError::ThirdPartyLimit {
            host: host.clone(),
            retry_after,
        };
        let mut buckets = self.buckets.lock();
        let key = (is_resource, host.clone());
        if !buckets.empty_at.contains_key(&key) && !buckets.make_room(now) {
            return Err(limited(SWEEP));
        }
        let empty_at = buckets.empty_at.entry(key).or_insert(now);
        let level = empty_at.saturating_duration_since(now);
        let room_at = level.saturating_sub(HOUR.saturating_sub(interval));
        if room_at > Duration::ZERO {
            return Err(limited(room_at));
        }
        *empty_at = now + level + interval;
        Ok(())
    }

    /// Whether a URL is on a host of the Source, or on one whose name is below.
    fn owns(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else {
            return false;
        };
        let port = url.port_or_known_default();
        self.own.iter().any(|own| {
            let (name, own_port) = match own.rsplit_once(':') {
                Some((name, port)) if !own.ends_with(']') => (name, port.parse().ok()),
                _ => (own.as_str(), None),
            };
            let is_default = matches!(port, Some(80 | 443));
            let is_port = own_port.is_none() || own_port == port || is_default;
            let domain = name.strip_prefix("www.").unwrap_or(name);
            let is_below = url.domain().is_some()
                && domain.contains('.')
                && host
                    .strip_suffix(domain)
                    .is_some_and(|below| below.ends_with('.'));
            is_port && (host == name || host == domain || is_below)
        })
    }
}

impl Buckets {
    /// Whether there is room for another bucket.
    fn make_room(&mut self, now: Instant) -> bool {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= SWEEP;
        if self.empty_at.len() >= MOST_BUCKETS / 2 && self.swept_at.is_none_or(is_due) {
            self.swept_at = Some(now);
            self.empty_at.retain(|_, empty_at| *empty_at > now);
        }
        self.empty_at.len() < MOST_BUCKETS
    }
}

/// Host and port.
fn authority(url: &Url) -> String {
    format!(
        "{}:{}",
        url.host_str().unwrap_or_default(),
        url.port_or_known_default().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn limit(entry: &str, per_hour: u32) -> ThirdParties {
        let mut source = Source::new("a", url(entry), "/srv/a");
        source.hosts = vec!["cdn.example".to_owned()];
        ThirdParties::of(&source, per_hour)
    }

    #[test]
    fn hosts_of_the_source_are_not_limited() {
        let limit = limit("https://www.source.example/", 2);
        for (text, expected) in [
            ("https://www.source.example/a", true),
            ("http://www.source.example/a", true),
            ("http://source.example/a", true),
            ("https://files.source.example/a", true),
            ("https://cdn.example:8443/a", true),
            ("https://a.cdn.example/a", true),
            ("https://www.source.example:8080/a", false),
            ("https://evilsource.example/a", false),
            ("https://source.example.evil/a", false),
            ("https://example/a", false),
            ("https://hub.example/a", false),
            ("https://198.51.100.7/a", false),
        ] {
            assert_eq!(limit.owns(&url(text)), expected, "{text}");
        }
        // The same address with another port is somebody else.
        let local = super::tests::limit("http://127.0.0.1:8001/", 2);
        assert!(local.owns(&url("http://127.0.0.1:8001/a")));
        assert!(!local.owns(&url("http://127.0.0.1:8002/a")));
    }

    #[test]
    fn no_hour_has_more_requests_than_the_limit() {
        let began = clock::now().mono;
        for (pool, most) in [
            (Pool::Documents, 100),
            (Pool::Packages, 100),
            (Pool::Content, 100 * RESOURCES_PER_REQUEST),
        ] {
            let limit = limit("https://source.example/", 100);
            let sent = |from: u32, to: u32| {
                let mut sent = 0;
                for second in from..to {
                    let now = began + Duration::from_secs(second.into());
                    let hub = url("https://hub.example/");
                    while limit.count(pool, &hub, now).is_ok() {
                        sent += 1;
                    }
                }
                sent
            };
            assert_eq!(sent(0, 60).min(most / 2), most / 2, "{pool:?}: at once");
            let rest = sent(60, 3600);
            assert!(rest <= most / 2, "{pool:?}: {rest} more");
            let next = sent(3600, 7200);
            assert!(
                (most / 2 - 2..=most / 2 + 1).contains(&next),
                "{pool:?}: {next} later"
            );
        }
    }

    #[test]
    fn another_host_and_another_kind_have_limits_of_their_own() {
        let limit = limit("https://source.example/", 2);
        let now = clock::now().mono;
        let count = |pool, host: &str| limit.count(pool, &url(host), now);
        assert!(count(Pool::Documents, "https://a.example/").is_ok());
        let error = count(Pool::Packages, "https://a.example/x").unwrap_err();
        assert_eq!(
            (error.code(), error.retry_after()),
            ("third-party-limit", Some(HOUR))
        );
        assert!(count(Pool::Documents, "https://b.example/").is_ok());
        assert!(count(Pool::Content, "https://a.example/").is_ok());
        assert!(count(Pool::Documents, "https://source.example/").is_ok());
    }

    #[test]
    fn number_of_hosts_is_bounded() {
        let limit = limit("https://source.example/", 600);
        let now = clock::now().mono;
        let count = |number: usize, now: Instant| {
            let url = url(&format!("https://h{number}.example/"));
            limit.count(Pool::Documents, &url, now).is_ok()
        };
        let counted = (0..2 * MOST_BUCKETS)
            .filter(|&number| count(number, now))
            .count();
        assert_eq!(counted, MOST_BUCKETS);
        assert!(count(2 * MOST_BUCKETS, now + HOUR));
        assert_eq!(limit.buckets.lock().empty_at.len(), 1);
    }
}
