//! A configuration to begin with, made from what was discovered of a Source.

use std::collections::BTreeSet;
use std::net::IpAddr;

use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_core::one_line;
use resyncd_fetch::is_public;
use url::{Host, Url};

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
    let url = parse_uri(&report.url).map_err(|_| failed("the entry point is no URL"))?;
    let name = name_of(&url);
    let mut text = format!(
        "# resyncd: a configuration to begin with for {url}\n\
         # `resyncd check --environment` finds faults; `resyncd config --effective` shows every other key with its default.\n\n\
         # The folder of the database, on a local disk.\n\
         state_dir = \"/var/lib/resyncd\"\n"
    );
    let channels = || report.sets.iter().flat_map(|set| &set.channels);
    if channels().any(AdvertisedChannel::has_callback) {
        text.push_str(
            "\n[callback]\n\
             # The Source has channels: notifications are delivered to this public URL, usually through a reverse proxy to\n\
             # `listen`. Without it the Source is polled.\n\
             # public_url = \"https://destination.example.net/resyncd/\"\n\
             # listen = \"127.0.0.1:8461\"\n",
        );
    }
    if channels().any(AdvertisedChannel::needs_account) {
        text.push_str(
            "\n[xmpp]\n\
             # The Source publishes its changes at a node of a PubSub service, which an account subscribes to. Without it the Source\n\
             # is polled. The file has the password.\n\
             # jid = \"resyncd@xmpp.example.net\"\n\
             # password_file = \"/etc/resyncd/xmpp.password\"\n",
        );
    }
    if is_private(&url) {
        text.push_str(
            "\n[http]\n\
             # The Source is not at a public address.\n\
             allow_private_addresses = true\n",
        );
    }
    text.push_str(&format!(
        "\n[[source]]\n\
         # The label in the status, the metrics and the log.\n\
         name = {}\n\
         # Where discovery starts.\n\
         url = {}\n\
         # The folder of its resources, and of nothing else.\n\
         mirror = {}\n\n{}{}",
        toml_string(&name),
        toml_string(url.as_str()),
        toml_string(&format!("/srv/mirror/{name}")),
        sets(report),
        callback_protocols(channels())
    ));
    if has_userinfo(typed) {
        text.push_str(&format!(
            "\n# The file has the user name and the password that were typed, as NAME:PASSWORD.\n\
             # [source.auth]\n\
             # basic_file = \"/etc/resyncd/{name}.password\"\n"
        ));
    }
    Ok(text)
}

/// What the Source offers, and how to choose among its sets.
fn sets(report: &DiscoveryReport) -> String {
    let mut text = match (report.implied, report.dialect) {
        (true, None) => "# It has no ResourceSync documents: its sitemaps are polled.\n".to_owned(),
        (true, Some(version)) => {
            format!("# It follows the draft of ResourceSync {version}. What it offers:\n")
        }
        (false, _) => "# What it offers:\n".to_owned(),
    };
    for set in report.sets.iter().take(MOST_SETS) {
        let list = one_line(&set.capability_list, LONGEST);
        text.push_str(&format!("#   {list}\n#     {}\n", offers(set)));
    }
    let more = report.sets.len().saturating_sub(MOST_SETS);
    if more > 0 {
        text.push_str(&format!("#   and {more} more\n"));
    }
    for failed in &report.failed {
        let list = one_line(&failed.capability_list, LONGEST);
        text.push_str(&format!(
            "#   {list} can't be read [{}]\n",
            failed.error.code
        ));
    }
    let lists = report.sets.iter().take(MOST_SETS);
    let lists: Vec<String> = lists.map(|set| toml_string(&set.capability_list)).collect();
    text.push_str(&format!(
        "# The sets to follow; without this key all of them.\n# sets = [{}]\n",
        lists.join(", ")
    ));
    text
}

/// The protocols of the interfaces at which callbacks may be registered; empty if there are none.
fn callback_protocols<'a>(channels: impl Iterator<Item = &'a AdvertisedChannel>) -> String {
    let protocols = channels.filter_map(AdvertisedChannel::callback_protocol);
    // Others are no URI, which the configuration needs, or too long for a line.
    let protocols =
        protocols.filter(|it| it.len() <= LONGEST && it.is_ascii() && parse_uri(it).is_ok());
    let protocols: BTreeSet<String> = protocols.map(toml_string).collect();
    if protocols.is_empty() {
        return String::new();
    }
    let protocols = protocols.into_iter().take(MOST_PROTOCOLS);
    let protocols = protocols.collect::<Vec<_>>().join(", ");
    format!(
        "\n# It delivers to callbacks that are registered by these protocols: add those that you know. Nothing is sent to others.\n\
         # callback_protocols = [{protocols}]\n"
    )
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
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => !is_public(IpAddr::V6(address)),
        Some(Host::Domain(domain)) => domain == "localhost" || domain.ends_with(".localhost"),
        None => false,
    }
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
