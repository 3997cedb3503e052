//! `discover`: prints what a Source offers, as a tree or as JSON.
//!
//! `--json` prints one object, whether discovery succeeded or not:
//!
//! | key | meaning |
//! |---|---|
//! | `url` | the entry point of discovery |
//! | `description` | the Source Description, or `null` |
//! | `implied` | whether there is no Capability List: the sets are sitemaps, followed by polling, or Sitemaps of version 0.1 |
//! | `dialect` | the version of the draft that a set follows, `"0.1"`, or `null`; as in each of `sets` |
//! | `describedby` | the documents that describe the Source |
//! | `channels` | the channels that Source Descriptions advertise: `kind`, `transport`, `protocol`, `topic`, `hubs`, `error` |
//! | `sets` | `capability_list`, `implied`, `dialect`, `describedby`, `oddities`, `capabilities`, `channels` |
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
//! `parts_not_tried`, how many were not requested because there are too many. The `transport` of a channel is `websub`, `websocket`,
//! `xmpp` or `callback`; null: one that is not supported yet. What can't be used has an `error` with all reasons: a protocol that is not
//! configured, no `public_url`, no account, `notifications = false`. An interface at which a callback is registered has its `protocol`, and
//! one that is not supported; others have null. Times are the Source's. `oddities` count by code; an `error` is as in the status: `code`,
//! `message`, `at`.

mod entry_point;
mod report;
mod starter;
mod tree;

use std::collections::HashSet;

use resyncd_core::{latest_source_time, visible_json};
use resyncd_fetch::{Client, Credentials, Discovery, DiscoveryCache, DiscoveryError};
use url::Url;

pub(super) use self::entry_point::EntryPoint;
use self::report::{DiscoveryReport, UsableChannels};
use super::exit_status::{FAILED, OK};
use super::failure::Failure;
use super::output::print_text;
use crate::clock;
use crate::config::{Config, Source};

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

pub(super) async fn discover(
    config: &Config,
    arguments: &DiscoverArguments,
) -> Result<u8, Failure> {
    let report = report(config, &arguments.url).await;
    if let Some(error) = &report.error {
        eprintln!("resyncd: {} [{}]", error.message, error.code);
    }
    let text = if arguments.json {
        visible_json(&format!("{:#}\n", serde_json::json!(report)))
    } else {
        tree::of(&report)
    };
    print_text(&text);
    if report.is_unreadable() {
        let text = "nothing of what was found can be read";
        return Err(Failure::coded("nothing-readable", text));
    }
    Ok(if report.error.is_some() { FAILED } else { OK })
}

/// Prints a configuration to begin with for the Source at an entry point.
pub(super) async fn print_starter(config: &Config, entry: &EntryPoint) -> Result<(), Failure> {
    let report = report(config, entry).await;
    print_text(&starter::of(&report, &entry.url)?);
    Ok(())
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
    let client = match Client::trusting_host_of(&config.http, &entry.url, clock::now) {
        Ok(client) => client
            .with_max_uri_bytes(config.limits.uri)
            .with_credentials(&credentials),
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
            let rules = UsableChannels {
                config,
                source: source_at(config, &url),
            };
            DiscoveryReport::new(&url, &found, &summaries, &rules)
        }
        Err(error) => DiscoveryReport::failed(&url, error.code(), &error),
    };
    report.having_tried(cache.attempts())
}

/// The Source that the configuration has at an entry point, or else one with the same origin, or host.
fn source_at<'a>(config: &'a Config, url: &Url) -> Option<&'a Source> {
    let nearness = |source: &&Source| {
        let its = &source.url;
        (its == url, its.origin() == url.origin())
    };
    let at_host = config.sources.iter().rev();
    let at_host = at_host.filter(|source| source.url.host() == url.host());
    // Of several the last one counts, which is the first in the configuration.
    at_host.max_by_key(nearness)
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
    fn source_is_the_nearest_one() {
        let source = |url: &str, name: &str| {
            let url = Url::parse(url).unwrap();
            Source::new(name, url, "/mirror")
        };
        let sources = vec![
            source("http://example.org/a.xml", "first"),
            source("http://example.org/b.xml", "second"),
            source("http://example.org:8080/", "port"),
        ];
        let config = Config::new("/state", sources);
        for (url, expected) in [
            ("http://example.org/a.xml", Some("first")),
            ("http://example.org/b.xml", Some("second")),
            ("http://example.org/", Some("first")),
            ("http://example.org:8080/c.xml", Some("port")),
            ("https://example.org/", Some("first")),
            ("http://example.net/", None),
        ] {
            let found = source_at(&config, &Url::parse(url).unwrap());
            assert_eq!(found.map(|source| &*source.name), expected, "{url}");
        }
    }
}
