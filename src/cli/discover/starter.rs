//! A configuration to begin with, made from what was discovered of a Source.

use std::collections::BTreeSet;

use askama::Template;
use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_core::one_line;
use resyncd_fetch::{address_of, is_own_machine, is_public};
use url::Url;

use super::report::{AdvertisedChannel, DiscoveryReport, OfferReport, SetReport};
use crate::clock;
use crate::config::toml_string;
use crate::status::StatusError;

/// How many sets are named.
const MOST_SETS: usize = 20;
/// How many protocols are named.
const MOST_PROTOCOLS: usize = 20;
/// How much of a text of the Source is shown, in bytes.
const LONGEST: usize = 300;

#[derive(Template)]
#[template(path = "starter.toml", escape = "none")]
struct Starter<'a> {
    report: &'a DiscoveryReport,
    url: &'a Url,
    /// The URL as a string of TOML.
    url_text: String,
    name: String,
    has_callback: bool,
    needs_account: bool,
    is_private: bool,
    /// The Capability Lists, and what their sets offer.
    sets: Vec<(String, String)>,
    more: usize,
    /// The Capability Lists that can't be read, and why.
    failed: Vec<(String, &'a str)>,
    /// The Capability Lists as strings of TOML.
    lists: String,
    /// The protocols of the interfaces at which callbacks may be registered.
    protocols: String,
    has_password: bool,
}

/// The text of the file. `typed`: the entry point as it was typed, which may have a password.
pub(super) fn of(report: &DiscoveryReport, typed: &Url) -> Result<String, StatusError> {
    if let Some(error) = &report.error {
        return Err(error.clone());
    }
    let failed = |message: &str| StatusError::new("nothing-readable", message, clock::now().wall);
    if report.is_unreadable() || report.sets.is_empty() {
        return Err(failed(
            "nothing of what was found can be read; `resyncd discover` shows what was tried",
        ));
    }
    let url = &parse_uri(&report.url).map_err(|_| failed("the entry point is no URL"))?;
    let channels = || report.sets.iter().flat_map(|set| &set.channels);
    let sets = || report.sets.iter().take(MOST_SETS);
    let shown = |list: &str| one_line(list, LONGEST);
    let unreadable = report.failed.iter();
    let unreadable = unreadable.map(|set| (shown(&set.capability_list), set.error.code.as_str()));
    let protocols = channels().filter_map(AdvertisedChannel::callback_protocol);
    // Others are no URI, which the configuration needs, or too long for a line.
    let protocols =
        protocols.filter(|it| it.len() <= LONGEST && it.is_ascii() && parse_uri(it).is_ok());
    let protocols: BTreeSet<String> = protocols.map(toml_string).collect();
    let listed = |texts: &mut dyn Iterator<Item = String>| texts.collect::<Vec<_>>().join(", ");
    let starter = Starter {
        report,
        url,
        url_text: toml_string(url.as_str()),
        name: name_of(url),
        has_callback: channels().any(AdvertisedChannel::has_callback),
        needs_account: channels().any(AdvertisedChannel::needs_account),
        is_private: is_private(url),
        sets: sets()
            .map(|set| (shown(&set.capability_list), offers(set)))
            .collect(),
        more: report.sets.len().saturating_sub(MOST_SETS),
        failed: unreadable.collect(),
        lists: listed(&mut sets().map(|set| toml_string(&set.capability_list))),
        protocols: listed(&mut protocols.into_iter().take(MOST_PROTOCOLS)),
        has_password: has_userinfo(typed),
    };
    let text = starter.render();
    Ok(text.map_err(|error| failed(&error.to_string()))? + "\n")
}

/// The documents and the channels of a set, on a line.
fn offers(set: &SetReport) -> String {
    let of_document = |offer: &OfferReport| {
        let capability = one_line(&offer.capability, LONGEST);
        match &offer.facts {
            Some(facts) if facts.index => format!("{capability} ({} lists)", facts.entries),
            Some(facts) => format!("{capability} ({} entries)", facts.entries),
            None => capability,
        }
    };
    let mut offers: Vec<String> = set.capabilities.iter().map(of_document).collect();
    for channel in &set.channels {
        let kind = one_line(&channel.kind, LONGEST);
        let place = if channel.has_hubs() {
            channel.hubs.join(", ")
        } else {
            channel.topic.clone()
        };
        offers.push(format!("{kind} at {}", one_line(&place, LONGEST)));
    }
    if offers.is_empty() {
        "a sitemap".to_owned()
    } else {
        offers.join(", ")
    }
}

/// A label that is made from the host.
fn name_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let host = host.strip_prefix("www.").unwrap_or(&host);
    let name: String = host
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    match name.trim_matches('-') {
        "" => "source".to_owned(),
        name => name.to_owned(),
    }
}

/// Whether the daemon may not contact a host by default. What a name resolves to is not looked up.
fn is_private(url: &Url) -> bool {
    url.host().is_some_and(|host| match address_of(&host) {
        Some(address) => !is_public(address),
        None => is_own_machine(&host),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_of_hosts() {
        for (url, expected) in [
            ("https://www.Example.org/a", "example-org"),
            ("http://127.0.0.1:8463/", "127-0-0-1"),
            ("http://[::1]/", "1"),
            ("http://bücher.example/", "xn--bcher-kva-example"),
        ] {
            assert_eq!(name_of(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
