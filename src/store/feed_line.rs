//! An entry of the feed as its readers get it: `GET /changes`, its stream of events, and hooks.

use chrono::SecondsFormat;
use serde_json::json;

use super::tables::feed::FeedEntry;

impl FeedEntry {
    /// The entry as a JSON object on one line, without a line break. `feed`: the id of the feed.
    #[must_use]
    pub fn to_line(&self, feed: &str) -> String {
        let mut line = json!({
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
        });
        for (field, rel) in [
            ("describes", "describes"),
            ("describedby", "describedby"),
            ("profile", "profile"),
            ("collections", "collection"),
            ("alternate_of", "canonical"),
            ("via", "via"),
        ] {
            let links = self.links.iter().filter(|link| link.is(rel));
            let targets: Vec<&str> = links.map(|link| link.href.as_str()).collect();
            if !targets.is_empty() {
                line[field] = json!(targets);
            }
        }
        if self.are_links_left_out {
            line["links_left_out"] = json!(true);
        }
        if self.is_patched {
            line["by"] = json!("patch");
        }
        line.to_string()
    }
}
