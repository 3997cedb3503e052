//! How far a set is, in words: the time is the Source's, and no expiry.

use chrono::{DateTime, Utc};

use super::human::with_age;
use crate::status::SetStatus;

/// `up to date as of TIME`, by the Source's clock, with its distance from `now`.
pub(super) fn up_to_date(set: &SetStatus, now: Option<DateTime<Utc>>) -> String {
    match &set.synced_until {
        Some(time) => format!("up to date as of {}", with_age(time, now)),
        None => "not up to date yet".to_owned(),
    }
}
