//! An entry of the feed as its readers get it: `GET /changes`, its stream of events, and hooks.

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::tables::feed::FeedEntry;

/// An applied change.
#[derive(Serialize, ToSchema)]
pub(crate) struct FeedLine<'a> {
    /// The id of the feed.
    feed: &'a str,
    /// Its number in the feed.
    seq: i64,
    /// When the mirror was changed.
    applied_at: String,
    /// The name of the Source.
    source: &'a str,
    /// The Capability List of the set.
    set: &'a str,
    /// The URI of the resource.
    uri: &'a str,
    /// `created`, `updated` or `deleted`; `linked`: only its links have changed.
    change: &'a str,
    /// The path in the mirror; of a deleted resource, the one that it had.
    path: Option<&'a str>,
    /// The length of the file, in bytes; `null`: there is none.
    length: Option<u64>,
    /// When the Source has changed it.
    changed_at: Option<String>,
    /// How the change was announced.
    origin: &'a str,
    /// What it describes, as its links state; the same of the other relations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    describes: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    describedby: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profile: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    collections: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternate_of: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    via: Vec<&'a str>,
    /// Whether there are more links than the feed has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    links_left_out: bool,
    /// `patch`, if the file was made by a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
}

impl FeedEntry {
    /// The entry as a JSON object on one line, without a line break. `feed`: the id of the feed.
    #[must_use]
    pub fn to_line(&self, feed: &str) -> String {
        let targets = |rel: &str| {
            let links = self.links.iter().filter(|link| link.is(rel));
            links.map(|link| link.href.as_str()).collect()
        };
        let line = FeedLine {
            feed,
            seq: self.seq,
            applied_at: (self.applied_at).to_rfc3339_opts(SecondsFormat::AutoSi, true),
            source: &self.source,
            set: &self.set,
            uri: self.uri.as_str(),
            change: &self.change,
            path: self.path.as_deref(),
            length: self.length,
            changed_at: self.changed_at.map(|time| time.to_string()),
            origin: &self.origin,
            describes: targets("describes"),
            describedby: targets("describedby"),
            profile: targets("profile"),
            collections: targets("collection"),
            alternate_of: targets("canonical"),
            via: targets("via"),
            links_left_out: self.are_links_left_out,
            by: self.is_patched.then_some("patch"),
        };
        json!(line).to_string()
    }
}
