//! The positions of the feed that readers have named, until they are stored.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

/// The lowest position that was named on each day. A reader that has come further is one of several, perhaps: none has a name.
#[derive(Default)]
pub(super) struct FeedReaders(Mutex<BTreeMap<i64, Lowest>>);

struct Lowest {
    position: i64,
    is_stored: bool,
}

/// The number of a day since 1970.
pub(super) fn day_of(time: DateTime<Utc>) -> i64 {
    time.timestamp().div_euclid(24 * 60 * 60)
}

impl FeedReaders {
    /// A reader continues after that number.
    pub(super) fn note(&self, day: i64, position: i64) {
        let named = Lowest {
            position,
            is_stored: false,
        };
        let mut days = self.0.lock();
        let lowest = days.get(&day);
        if lowest.is_none_or(|lowest| position < lowest.position) {
            days.insert(day, named);
        }
    }

    /// What is to be stored: days with their lowest positions.
    pub(super) fn unstored(&self) -> Vec<(i64, i64)> {
        let days = self.0.lock();
        let unstored = days.iter().filter(|(_, lowest)| !lowest.is_stored);
        unstored
            .map(|(&day, lowest)| (day, lowest.position))
            .collect()
    }

    /// That was stored. Days before `since` are forgotten.
    pub(super) fn note_stored(&self, stored: &[(i64, i64)], since: i64) {
        let mut days = self.0.lock();
        for (day, position) in stored {
            // A lower one may have been named meanwhile.
            if let Some(lowest) = days.get_mut(day).filter(|it| it.position == *position) {
                lowest.is_stored = true;
            }
        }
        days.retain(|&day, _| day >= since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_position_of_each_day_is_stored_once() {
        let readers = FeedReaders::default();
        for (day, position) in [(1, 7), (1, 5), (1, 9), (2, 8)] {
            readers.note(day, position);
        }
        assert_eq!(readers.unstored(), [(1, 5), (2, 8)]);
        readers.note(2, 3);
        readers.note_stored(&[(1, 5), (2, 8)], 1);
        assert_eq!(readers.unstored(), [(2, 3)]);
        readers.note_stored(&[(2, 3)], 2);
        readers.note(2, 4);
        assert_eq!(readers.unstored(), []);
        // The first day is forgotten.
        readers.note(1, 6);
        assert_eq!(readers.unstored(), [(1, 6)]);
    }
}
