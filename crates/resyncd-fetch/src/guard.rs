//! The addresses that may be contacted: never from outside to inside.
//!
//! A Source states the URLs that the daemon fetches. It must not be able to reach the daemon's own network. So every URL is
//! checked before it is requested, and every name is resolved by [`GuardedResolver`], which returns only allowed addresses:
//! the checked address is the connected one, whatever the name resolves to next time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::error::{FetchError, ResolveError};
use super::third_parties::CountedRequest;
use crate::{HttpSettings, is_localhost, is_private_name};

/// Decides whether an address may be contacted.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// Whether loopback and private-range addresses may be contacted too.
    pub(super) allow_private: bool,
    /// Addresses that count as public; only in tests, as the public internet.
    pub(super) as_public: Arc<[IpAddr]>,
    /// The hosts that may be contacted wherever they are, as they are written in URLs.
    pub(super) trusted: Arc<[String]>,
}

/// The host of a URL that a person has typed, if it can only be the one that is meant: a name may resolve to what its owner likes.
pub(super) fn trusted_host_of(url: &Url) -> Option<String> {
    let is_plain = match url.host()? {
        Host::Domain(name) => is_localhost(name),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    };
    url.host_str().filter(|_| is_plain).map(str::to_owned)
}

impl Guard {
    /// The guard that the configuration states.
    pub(super) fn new(http: &HttpSettings) -> Self {
        Self {
            allow_private: http.allow_private_addresses,
            as_public: Arc::default(),
            trusted: Arc::default(),
        }
    }

    /// Checks a URL before its name is resolved.
    ///
    /// # Errors
    /// [`FetchError::Scheme`] and [`FetchError::ForbiddenAddress`].
    pub(super) fn check(&self, url: &Url) -> Result<(), FetchError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchError::Scheme(url.scheme().to_owned()));
        }
        if url.host_str().is_some_and(|host| self.trusts(host)) {
            return Ok(());
        }
        // The url crate normalizes every spelling of an IPv4 address (decimal, octal, short).
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) if is_localhost(name) && !self.allow_private => {
                return Err(FetchError::ForbiddenAddress(name.to_owned()));
            }
            Some(Host::Domain(_)) => return Ok(()),
            None => return Err(FetchError::Scheme(url.scheme().to_owned())),
        };
        if self.allows(address) {
            Ok(())
        } else {
            Err(FetchError::ForbiddenAddress(address.to_string()))
        }
    }

    /// Checks a URL whose name a proxy resolves, besides [`check`](Self::check): the name must be one that can be public.
    ///
    /// # Errors
    /// [`FetchError::ForbiddenAddress`].
    pub(super) fn check_unresolved(&self, url: &Url) -> Result<(), FetchError> {
        let Some(Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        if self.allow_private || self.trusts(name) || !is_private_name(name) {
            return Ok(());
        }
        Err(FetchError::ForbiddenAddress(name.to_owned()))
    }

    fn trusts(&self, host: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == host)
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allow_private || is_public(address) || self.as_public.contains(&address)
    }
}

/// Whether an address belongs to the public internet.
///
/// Special ranges do not: loopback, private, link-local and shared ranges, documentation and benchmark ranges, multicast,
/// broadcast, reserved ranges, and the IPv6 ranges that embed IPv4 addresses (NAT64, 6to4, Teredo, IPv4-compatible), since
/// they lead to private addresses through a gateway. Nor do the addresses that a provider of virtual machines answers itself.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None => is_public_v6(address),
        },
    }
}

/// Addresses of public ranges that providers use inside their networks, with the page that documents each. Other services of
/// this kind are in special ranges: 169.254.169.254 of most providers, 100.100.100.200 of Alibaba Cloud, 192.0.0.192 of Oracle
/// Cloud, fd00:ec2::254 of AWS.
const PROVIDER_INTERNAL: [Ipv4Addr; 1] = [
    // Azure's platform (WireServer), DNS and DHCP: credentials and extensions of the virtual machine.
    // https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The ranges of public addresses that only the machines of one provider reach, with the page that documents each.
const PROVIDER_RANGES: [Ipv4Net; 2] = [
    // Google Cloud: restricted.googleapis.com and private.googleapis.com.
    // https://cloud.google.com/vpc/docs/configure-private-google-access
    Ipv4Net::new_assert(Ipv4Addr::new(199, 36, 153, 4), 30),
    Ipv4Net::new_assert(Ipv4Addr::new(199, 36, 153, 8), 30),
];

fn is_of_provider(address: Ipv4Addr) -> bool {
    let mut ranges = PROVIDER_RANGES.iter();
    PROVIDER_INTERNAL.contains(&address) || ranges.any(|range| range.contains(&address))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    if is_of_provider(address) {
        return false;
    }
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)          // this network, private, loopback
            | (100, 64..=127, _)      // shared by carriers (CGNAT)
            | (169, 254, _)           // link-local
            | (172, 16..=31, _)       // private
            | (192, 0, 0 | 2)         // protocol assignments, documentation
            | (192, 88, 99)           // 6to4 relays
            | (192, 168, _)           // private
            | (198, 18..=19, _)       // benchmarks
            | (198, 51, 100)          // documentation
            | (203, 0, 113)           // documentation
            | (224..=255, _, _) // multicast, reserved, broadcast
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Only 2000::/3 is allocated as global unicast. Outside are loopback, IPv4-compatible addresses, NAT64
    // (64:ff9b::/96 and 64:ff9b:1::/48), unique local, link-local, site-local and multicast.
    if a & 0xe000 != 0x2000 {
        return false;
    }
    let is_special = match (a, b) {
        (0x2001, 0..=0x01ff) => true, // protocol assignments, Teredo, benchmarks, ORCHID
        (0x2001, 0x0db8) => true,     // documentation
        (0x2002, _) => true,          // 6to4
        (0x3fff, 0..=0x0fff) => true, // documentation
        _ => false,
    };
    !is_special
}

/// Resolves a name to addresses; the ports are ignored.
pub(super) type NameLookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The lookup of the operating system.
pub(super) fn system_lookup() -> NameLookup {
    Arc::new(|host| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.collect())
        })
    })
}

/// A resolver that removes the addresses that must not be contacted.
pub(super) struct GuardedResolver {
    pub(super) guard: Guard,
    pub(super) lookup: NameLookup,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        let host = name.as_str().to_owned();
        let resolving = (self.lookup)(host.clone());
        let limit = CountedRequest::current();
        Box::pin(async move {
            let mut allowed = match resolving.await {
                Ok(found) => found,
                Err(error) => return Err(ResolveError::Lookup(host, error).into()),
            };
            let is_trusted = guard.trusts(&host);
            allowed.retain(|found| is_trusted || guard.allows(found.ip()));
            if allowed.is_empty() {
                return Err(ResolveError::Forbidden(host).into());
            }
            // Trusted are the Source's own hosts and proxies: what is counted is the host behind the proxy.
            if let Some(limit) = limit.filter(|_| !is_trusted) {
                let counted = limit.count_addresses(&mut allowed);
                counted.map_err(ResolveError::Limited)?;
            }
            let allowed: Addrs = Box::new(allowed.into_iter());
            Ok(allowed)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use resyncd_core::ResourceUri;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{AllowedHosts, Client, HttpSettings, test_site};

    fn guard(allow_private: bool) -> Guard {
        Guard {
            allow_private,
            as_public: Arc::default(),
            trusted: Arc::default(),
        }
    }

    fn check(url: &str) -> Result<(), FetchError> {
        guard(false).check(&Url::parse(url).unwrap())
    }

    #[test]
    fn private_addresses_are_rejected_in_any_spelling() {
        for host in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "017700000001",
            "%31%32%37.0.0.1",
            "127。0。0。1",
            "0",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "168.63.129.16",
            "0xa83f8110",
            "[::ffff:168.63.129.16]",
            "100.100.100.200",
            "192.0.0.192",
            "[fd00:ec2::254]",
            "199.36.153.4",
            "199.36.153.11",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::ffff:10.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[::127.0.0.1]",
            "[::8.8.8.8]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::8.8.8.8]",
            "[64:ff9b:1::1]",
            "[100::1]",
            "[2001::1]",
            "[2001:0:53aa:64c:0:7fff:ffff:fffe]",
            "[2001:2::1]",
            "[2001:10::1]",
            "[2001:20::1]",
            "[2001:db8::1]",
            "[2002:7f00:1::]",
            "[2002:c0a8:1::1]",
            "[3fff::1]",
            "[4000::1]",
            "[5f00::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[fe80::1]",
            "[febf::1]",
            "[fec0::1]",
            "[ff02::1]",
            "localhost",
            "LOCALHOST.",
            "a.b.localhost",
        ] {
            let checked = check(&format!("http://{host}/x"));
            assert!(
                matches!(checked, Err(FetchError::ForbiddenAddress(_))),
                "{host}: {checked:?}"
            );
        }
    }

    #[test]
    fn public_addresses_and_names_pass() {
        for host in [
            "example.com",
            "localhost.example.com",
            "notlocalhost",
            "8.8.8.8",
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "[::ffff:8.8.8.8]",
            "[2001:200::1]",
            "[2606:4700::1111]",
            "[2a00:1450:4001::1]",
        ] {
            assert_eq!(check(&format!("https://{host}/")), Ok(()), "{host}");
        }
    }

    #[test]
    fn only_the_trusted_host_passes_where_it_is_private() {
        let mut guard = guard(false);
        for trusted in [
            "http://10.1.2.3/",
            "https://localhost:8080/",
            "http://[::1]/",
        ] {
            let trusted = Url::parse(trusted).unwrap();
            guard.trusted = trusted_host_of(&trusted).into_iter().collect();
            assert_eq!(guard.check(&trusted), Ok(()), "{trusted}");
            for other in ["http://10.1.2.4/", "http://127.0.0.1/", "http://[::2]/"] {
                let checked = guard.check(&Url::parse(other).unwrap());
                assert!(checked.is_err(), "{other} beside {trusted}");
            }
            let ftp = Url::parse("ftp://10.1.2.3/").unwrap();
            assert!(matches!(guard.check(&ftp), Err(FetchError::Scheme(_))));
        }
        let name = Url::parse("http://evil.example/").unwrap();
        assert_eq!(
            trusted_host_of(&name),
            None,
            "its owner decides where it leads"
        );
    }

    #[test]
    fn names_of_private_networks_are_not_given_to_a_proxy() {
        for (name, is_allowed) in [
            ("example.com", true),
            ("internal.example.com", true),
            ("notlocal.example", true),
            ("intranet", false),
            ("intranet.", false),
            ("metadata.google.internal", false),
            ("printer.local", false),
            ("router.home.arpa.", false),
            ("a.localhost", false),
            ("wiki.corp", false),
            ("web.default.svc", false),
            ("web.service.consul", false),
            ("source.test", false),
            ("expyuzz4wqqyqhjn.onion", false),
        ] {
            let url = Url::parse(&format!("https://{name}/")).unwrap();
            assert_eq!(
                guard(false).check_unresolved(&url).is_ok(),
                is_allowed,
                "{name}"
            );
            assert_eq!(guard(true).check_unresolved(&url), Ok(()), "{name}");
        }
    }

    #[test]
    fn only_http_and_https_pass() {
        for url in ["ftp://example.com/", "file:///etc/passwd", "data:,x"] {
            assert!(matches!(check(url), Err(FetchError::Scheme(_))), "{url}");
        }
    }

    #[test]
    fn private_addresses_pass_when_they_are_allowed() {
        let guard = guard(true);
        let url = Url::parse("http://127.0.0.1:8080/").unwrap();
        assert_eq!(guard.check(&url), Ok(()));
    }

    /// Answers every connection to an address, and counts them.
    async fn counting(address: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        });
        (address, count)
    }

    /// Stands for the public internet.
    const PUBLIC: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    const INNER: Ipv4Addr = Ipv4Addr::LOCALHOST;
    /// The results of successive lookups.
    const ANSWERS: [&[Ipv4Addr]; 5] = [
        &[PUBLIC],
        &[INNER],
        &[INNER, PUBLIC],
        &[PUBLIC, INNER],
        &[INNER, Ipv4Addr::new(10, 0, 0, 1)],
    ];

    #[tokio::test]
    async fn the_checked_address_is_the_connected_address() {
        let (address, asked) = counting((PUBLIC, 0).into()).await;
        let (_, inside) = counting((INNER, address.port()).into()).await;
        let lookups = Arc::new(AtomicUsize::new(0));
        let counter = lookups.clone();
        let lookup: NameLookup = Arc::new(move |host| {
            assert_eq!(host, "rebinding.example");
            let addresses = ANSWERS[counter.fetch_add(1, Ordering::SeqCst)];
            let found = addresses.iter().map(|&ip| (ip, 0).into()).collect();
            Box::pin(std::future::ready(Ok(found)))
        });
        let http = HttpSettings {
            allow_private_addresses: false,
            ..test_site::http()
        };
        let guard = Guard {
            as_public: [IpAddr::V4(PUBLIC)].into(),
            trusted: Arc::default(),
            ..guard(false)
        };
        let client = Client::guarded(&http, guard, lookup, test_site::now).unwrap();
        let url = format!("http://rebinding.example:{}/", address.port());
        let uri = ResourceUri::parse(&url).unwrap();
        let any = AllowedHosts::any();
        for (lookup, addresses) in ANSWERS.iter().enumerate() {
            let answer = client.get_content(&uri, &any, None, None).await;
            let code = answer.map(drop).map_err(|error| error.code());
            let expected = if addresses.contains(&PUBLIC) {
                Ok(())
            } else {
                Err("forbidden-address")
            };
            assert_eq!(code, expected, "{addresses:?}");
            assert_eq!(lookups.load(Ordering::SeqCst), lookup + 1);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert_eq!(inside.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_name_without_a_public_address_is_rejected() {
        let resolver = GuardedResolver {
            guard: guard(false),
            lookup: system_lookup(),
        };
        let resolved = resolver.resolve("localhost".parse().unwrap()).await;
        let error = resolved.err().unwrap();
        assert!(matches!(
            error.downcast_ref(),
            Some(ResolveError::Forbidden(_))
        ));
    }
}
