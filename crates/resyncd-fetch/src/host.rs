//! Hosts of URIs: which are this machine, and which names are private.
//!
//! Invariant: this is the only list of private names. Whoever warns of one, or refuses to contact one, asks here.
//!
//! Must not resolve a name, nor know which addresses may be contacted.

use std::net::IpAddr;

use url::{Host, Url};

/// The ends of names that are not in the public DNS: special-use domains (RFC 6761, RFC 6762, RFC 7686, RFC 8375, RFC 9476), `internal`
/// (reserved by ICANN), and what private networks use: RFC 6762, appendix G; `svc` and `cluster.local` of Kubernetes; `consul` of Consul.
const PRIVATE_ENDS: [&str; 16] = [
    "alt",
    "cluster.local",
    "consul",
    "corp",
    "home",
    "home.arpa",
    "internal",
    "intranet",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "svc",
    "test",
];

/// Whether a name is another, or is below it. A dot may end the first one.
#[must_use]
pub fn is_at_or_below(name: &str, domain: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let before = name.strip_suffix(domain);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Whether a name stands for this machine, whatever it resolves to (RFC 6761, section 6.3).
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    is_at_or_below(name, "localhost")
}

/// Whether a name can only be one of a private network, or of this machine. In lower case, as in a parsed URL.
#[must_use]
pub fn is_private_name(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    !bare.contains('.') || PRIVATE_ENDS.iter().any(|end| is_at_or_below(bare, end))
}

/// The address that a host is; `None`: it is a name. An IPv4 address in an IPv6 address is that address.
#[must_use]
pub fn address_of<S>(host: &Host<S>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some(IpAddr::from(*address).to_canonical()),
        Host::Domain(_) => None,
    }
}

/// Whether a host is this machine.
#[must_use]
pub fn is_own_machine<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => is_localhost(name.as_ref()),
        host => address_of(host).is_some_and(|address| address.is_loopback()),
    }
}

/// Whether what is sent to a URL leaves this machine without TLS.
#[must_use]
pub fn is_in_the_clear(url: &Url) -> bool {
    let leaves = url.host().is_some_and(|host| !is_own_machine(&host));
    url.scheme() == "http" && leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_names_are_those_that_no_public_dns_has() {
        for (name, expected) in [
            ("example.com", false),
            ("internal.example.com", false),
            ("notlocal.example", false),
            ("test.example.org", false),
            ("onion.org.", false),
            ("svc.example.net", false),
            ("intranet", true),
            ("intranet.", true),
            ("localhost", true),
            ("a.localhost", true),
            ("metadata.google.internal", true),
            ("printer.local", true),
            ("router.home.arpa.", true),
            ("wiki.corp", true),
            ("nas.lan", true),
            ("web.default.svc", true),
            ("web.default.svc.cluster.local", true),
            ("web.service.consul", true),
            ("source.test", true),
            ("expyuzz4wqqyqhjn.onion", true),
        ] {
            assert_eq!(is_private_name(name), expected, "{name}");
        }
    }

    #[test]
    fn what_stays_on_this_machine_is_not_in_the_clear() {
        for (url, expected) in [
            ("http://example.org/", true),
            ("https://example.org/", false),
            ("http://web.default.svc/", true),
            ("http://notlocalhost/", true),
            ("http://localhost/", false),
            ("http://a.localhost.:81/", false),
            ("http://127.0.0.1/", false),
            ("http://127.9.9.9/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://192.168.0.1/", true),
        ] {
            assert_eq!(
                is_in_the_clear(&Url::parse(url).unwrap()),
                expected,
                "{url}"
            );
        }
    }
}
