//! Compares what only a hub has stated of a resource with a Change List of the Source that covers the time of the statement.
//!
//! What counts is whether the resource exists: a time may differ a little between the two, and the content is the Source's own
//! answer anyway.
//!
//! Invariant: pure. Must not know where entries come from.
//!
//! Specification: Change Notification 1.0.1, section 3; core, section 12.1.

use resourcesync::SourceTime;

/// A statement of a hub, and what the entries of the list that name its resource say about it.
#[derive(Clone, Copy, Debug)]
pub struct CrossCheck {
    at: SourceTime,
    deleted: bool,
    newest_first: bool,
    /// The newest entry that is not later than the statement, and whether it states a deletion.
    before: Option<(SourceTime, bool)>,
    is_confirmed: bool,
}

impl CrossCheck {
    /// Of the statement that a resource was deleted, or that it was not, at a time. `newest_first`: whether the newest entry of
    /// the list comes first.
    #[must_use]
    pub fn of(at: SourceTime, deleted: bool, newest_first: bool) -> Self {
        Self {
            at,
            deleted,
            newest_first,
            before: None,
            is_confirmed: false,
        }
    }

    /// Adds an entry that names the resource, in the order of the list. One without a time may be of any.
    pub fn add(&mut self, changed_at: Option<SourceTime>, deleted: bool) {
        let is_same = deleted == self.deleted;
        let Some(at) = changed_at else {
            self.is_confirmed |= is_same;
            return;
        };
        // What the list states of a later time counts anyway, and some Sources list only the last change of a resource.
        self.is_confirmed |= at > self.at || (is_same && at.latest_possible() >= self.at);
        let is_newest = self.before.is_none_or(|(before, _)| {
            if self.newest_first {
                before < at
            } else {
                before <= at
            }
        });
        if at <= self.at && is_newest {
            self.before = Some((at, deleted));
        }
    }

    /// After the last entry: whether the list contradicts the statement.
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        let is_stated = |(_, deleted)| deleted == self.deleted;
        !self.is_confirmed && !self.before.is_some_and(is_stated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn at(seconds: i64) -> SourceTime {
        // In the midst of a day: the begin of one may stand for all of it.
        SourceTime::from_micros((20_000 * DAY + 40_000 + seconds) * 1_000_000)
    }

    #[test]
    fn list_confirms_or_contradicts_what_a_hub_states() {
        let (live, deleted) = (false, true);
        let day = SourceTime::from_micros(20_000 * DAY * 1_000_000);
        let next_day = SourceTime::from_micros(20_001 * DAY * 1_000_000);
        for (statement, entries, is_contradicted) in [
            // Not named at all.
            (live, vec![], true),
            (deleted, vec![], true),
            // Named with the same time, a little earlier, a little later.
            (live, vec![(Some(at(10)), live)], false),
            (live, vec![(Some(at(9)), live)], false),
            (live, vec![(Some(at(11)), live)], false),
            (deleted, vec![(Some(at(10)), deleted)], false),
            (deleted, vec![(Some(at(9)), deleted)], false),
            (deleted, vec![(Some(at(11)), deleted)], false),
            // The newest entry before it decides.
            (
                live,
                vec![(Some(at(3)), live), (Some(at(5)), deleted)],
                true,
            ),
            (
                live,
                vec![(Some(at(3)), deleted), (Some(at(5)), live)],
                false,
            ),
            (
                deleted,
                vec![(Some(at(3)), deleted), (Some(at(5)), live)],
                true,
            ),
            // What happened later may be all that is listed.
            (live, vec![(Some(at(12)), deleted)], false),
            (deleted, vec![(Some(at(12)), live)], false),
            // Of entries of one time the later one in the list counts.
            (
                live,
                vec![(Some(at(5)), live), (Some(at(5)), deleted)],
                true,
            ),
            // A date stands for the whole day, and no time for any.
            (live, vec![(Some(day), live)], false),
            (deleted, vec![(Some(day), live)], true),
            (deleted, vec![(Some(next_day), live)], false),
            (live, vec![(None, live), (Some(at(5)), deleted)], false),
            (deleted, vec![(None, live)], true),
        ] {
            for newest_first in [false, true] {
                let mut check = CrossCheck::of(at(10), statement, newest_first);
                let mut entries = entries.clone();
                if newest_first {
                    entries.reverse();
                }
                for &(changed_at, deleted) in &entries {
                    check.add(changed_at, deleted);
                }
                assert_eq!(
                    check.is_contradicted(),
                    is_contradicted,
                    "deleted: {statement}, {entries:?}"
                );
            }
        }
    }
}
