//! `discover`: what a Source offers, as a tree for people or as JSON.
//!
//! With `--json` it is one object, whether something was found or not:
//!
//! | key | what it is |
//! |---|---|
//! | `url` | where discovery started |
//! | `description` | the Source Description, or `null` |
//! | `implied` | whether there is no ResourceSync: the sets are sitemaps, followed by polling |
//! | `channels` | the channels that Source Descriptions advertise: `kind`, `topic`, `hubs` |
//! | `sets` | `capability_list`, `implied`, `oddities`, `capabilities`, `channels` |
//! | `failed` | the sets that can't be had: `capability_list`, `error` |
//! | `oddities` | what is odd about Source Descriptions: `document`, `oddities` |
//! | `left_out` | how many documents were not looked into, because there are too many |
//! | `error` | why nothing was found, or `null` |
//!
//! Of `capabilities`, each has `capability`, `uri`, `looked_into` and `error`, and once it was read: `index`, `at`,
//! `completed`, `from`, `until`, `entries` (of an index, its lists; of a dump, its packages), `earliest`, `latest`, `created`,
//! `updated`, `deleted`, `bytes`, `oddities`. Times are the Source's. `oddities` count by code; an `error` is as in the status:
//! `code`, `message`, `at`.

mod entry;
mod report;
mod tree;

use std::io::Write;

use url::Url;

use self::entry::Entry;
use self::report::Report;
use super::{FAILED, OK};
use crate::clock;
use crate::config::{Config, Credentials};
use crate::fetch::{Client, Discovery, DiscoveryError};
use crate::sync::latest_believed;

/// More documents than this are not looked into: a Source may have ten thousand sets.
const MOST_LOOKED_INTO: usize = 100;

/// What `discover` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A site, its Source Description, a Capability List, any capability document, a web page, robots.txt or a sitemap
    url: Entry,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn discover(config: &Config, arguments: &Arguments) -> u8 {
    let report = report(config, &arguments.url).await;
    if let Some(error) = &report.error {
        eprintln!("resyncd: {} [{}]", error.message, error.code);
    }
    let text = if arguments.json {
        match serde_json::to_string_pretty(&report) {
            Ok(json) => json + "\n",
            Err(error) => {
                eprintln!("resyncd: the JSON can't be written: {error}");
                return FAILED;
            }
        }
    } else if report.error.is_some() {
        String::new()
    } else {
        tree::of(&report)
    };
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if report.error.is_some() { FAILED } else { OK }
}

async fn report(config: &Config, entry: &Entry) -> Report {
    let mut credentials = Credentials::default();
    let entry = &Entry {
        url: credentials.take(entry.url.clone()),
        otherwise: entry.otherwise.clone(),
    };
    let client = match Client::new(&config.http) {
        Ok(client) => client.with_credentials(&credentials),
        Err(error) => return Report::nothing(&entry.url, error.code(), &error),
    };
    let limit = config.limits.document;
    let (url, found) = find(&client, entry, limit).await;
    match found {
        Ok(found) => {
            let latest = latest_believed(clock::now().wall);
            let summaries = client
                .summarize_documents(&found, MOST_LOOKED_INTO, limit, latest)
                .await;
            Report::of(&url, &found, &summaries)
        }
        Err(error) => Report::nothing(&url, error.code(), &error),
    }
}

/// Discovers; where a person has left the scheme out and nobody answers with the first one, with the other.
async fn find(
    client: &Client,
    entry: &Entry,
    limit: u64,
) -> (Url, Result<Discovery, DiscoveryError>) {
    let found = client.discover(&entry.url, limit).await;
    match (&entry.otherwise, found) {
        (Some(other), Err(error)) if error.is_unanswered() => {
            (other.clone(), client.discover(other, limit).await)
        }
        (_, found) => (entry.url.clone(), found),
    }
}
