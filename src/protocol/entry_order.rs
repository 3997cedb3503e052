//! In which order a document tells its changes.

use super::SourceTime;

/// Whether a document goes forwards in time, as section 12.1 of the specification wants it, or backwards, as some Sources
/// write it. It matters where times are equal: of two changes of a resource within one second, the later one counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryOrder {
    last: Option<SourceTime>,
    rises: bool,
    falls: bool,
}

impl EntryOrder {
    /// Takes the time of the next entry.
    pub fn note(&mut self, time: Option<SourceTime>) {
        if let (Some(last), Some(time)) = (self.last, time) {
            self.rises |= last < time;
            self.falls |= last > time;
        }
        self.last = time.or(self.last);
    }

    /// Whether the newest entry comes first, beyond doubt: times fall, and never rise.
    #[must_use]
    pub fn is_newest_first(&self) -> bool {
        self.falls && !self.rises
    }

    /// Whether there is no order: times rise, and fall.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.falls && self.rises
    }
}

impl FromIterator<Option<SourceTime>> for EntryOrder {
    fn from_iter<I: IntoIterator<Item = Option<SourceTime>>>(times: I) -> Self {
        let mut direction = Self::default();
        times.into_iter().for_each(|time| direction.note(time));
        direction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_that_fall_and_never_rise_are_newest_first() {
        let check = |times: &[i64], newest_first: bool, lost: bool| {
            let direction: EntryOrder = times
                .iter()
                .map(|&time| (time >= 0).then(|| SourceTime::from_micros(time)))
                .collect();
            assert_eq!(direction.is_newest_first(), newest_first, "{times:?}");
            assert_eq!(direction.is_lost(), lost, "{times:?}");
        };
        check(&[], false, false);
        check(&[3], false, false);
        check(&[3, 3, 3], false, false);
        check(&[1, 2, 2, 3], false, false);
        check(&[3, 2, 2, 1], true, false);
        check(&[3, -1, 2], true, false);
        check(&[3, 2, 3], false, true);
        check(&[2, 3, 1], false, true);
    }
}
