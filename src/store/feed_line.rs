//! An entry of the feed as its readers get it: `GET /changes`, its stream of events, and hooks.

use chrono::SecondsFormat;
use serde_json::json;

use super::tables::feed::FeedEntry;

impl FeedEntry {
    /// The entry as a JSON object on one line, without a line break. `feed`: the id of the feed.
    #[must_use]
    pub fn to_line(&self, feed: &str) -> String {
        json!({
            "feed": feed,
            "seq": self.seq,
            "applied_at": self.applied_at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
            "source": self.source,
            "set": self.set,
            "uri": self.uri,
            "change": self.change,
            "path": self.path,
            "length": self.length,
            "changed_at": self.changed_at.map(|time| time.to_string()),
            "origin": self.origin,
        })
        .to_string()
    }
}
