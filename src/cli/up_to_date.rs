//! How far a set is, in words: the time is the Source's, and no expiry.

use chrono::{DateTime, Utc};

use super::human::{age, short_time, with_age};
use crate::status::SetStatus;

/// `up to date as of TIME`, by the Source's clock, with its distance from `now`.
pub(super) fn up_to_date(set: &SetStatus, now: Option<DateTime<Utc>>) -> String {
    match &set.synced_until {
        Some(time) => format!("up to date as of {}", with_age(time, now)),
        None => "not up to date yet".to_owned(),
    }
}

/// Of a set that is in sync, when that was checked, and since when the Source has stated nothing new: that it is quiet is no reason to
/// take it for behind.
pub(super) fn checked(set: &SetStatus, now: Option<DateTime<Utc>>) -> String {
    let last = set
        .last_request_at
        .as_deref()
        .filter(|_| set.state == "in-sync");
    let Some(checked) = last.and_then(|last| age(last, now)) else {
        return String::new();
    };
    let newest = set.newest_document_at.as_deref();
    let quiet = newest.map_or_else(String::new, |newest| {
        format!(", nothing new since {}", with_age(newest, now))
    });
    format!("; checked {} ago{quiet}", short_time(checked))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quiet_set_in_sync_was_checked_and_is_not_behind() {
        let now = "2026-01-06T00:10:00Z".parse().ok();
        let mut set: SetStatus = serde_json::from_value(json!({
            "capability_list": "list", "state": "in-sync", "synced_until": "2026-01-03T00:10:00Z", "gaps": [],
            "newest_document_at": "2026-01-03T00:10:00Z", "last_request_at": "2026-01-06T00:09:50Z",
            "resources": 0, "bytes": 0, "pending": 0, "failed": 0, "held_deletions": 0, "channels": [],
            "last_poll_at": null, "next_poll_at": null, "error": null,
        }))
        .unwrap();
        let expected = "; checked 10 s ago, nothing new since 2026-01-03T00:10:00Z (3 d ago)";
        assert_eq!(checked(&set, now), expected);
        assert_eq!(set.behind(now).unwrap().num_seconds(), 0);
        set.state = "gap".to_owned();
        assert_eq!(checked(&set, now), "");
        assert_eq!(set.behind(now).unwrap().num_days(), 3);
    }
}
