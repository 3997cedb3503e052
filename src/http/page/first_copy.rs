//! How far the first copy of a Source is: as far as that is known while its lists are being read.

use super::display::duration;
use crate::status::{Activity, AppliedCounts, SourceStatus};

/// How many minutes the rate is of, the current one included.
const MINUTES: usize = 6;
/// The shortest time that has a rate, in seconds.
const SHORTEST: u64 = 10;

/// How far the sets of a Source are that make their first copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstCopy {
    /// Resources that the mirror has.
    pub(super) done: u64,
    /// Those, and the others that are known so far.
    pub(super) known: u64,
    pub(super) percent: u64,
    /// How many changes of the Source were applied in a minute; `None`: that can't be said yet.
    pub(super) per_minute: Option<u64>,
    /// How long the others take at this rate.
    pub(super) left: Option<String>,
}

/// `None`: no set makes its first copy, or nothing is known of it yet.
pub(super) fn first_copy(source: &SourceStatus, activity: Option<&Activity>) -> Option<FirstCopy> {
    let sets = source.sets.iter().filter(|set| set.state == "baseline");
    let (done, pending) = sets.fold((0, 0), |(done, pending), set| {
        (done + set.resources, pending + set.pending)
    });
    let known = done + pending;
    let per_minute = activity.and_then(per_minute);
    (pending > 0).then(|| FirstCopy {
        done,
        known,
        percent: done * 100 / known,
        per_minute,
        left: per_minute.map(|rate| duration((pending * 60 / rate).cast_signed())),
    })
}

/// The changes of a minute, by the last ones; `None`: it is too soon, or there were none.
fn per_minute(activity: &Activity) -> Option<u64> {
    let newest_first = activity.hour.iter().rev().map(AppliedCounts::changes);
    let counts: Vec<u64> = newest_first.take(MINUTES).collect();
    // The minute in which it began is not a whole one.
    let begun = counts.iter().rposition(|&count| count > 0)?;
    let applied: u64 = counts[..begun].iter().sum();
    let current = activity.until.timestamp().rem_euclid(60).unsigned_abs();
    let seconds = current + 60 * (begun as u64).checked_sub(1)?;
    let rate = (applied * 60).checked_div(seconds)?;
    Some(rate).filter(|rate| *rate > 0 && seconds >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use serde_json::json;

    use super::*;

    /// The activity at that second of a minute, with so many changes in each of the last minutes, the current one last.
    fn activity(second: i64, minutes: &[u64]) -> Activity {
        let mut hour = vec![AppliedCounts::default(); 60];
        for (counts, &created) in hour.iter_mut().rev().zip(minutes.iter().rev()) {
            counts.created = created;
        }
        Activity {
            since: DateTime::UNIX_EPOCH,
            until: DateTime::UNIX_EPOCH + TimeDelta::seconds(3600 + second),
            hour,
            day: Vec::new(),
        }
    }

    fn source(sets: &[(&str, u64, u64)]) -> SourceStatus {
        let sets = sets.iter().map(|(state, resources, pending)| {
            json!({
                "capability_list": "http://a.example/", "state": state, "synced_until": null, "gaps": [], "resources": resources,
                "bytes": 0, "pending": pending, "failed": 0, "held_deletions": 0, "channels": [], "last_poll_at": null,
                "next_poll_at": null, "error": null
            })
        });
        let sets: Vec<_> = sets.collect();
        let source = json!({ "name": "a", "url": "u", "mirror": "m", "state": "ok", "error": null, "sets": sets });
        serde_json::from_value(source).unwrap()
    }

    #[test]
    fn rate_is_of_the_time_since_the_minute_in_which_it_began() {
        for (second, minutes, expected) in [
            (30, &[0, 0, 0][..], None),
            (30, &[0, 0, 50], None),
            // The half minute after the one in which it began.
            (30, &[0, 7, 50], Some(100)),
            (5, &[0, 7, 50], None),
            (30, &[7, 60, 60], Some(80)),
            (0, &[900, 900, 60, 60, 60, 60, 60, 0], Some(60)),
            (30, &[7, 0, 0], None),
        ] {
            let found = per_minute(&activity(second, minutes));
            assert_eq!(found, expected, "{second} {minutes:?}");
        }
    }

    #[test]
    fn only_sets_count_that_make_their_first_copy() {
        let source_of = source;
        let source = source_of(&[("baseline", 300, 700), ("in-sync", 5000, 0)]);
        let found = first_copy(&source, Some(&activity(30, &[0, 7, 50]))).unwrap();
        assert_eq!((found.done, found.known, found.percent), (300, 1000, 30));
        assert_eq!(found.per_minute, Some(100));
        assert_eq!(found.left.as_deref(), Some("7 min 0 s"));
        let found = first_copy(&source, None).unwrap();
        assert_eq!((found.per_minute, found.left), (None, None));
        assert_eq!(first_copy(&source_of(&[("in-sync", 5, 3)]), None), None);
        assert_eq!(first_copy(&source_of(&[("baseline", 0, 0)]), None), None);
    }
}
