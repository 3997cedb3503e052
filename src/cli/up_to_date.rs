//! How far a set is, in words: the time is the Source's, and no expiry.

use crate::status::SetStatus;

/// `up to date as of TIME`, by the Source's clock.
pub(super) fn up_to_date(set: &SetStatus) -> String {
    match &set.synced_until {
        Some(time) => format!("up to date as of {time}"),
        None => "not up to date yet".to_owned(),
    }
}
