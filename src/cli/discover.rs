//! `discover`: prints what a Source offers, as a tree or as JSON.
//!
//! `--json` prints one object, whether discovery succeeded or not:
//!
//! | key | meaning |
//! |---|---|
//! | `url` | the entry point of discovery |
//! | `description` | the Source Description, or `null` |
//! | `implied` | whether there is no ResourceSync: the sets are sitemaps, followed by polling |
//! | `describedby` | the documents that describe the Source |
//! | `channels` | the channels that Source Descriptions advertise: `kind`, `transport`, `protocol`, `topic`, `hubs`, `error` |
//! | `sets` | `capability_list`, `implied`, `describedby`, `oddities`, `capabilities`, `channels` |
//! | `failed` | the sets whose Capability List cannot be read: `capability_list`, `error` |
//! | `oddities` | deviations of Source Descriptions from the specification: `document`, `oddities` |
//! | `tried` | what was requested to find the sets: `uri`, `reason`, `parent` (the number of the attempt that led there, from 0, or `null`), `answer`, `code` of an error or `null` |
//! | `notices` | what is notable, but no error: the entry point led to nothing, and something else did |
//! | `left_out` | how many documents were not read, because there are too many |
//! | `error` | why discovery failed, or `null` |
//!
//! Each of `capabilities` has `capability`, `uri`, `looked_into` and `error`, and if it was read: `index`, `at`,
//! `completed`, `from`, `until`, `entries` (of an index, its lists; of a dump, its packages), `earliest`, `latest`, `created`,
//! `updated`, `deleted`, `bytes`, `oddities`. An index also has `dead_parts`, those that can't be fetched (`uri`, `error`), and
//! `parts_not_tried`, how many were not requested because there are too many. A channel that can't be used has an `error`; one
//! over a transport that is not supported yet has `transport` null. An interface at which a callback is registered has `protocol`;
//! others have null. Times are the Source's. `oddities` count by code; an `error` is as in the status:
//! `code`, `message`, `at`.

mod entry_point;
mod report;
mod starter;
mod tree;

use std::collections::HashSet;

use url::Url;

use self::report::DiscoveryReport;
use super::exit_status::{FAILED, OK};
use super::output::print_text;
use crate::clock;
use crate::config::{CallbackProtocols, Config, Credentials, Source};
use crate::fetch::{Client, Discovery, DiscoveryCache, DiscoveryError};
use crate::sync::latest_source_time;

pub(super) use self::entry_point::EntryPoint;

/// How many documents are read: a Source may have ten thousand sets.
const MAX_DOCUMENTS: usize = 100;

/// Arguments of `discover`.
#[derive(Debug, clap::Args)]
pub(super) struct DiscoverArguments {
    /// A site, its Source Description, a Capability List, any capability document, a web page, robots.txt or a sitemap
    url: EntryPoint,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn discover(config: &Config, arguments: &DiscoverArguments) -> u8 {
    let report = report(config, &arguments.url).await;
    if let Some(error) = &report.error {
        eprintln!("resyncd: {} [{}]", error.message, error.code);
    }
    let text = if arguments.json {
        match serde_json::to_string_pretty(&report) {
            Ok(json) => json + "\n",
            Err(error) => {
                eprintln!("resyncd: cannot write the JSON: {error}");
                return FAILED;
            }
        }
    } else {
        tree::of(&report)
    };
    print_text(&text);
    let is_unreadable = report.is_unreadable();
    if is_unreadable {
        eprintln!("resyncd: nothing of what was found can be read [nothing-readable]");
    }
    if report.error.is_some() || is_unreadable {
        FAILED
    } else {
        OK
    }
}

/// Prints a configuration to begin with for the Source at an entry point.
pub(super) async fn print_starter(config: &Config, entry: &EntryPoint) -> u8 {
    let report = report(config, entry).await;
    match starter::of(&report, &entry.url) {
        Ok(text) => {
            print_text(&text);
            OK
        }
        Err(error) => {
            eprintln!("resyncd: {} [{}]", error.message, error.code);
            FAILED
        }
    }
}

async fn report(config: &Config, entry: &EntryPoint) -> DiscoveryReport {
    let mut credentials = Credentials::default();
    let entry = &EntryPoint {
        url: credentials.extract(entry.url.clone()),
        fallback: entry.fallback.clone(),
    };
    // What is typed is used, or else what the configuration has for that place.
    let mut known = config.sources.iter().map(|source| &source.credentials);
    if credentials.is_empty()
        && let Some(known) = known.find(|known| known.has_any_for(&entry.url))
    {
        credentials = known.clone();
    }
    // Whoever types the address of a host may contact it, wherever it is.
    let client = match Client::trusting_host_of(config, &entry.url) {
        Ok(client) => client.with_credentials(&credentials),
        Err(error) => return DiscoveryReport::failed(&entry.url, error.code(), &error),
    };
    let limit = config.limits.document;
    let mut cache = DiscoveryCache::default();
    let (url, found) = find(&client, entry, limit, &mut cache).await;
    let report = match found {
        Ok(found) => {
            let latest = latest_source_time(clock::now().wall);
            let summaries = client
                .summarize_documents(&found, MAX_DOCUMENTS, limit, latest)
                .await;
            let protocols = protocols_of(config, &url);
            DiscoveryReport::new(&url, &found, &summaries, &protocols)
        }
        Err(error) => DiscoveryReport::failed(&url, error.code(), &error),
    };
    let report = match config.xmpp {
        Some(_) => report,
        None => report.without_xmpp_account(),
    };
    report.having_tried(cache.attempts())
}

/// The protocols of callbacks that the configuration has for the Source at an entry point, or else for one with the same origin, or host.
fn protocols_of(config: &Config, url: &Url) -> CallbackProtocols {
    let nearness = |source: &&Source| {
        let its = &source.url;
        (its == url, its.origin() == url.origin())
    };
    let at_host = config.sources.iter().rev();
    let at_host = at_host.filter(|source| source.url.host() == url.host());
    // Of several the last one counts, which is the first in the configuration.
    let source = at_host.max_by_key(nearness);
    source.map_or_else(CallbackProtocols::default, |source| {
        source.callback_protocols.clone()
    })
}

/// Discovers; if the scheme was omitted and the first one does not answer, with the other scheme.
async fn find(
    client: &Client,
    entry: &EntryPoint,
    limit: u64,
    cache: &mut DiscoveryCache,
) -> (Url, Result<Discovery, DiscoveryError>) {
    let followed = HashSet::new();
    let found = client.rediscover(&entry.url, limit, cache, &followed).await;
    match (&entry.fallback, found) {
        (Some(other), Err(error)) if error.is_unanswered() => {
            let found = client.rediscover(other, limit, cache, &followed).await;
            (other.clone(), found)
        }
        (_, found) => (entry.url.clone(), found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_those_of_the_nearest_source() {
        let source = |url: &str, protocol: &str| {
            let url = Url::parse(url).unwrap();
            let mut source = Source::new("sample", url, "/mirror");
            source.callback_protocols = CallbackProtocols::new([protocol]);
            source
        };
        let sources = vec![
            source("http://example.org/a.xml", "urn:first"),
            source("http://example.org/b.xml", "urn:second"),
            source("http://example.org:8080/", "urn:port"),
        ];
        let config = Config::new("/state", sources);
        for (url, expected) in [
            ("http://example.org/a.xml", "urn:first"),
            ("http://example.org/b.xml", "urn:second"),
            ("http://example.org/", "urn:first"),
            ("http://example.org:8080/c.xml", "urn:port"),
            ("https://example.org/", "urn:first"),
        ] {
            let found = protocols_of(&config, &Url::parse(url).unwrap());
            assert!(found.check(expected).is_ok(), "{url}");
        }
        let other = protocols_of(&config, &Url::parse("http://example.net/").unwrap());
        assert!(other.check("urn:first").is_err());
    }
}
