//! Parses the values of the configuration file. Pure; every error states what is expected.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use resourcesync::uri::parse_uri;
use resyncd_core::{ResourceUri, UriError, hide_userinfo};
use url::Url;

use crate::config::fault::{Parsed, Reason};

/// Ten years: longer ones are mistakes, and could overflow dates.
const MAX_DURATION_DAYS: u64 = 3650;
/// The units of durations, in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];
/// The units of sizes, in bytes.
const SIZE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1000_u64.pow(2)),
    ("GB", 1000_u64.pow(3)),
    ("TB", 1000_u64.pow(4)),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// An integer with a unit: how many of the smallest unit it is. `None`: it is anything else; `u64::MAX`: it is larger.
fn parse_quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let is_other = |c: char| !c.is_ascii_digit();
    let (digits, unit) = text.split_at(text.find(is_other).unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let number = digits.parse().unwrap_or(u64::MAX);
    (!digits.is_empty()).then(|| number.saturating_mul(*factor))
}

/// A duration such as `"90s"`, `"15m"`, `"2h"`, `"10d"` or `"500ms"`.
pub(super) fn parse_duration(text: &str) -> Parsed<Duration> {
    let bad = || reason!("bad-duration": "{text:?} is not a duration: an integer and ms, s, m, h or d, such as \"15m\"");
    let millis = parse_quantity(text, &DURATION_UNITS).ok_or_else(bad)?;
    let longest = MAX_DURATION_DAYS * 24 * 60 * 60 * 1000;
    ensure!(millis <= longest, "out-of-range": "{text:?} is longer than {MAX_DURATION_DAYS}d");
    Ok(Duration::from_millis(millis))
}

/// A duration, or `"0"` for never, which needs no unit.
pub(super) fn parse_duration_or_never(text: &str) -> Parsed<Duration> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}

/// A duration longer than zero.
pub(super) fn parse_nonzero_duration(text: &str) -> Parsed<Duration> {
    let duration = parse_duration(text)?;
    ensure!(!duration.is_zero(), "out-of-range": "{text:?} is too short: it must be longer than zero");
    Ok(duration)
}

/// A lease: at least 1 s, in whole seconds, as `hub.lease_seconds` requires.
pub(super) fn parse_lease(text: &str) -> Parsed<Duration> {
    let lease = parse_duration(text)?;
    let is_whole = lease.as_secs() > 0 && lease.subsec_nanos() == 0;
    ensure!(is_whole, "out-of-range": "{text:?} is not a lease: it must be whole seconds, at least 1");
    Ok(lease)
}

/// A number of bytes such as `"64MiB"`, `"8MB"`, `"512KiB"` or `"1000"`.
pub(super) fn parse_size(text: &str) -> Parsed<u64> {
    let bad = || {
        reason!("bad-size":
            "{text:?} is not a size: an integer, alone or with kB, KiB, MB, MiB, GB, GiB, TB or TiB, such as \"64MiB\"")
    };
    let size = parse_quantity(text, &SIZE_UNITS).ok_or_else(bad)?;
    // The limit of SQLite's integers.
    ensure!(i64::try_from(size).is_ok(), "out-of-range": "{text:?} is too large");
    Ok(size)
}

/// A size larger than zero.
pub(super) fn parse_nonzero_size(text: &str) -> Parsed<u64> {
    let size = parse_size(text)?;
    ensure!(size > 0, "out-of-range": "{text:?} would reject everything; only `resource` and `package` may be unlimited");
    Ok(size)
}

/// The longest URI in bytes. Shorter ones than the least that is allowed would reject what every Source has.
pub(super) fn parse_uri_length(text: &str) -> Parsed<usize> {
    let size = parse_size(text)?;
    ensure!((256..=64 << 10).contains(&size), "out-of-range": "{text:?} is not from 256B to 64KiB");
    Ok(size as usize)
}

/// A fraction from 0 to 1, of a text such as `"10%"` or `"2.5%"`.
pub(super) fn parse_share(text: &str) -> Parsed<f64> {
    text.strip_suffix('%')
        // Rust's syntax of numbers also has signs, exponents and infinity.
        .filter(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .and_then(|number| number.parse::<f64>().ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(
            || reason!("bad-percentage": "{text:?} is not a percentage from \"0%\" to \"100%\""),
        )
}

/// A number in a range.
pub(super) fn within<T: PartialOrd + Display, N: TryFrom<T>>(
    range: &RangeInclusive<T>,
    number: Option<T>,
) -> Parsed<N> {
    number
        .filter(|number| range.contains(number))
        .and_then(|number| N::try_from(number).ok())
        .ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            reason!("out-of-range": "out of range: it must be from {least} to {most}")
        })
}

/// Bytes in a second, 0: without a limit. Less would look like a server that does not answer.
pub(super) fn parse_bandwidth(text: &str) -> Parsed<u64> {
    let bytes = parse_size(text)?;
    ensure!(bytes == 0 || bytes >= 1 << 10, "out-of-range": "{text:?} is less than 1KiB");
    Ok(bytes)
}

/// An IP address with a port. Host names are not resolved: they may have several addresses.
pub(super) fn parse_address(text: &str) -> Parsed<SocketAddr> {
    text.parse()
        .map_err(|_| reason!("bad-address": "{text:?} is not an IP address with a port, such as \"127.0.0.1:8461\" or \"[::1]:8461\""))
}

/// An absolute http or https URL, without its fragment.
pub(super) fn parse_url(text: &str) -> Parsed<Url> {
    let shown = hide_userinfo(text);
    match ResourceUri::parse(text) {
        Ok(uri) => Ok(uri.url().clone()),
        Err(UriError::Syntax(..)) if !text.contains("://") => Err(
            reason!("bad-url": "{shown:?} is not a URL: it must begin with http:// or https://"),
        ),
        Err(UriError::Syntax(_, why)) => Err(reason!("bad-url": "{shown:?} is not a URL: {why}")),
        Err(UriError::Scheme(_)) => Err(reason!("bad-url": "{shown:?} is neither http nor https")),
    }
}

/// The public URL of the callback listener. Tokens are appended to it: it gets a final slash and has no query or fragment.
pub(crate) fn parse_public_url(text: &str) -> Parsed<Url> {
    let mut url = parse_url(text)?;
    let shown = hide_userinfo(text);
    let why = "it must end with its path, because tokens are appended to it";
    ensure!(!text.contains('#'), "bad-url": "{shown:?} has a fragment: {why}");
    ensure!(url.query().is_none(), "bad-url": "{shown:?} has a query: {why}");
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// A host with or without a port, normalised as in URIs: lower case, punycode.
pub(super) fn parse_host(text: &str) -> Parsed<String> {
    let bad = || bad_host(text);
    // A glob pattern would be a host name that never matches.
    let foreign = |c: char| "/?#@\\*%".contains(c) || c.is_whitespace() || c.is_control();
    if text.contains(foreign) {
        return Err(bad());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let url = parse_uri(&format!("http://{host}/")).map_err(|_| bad())?;
    let host = url
        .host_str()
        .filter(|_| url.port().is_none())
        .ok_or_else(bad)?;
    let Some(port) = port else {
        return Ok(host.to_owned());
    };
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|_| digits).ok_or_else(bad)?;
    Ok(format!("{host}:{port}"))
}

pub(super) fn bad_host(text: &str) -> Reason {
    let shown = hide_userinfo(text);
    reason!("bad-host": "{shown:?} is not a host, such as \"example.com\" or \"example.com:8080\"")
}

/// The name of a Source: it occurs in URLs, metrics and log lines.
pub(super) fn parse_name(text: &str) -> Parsed<String> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    ensure!(!text.is_empty() && text.bytes().all(allowed), "bad-name": "{text:?} is not a name: one or more of a to z, 0 to 9 and -");
    Ok(text.to_owned())
}

/// A `User-Agent`; `<version>` is replaced by the program's version.
pub(super) fn parse_user_agent(text: &str) -> Parsed<String> {
    let printable = text.bytes().all(|b| (0x20..=0x7e).contains(&b));
    ensure!(!text.is_empty() && text.trim() == text && printable, "bad-user-agent":
        "{text:?} is not a valid header: it must be printable ASCII, not empty, without leading or trailing spaces");
    Ok(text.replace("<version>", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check<T: PartialEq + std::fmt::Debug>(
        parse: impl Fn(&str) -> Parsed<T>,
        table: &[(&str, Result<T, &str>)],
    ) {
        for (text, expected) in table {
            let found = parse(text);
            let found = found.as_ref().map_err(|reason| reason.code);
            assert_eq!(found, expected.as_ref().map_err(|code| *code), "{text:?}");
        }
    }

    #[test]
    fn durations() {
        let bad = Err("bad-duration");
        check(
            parse_duration,
            &[
                ("500ms", Ok(Duration::from_millis(500))),
                ("90s", Ok(Duration::from_secs(90))),
                ("15m", Ok(Duration::from_secs(900))),
                ("2h", Ok(Duration::from_secs(7200))),
                ("10d", Ok(Duration::from_secs(864_000))),
                ("0s", Ok(Duration::ZERO)),
                ("3650d", Ok(Duration::from_secs(315_360_000))),
                ("3651d", Err("out-of-range")),
                ("99999999999999999999999s", Err("out-of-range")),
                ("18446744073709551615d", Err("out-of-range")),
                ("", bad),
                ("s", bad),
                ("15", bad),
                ("15 m", bad),
                ("-1s", bad),
                ("1.5h", bad),
                ("15M", bad),
                ("1h30m", bad),
                ("١s", bad),
            ],
        );
        check(
            parse_nonzero_duration,
            &[
                ("0ms", Err("out-of-range")),
                ("1ms", Ok(Duration::from_millis(1))),
            ],
        );
    }

    #[test]
    fn leases_are_whole_seconds() {
        check(
            parse_lease,
            &[
                ("1s", Ok(Duration::from_secs(1))),
                ("2000ms", Ok(Duration::from_secs(2))),
                ("0s", Err("out-of-range")),
                ("500ms", Err("out-of-range")),
                ("1500ms", Err("out-of-range")),
                ("ten days", Err("bad-duration")),
            ],
        );
    }

    #[test]
    fn lengths_of_uris_are_within_a_range() {
        check(
            parse_uri_length,
            &[
                ("8KiB", Ok(8192)),
                ("256", Ok(256)),
                ("64KiB", Ok(65_536)),
                ("255B", Err("out-of-range")),
                ("65537", Err("out-of-range")),
                ("0", Err("out-of-range")),
                ("long", Err("bad-size")),
            ],
        );
    }

    #[test]
    fn sizes() {
        let bad = Err("bad-size");
        check(
            parse_size,
            &[
                ("0", Ok(0)),
                ("1234", Ok(1234)),
                ("12B", Ok(12)),
                ("8MB", Ok(8_000_000)),
                ("512KiB", Ok(524_288)),
                ("64MiB", Ok(67_108_864)),
                ("3kB", Ok(3000)),
                ("2GB", Ok(2_000_000_000)),
                ("2GiB", Ok(2_147_483_648)),
                ("1TB", Ok(1_000_000_000_000)),
                ("1TiB", Ok(1_099_511_627_776)),
                ("99999999999TiB", Err("out-of-range")),
                ("9223372036854775807", Ok(i64::MAX as u64)),
                ("9223372036854775808", Err("out-of-range")),
                ("", bad),
                ("MiB", bad),
                ("64 MiB", bad),
                ("64mib", bad),
                ("1.5GiB", bad),
                ("-1", bad),
            ],
        );
        check(parse_nonzero_size, &[("0", Err("out-of-range"))]);
    }

    #[test]
    fn shares() {
        let bad = Err("bad-percentage");
        check(
            parse_share,
            &[
                ("0%", Ok(0.0)),
                ("10%", Ok(0.1)),
                ("12.5%", Ok(0.125)),
                ("100%", Ok(1.0)),
                ("101%", bad),
                ("-1%", bad),
                ("10", bad),
                ("%", bad),
                ("NaN%", bad),
                ("inf%", bad),
                ("1e1%", bad),
                ("ten%", bad),
            ],
        );
    }

    #[test]
    fn hosts() {
        let bad = || Err("bad-host");
        let ok = |host: &str| Ok(host.to_owned());
        check(
            parse_host,
            &[
                ("Example.COM", ok("example.com")),
                ("example.com:8080", ok("example.com:8080")),
                ("bücher.example", ok("xn--bcher-kva.example")),
                ("192.0.2.1", ok("192.0.2.1")),
                ("[2001:DB8::1]", ok("[2001:db8::1]")),
                ("[2001:db8::1]:81", ok("[2001:db8::1]:81")),
                ("", bad()),
                ("http://example.com", bad()),
                ("example.com/", bad()),
                ("*.example.com", bad()),
                ("example.com:", bad()),
                ("example.com:http", bad()),
                ("example.com:+80", bad()),
                ("example.com:65536", bad()),
                ("example.com:1:2", bad()),
                ("a b", bad()),
            ],
        );
    }

    #[test]
    fn public_urls_end_in_a_slash() {
        let ok = |url: &str| Ok(Url::parse(url).unwrap());
        let bad = || Err("bad-url");
        check(
            parse_public_url,
            &[
                ("https://d.example", ok("https://d.example/")),
                ("https://d.example/r", ok("https://d.example/r/")),
                ("https://d.example/r/", ok("https://d.example/r/")),
                ("https://d.example/r/?a=b", bad()),
                ("https://d.example/r/?", bad()),
                ("https://d.example/r/#a", bad()),
                ("ftp://d.example/", bad()),
                ("d.example/r/", bad()),
                ("https://", bad()),
            ],
        );
    }

    #[test]
    fn names_user_agents_and_addresses() {
        let text = |text: &str| Ok(text.to_owned());
        check(
            parse_name,
            &[
                ("a-1", text("a-1")),
                ("", Err("bad-name")),
                ("A", Err("bad-name")),
                ("a_b", Err("bad-name")),
                ("é", Err("bad-name")),
            ],
        );
        let version = env!("CARGO_PKG_VERSION");
        check(
            parse_user_agent,
            &[
                ("me (mailto:a@b.example)", text("me (mailto:a@b.example)")),
                ("resyncd/<version>", Ok(format!("resyncd/{version}"))),
                ("", Err("bad-user-agent")),
                (" a", Err("bad-user-agent")),
                ("a\r\nb: c", Err("bad-user-agent")),
                ("é", Err("bad-user-agent")),
            ],
        );
        check(
            parse_address,
            &[
                ("[::1]:0", Ok("[::1]:0".parse().unwrap())),
                ("localhost:80", Err("bad-address")),
                ("127.0.0.1", Err("bad-address")),
            ],
        );
    }

    proptest! {
        #[test]
        fn parsers_do_not_panic_on_any_text(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_size(&text), parse_share(&text));
            let _ = (parse_host(&text), parse_public_url(&text), parse_user_agent(&text));
        }

        #[test]
        fn a_parsed_host_parses_to_itself(text in "[a-zA-Z0-9.:\\[\\]-]{1,12}") {
            if let Ok(host) = parse_host(&text) {
                prop_assert_eq!(parse_host(&host), Ok(host));
            }
        }
    }
}
