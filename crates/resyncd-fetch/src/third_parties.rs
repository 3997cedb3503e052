//! Limits the requests that a Source can cause to hosts that are not its own: hubs, topics, documents, packages, resources.
//!
//! Own hosts are those that the configuration names, and names below them. Every other host has two leaky buckets per Source: a
//! large one for resources and their duplicates, because many Sources keep them on another host than their documents, and a
//! small one for everything else. In no hour are there more requests than the limit. So has every address that the names of other hosts
//! resolve to, whatever their number: a request counts for the name and for its addresses.
//!
//! Addresses are those that the resolver hands to the connection: a look-up of its own could have another answer.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::{Host, Url};

use super::FetchError;
use super::permits::Pool;
use crate::Clock;

const HOUR: Duration = Duration::from_secs(3600);
/// How many times as many requests for resources there may be as other requests.
const RESOURCES_PER_REQUEST: u32 = 600;
/// How long a request waits until it is allowed; if that takes longer it fails.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How many buckets are remembered. A Source that names more hosts at once waits.
const MOST_BUCKETS: usize = 16_384;
/// How often the buckets that are empty are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// How many addresses of a name are used.
const MOST_ADDRESSES: usize = 16;

/// The ports of other protocols, which may take a request for one of theirs (<https://fetch.spec.whatwg.org/#port-blocking>).
const FORBIDDEN_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
];

/// The limit of one Source.
pub(super) struct ThirdParties {
    /// Host names, with or without a port.
    own: Vec<String>,
    /// The most requests to one host in any hour, without those for resources.
    per_hour: u32,
    buckets: Mutex<Buckets>,
    clock: Clock,
}

#[derive(Default)]
struct Buckets {
    /// When each bucket will be empty: of a host with its port, or of an address.
    empty_at: HashMap<(bool, String), Instant>,
    /// The addresses of hosts with their ports, as they were resolved last. Only of hosts that have a bucket.
    addresses: HashMap<String, Vec<IpAddr>>,
    swept_at: Option<Instant>,
}

tokio::task_local! {
    /// The request for which a connection is opened. The resolver serves the connections of all Sources, and gets nothing but a name.
    static COUNTED: CountedRequest;
}

/// A request to a host of somebody else.
#[derive(Clone)]
pub(super) struct CountedRequest {
    third_parties: Arc<ThirdParties>,
    is_resource: bool,
    /// With the port.
    host: String,
}

impl CountedRequest {
    /// Sends it: what is resolved meanwhile counts for it.
    pub(super) async fn while_sending<T>(self, sending: impl Future<Output = T>) -> T {
        COUNTED.scope(self, sending).await
    }

    /// The request that is being sent.
    pub(super) fn current() -> Option<Self> {
        COUNTED.try_with(Clone::clone).ok()
    }

    /// Counts the request for the addresses of its host that were not known when the request itself was counted, and drops addresses that
    /// are too many.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if there were too many to any of them.
    pub(super) fn count_addresses(&self, found: &mut Vec<SocketAddr>) -> Result<(), FetchError> {
        found.truncate(MOST_ADDRESSES);
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        let mut buckets = self.third_parties.buckets.lock();
        let known = buckets.addresses.get(&self.host);
        let is_new = |it: &&IpAddr| known.is_none_or(|known| !known.contains(it));
        let new = addresses.iter().filter(is_new).map(IpAddr::to_string);
        let new: Vec<String> = new.collect();
        let most = self.third_parties.most(self.is_resource);
        buckets.count(
            self.is_resource,
            most,
            &new,
            (self.third_parties.clock)().mono,
        )?;
        buckets.addresses.insert(self.host.clone(), addresses);
        Ok(())
    }
}

impl ThirdParties {
    /// The limit of a Source with these hosts: so many requests per hour.
    pub(super) fn new<'a>(
        urls: impl Iterator<Item = &'a Url>,
        hosts: impl Iterator<Item = String>,
        per_hour: u32,
        clock: Clock,
    ) -> Self {
        Self {
            own: urls.map(authority).chain(hosts).collect(),
            per_hour: per_hour.max(2),
            buckets: Mutex::default(),
            clock,
        }
    }

    /// Counts a request, and waits until it is allowed; `None`: it is to a host of the Source.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if that takes longer than 15 seconds, and [`FetchError::ForbiddenPort`].
    pub(super) async fn wait(
        self: &Arc<Self>,
        pool: Pool,
        url: &Url,
    ) -> Result<Option<CountedRequest>, FetchError> {
        self.check_port(url)?;
        if self.owns(url) {
            return Ok(None);
        }
        loop {
            match self.count(pool, url, (self.clock)().mono) {
                Err(FetchError::ThirdPartyLimit { retry_after, .. })
                    if retry_after <= LONGEST_WAIT =>
                {
                    tokio::time::sleep(retry_after).await;
                }
                counted => {
                    counted?;
                    return Ok(Some(CountedRequest {
                        third_parties: Arc::clone(self),
                        is_resource: pool == Pool::Content,
                        host: authority(url),
                    }));
                }
            }
        }
    }

    /// Checks that a port is none of another protocol, unless the configuration states it.
    fn check_port(&self, url: &Url) -> Result<(), FetchError> {
        let Some(port) = url.port().filter(|port| FORBIDDEN_PORTS.contains(port)) else {
            return Ok(());
        };
        let suffix = format!(":{port}");
        if self.own.iter().any(|own| own.ends_with(&suffix)) {
            return Ok(());
        }
        Err(FetchError::ForbiddenPort(port))
    }

    /// The most requests in an hour.
    fn most(&self, is_resource: bool) -> u32 {
        if is_resource {
            self.per_hour.saturating_mul(RESOURCES_PER_REQUEST)
        } else {
            self.per_hour
        }
    }

    /// Counts a request to a host of somebody else, and to its addresses as far as they are known.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if there were too many to any of them.
    fn count(&self, pool: Pool, url: &Url, now: Instant) -> Result<(), FetchError> {
        let is_resource = pool == Pool::Content;
        let host = authority(url);
        let mut buckets = self.buckets.lock();
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        let known = buckets.addresses.get(&host).into_iter().flatten().copied();
        let addresses = known.chain(literal).map(|it: IpAddr| it.to_string());
        let counted: Vec<String> = [host.clone()].into_iter().chain(addresses).collect();
        buckets.count(is_resource, self.most(is_resource), &counted, now)
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
    /// Counts a request in each of these buckets, or in none.
    ///
    /// # Errors
    /// [`FetchError::ThirdPartyLimit`] if one of them is full.
    fn count(
        &mut self,
        is_resource: bool,
        most: u32,
        counted: &[String],
        now: Instant,
    ) -> Result<(), FetchError> {
        // A full bucket and what leaks in an hour are the limit together.
        let burst = most / 2;
        let interval = HOUR / burst;
        let level = |empty_at: Instant| empty_at.saturating_duration_since(now);
        for host in counted {
            let limited = |retry_after| FetchError::ThirdPartyLimit {
                host: host.clone(),
                retry_after,
            };
            let key = (is_resource, host.clone());
            let Some(&empty_at) = self.empty_at.get(&key) else {
                if !self.make_room(counted.len(), now) {
                    return Err(limited(SWEEP));
                }
                continue;
            };
            let room_at = level(empty_at).saturating_sub(HOUR.saturating_sub(interval));
            if room_at > Duration::ZERO {
                return Err(limited(room_at));
            }
        }
        for host in counted {
            let empty_at = self
                .empty_at
                .entry((is_resource, host.clone()))
                .or_insert(now);
            *empty_at = now + level(*empty_at) + interval;
        }
        Ok(())
    }

    /// Whether there is room for so many more buckets.
    fn make_room(&mut self, more: usize, now: Instant) -> bool {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= SWEEP;
        if self.empty_at.len() >= MOST_BUCKETS / 2 && self.swept_at.is_none_or(is_due) {
            self.swept_at = Some(now);
            self.empty_at.retain(|_, empty_at| *empty_at > now);
            let has_bucket = |host: &String| {
                let mut keys = [true, false]
                    .map(|is_resource| (is_resource, host.clone()))
                    .into_iter();
                keys.any(|key| self.empty_at.contains_key(&key))
            };
            self.addresses.retain(|host, _| has_bucket(host));
        }
        self.empty_at.len() + more <= MOST_BUCKETS
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
    use axum::response::IntoResponse;

    use super::*;
    use crate::client::Follow;
    use crate::guard::{Guard, NameLookup};
    use crate::test_site::{self, TestSite};
    use crate::{Client, Credentials};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn limit(entry: &str, per_hour: u32) -> ThirdParties {
        let cdn = ["cdn.example".to_owned()].into_iter();
        ThirdParties::new([&url(entry)].into_iter(), cdn, per_hour, test_site::now)
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
        let began = test_site::now().mono;
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
        let now = test_site::now().mono;
        let count = |pool, host: &str| limit.count(pool, &url(host), now);
        assert!(count(Pool::Documents, "https://a.example/").is_ok());
        let error = count(Pool::Packages, "https://a.example/x").unwrap_err();
        assert_eq!(
            (error.code(), error.retry_after()),
            ("third-party-limit", Some(HOUR))
        );
        assert!(count(Pool::Documents, "https://b.example/").is_ok());
        assert!(count(Pool::Content, "https://a.example/").is_ok());
        assert!(limit.owns(&url("https://source.example/")));
    }

    #[test]
    fn names_of_one_address_have_one_limit() {
        let limit = Arc::new(limit("https://source.example/", 100));
        let now = test_site::now().mono;
        let address: SocketAddr = ([192, 0, 2, 7], 0).into();
        let other: SocketAddr = ([192, 0, 2, 8], 0).into();
        let request = |number: usize, addresses: &[SocketAddr]| {
            let url = url(&format!("https://h{number}.example/"));
            limit.count(Pool::Documents, &url, now)?;
            let request = CountedRequest {
                third_parties: Arc::clone(&limit),
                is_resource: false,
                host: authority(&url),
            };
            request.count_addresses(&mut addresses.to_vec())
        };
        let sent = (0..1000).filter(|&number| request(number, &[address]).is_ok());
        let sent = sent.count();
        assert!((50..=51).contains(&sent), "{sent}");
        // Nor does it help to name others as well, or the address itself.
        assert!(request(1001, &[other, address]).is_err());
        let itself = url("http://192.0.2.7:8080/");
        assert!(limit.count(Pool::Documents, &itself, now).is_err());
        assert!(request(1002, &[other]).is_ok());
        assert!(limit.count(Pool::Content, &itself, now).is_ok());
    }

    #[tokio::test]
    async fn addresses_are_counted_as_they_are_connected() {
        let site = TestSite::start(|_| "ok".into_response()).await;
        let port = url(&site.url("/")).port().unwrap();
        let lookup: NameLookup = Arc::new(|_| {
            let found = vec![([127, 0, 0, 1], 0).into()];
            Box::pin(std::future::ready(Ok(found)))
        });
        let guard = Guard {
            allow_private: true,
            as_public: Arc::default(),
            trusted: Arc::default(),
        };
        let client = Client::guarded(&test_site::http(), guard, lookup, test_site::now).unwrap();
        // One at once, whatever the name.
        let client = client.for_source(
            [&url("https://source.example/")].into_iter(),
            &[],
            &Credentials::default(),
            2,
        );
        let mut codes = Vec::new();
        for number in 0..4 {
            let hub = url(&format!("http://h{number}.example:{port}/"));
            let answer = client.ask(
                Pool::Documents,
                &hub,
                Follow::All,
                |_| Ok(()),
                |http, url| http.get(url),
            );
            codes.push(answer.await.map(drop).map_err(|error| error.code()));
        }
        let limited = Err("third-party-limit");
        assert_eq!(codes, [Ok(()), limited, limited, limited]);
    }

    #[test]
    fn ports_of_other_protocols_are_requested_only_if_they_are_configured() {
        let limit = limit("https://source.example:6667/", 2);
        for (text, expected) in [
            ("https://source.example/", true),
            ("http://source.example:8080/", true),
            ("http://source.example:6667/", true),
            ("http://cdn.example:25/", false),
            ("http://hub.example:22/", false),
            ("http://hub.example:10080/", false),
            ("http://hub.example:8443/", true),
        ] {
            let checked = limit.check_port(&url(text));
            assert_eq!(checked.is_ok(), expected, "{text}: {checked:?}");
        }
    }

    #[test]
    fn number_of_hosts_is_bounded() {
        let limit = limit("https://source.example/", 600);
        let now = test_site::now().mono;
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
