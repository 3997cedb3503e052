//! The order of time of the entries of a document.

use super::SourceTime;

/// The order of the times of entries: ascending, as section 12.1 of the specification requires, or descending, as some
/// Sources write it. It decides where times are equal: of two changes of a resource within one second, the later one counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryOrder {
    last: Option<SourceTime>,
    rises: bool,
    falls: bool,
}

impl EntryOrder {
    /// Adds the time of the next entry; entries without a time do not count.
    pub fn note(&mut self, time: Option<SourceTime>) {
        if let (Some(last), Some(time)) = (self.last, time) {
            self.rises |= last < time;
            self.falls |= last > time;
        }
        self.last = time.or(self.last);
    }

    /// Whether the newest entry comes first: times fall and never rise.
    pub fn is_newest_first(&self) -> bool {
        self.falls && !self.rises
    }

    /// Whether there is no order: times rise and fall.
    pub fn is_unordered(&self) -> bool {
        self.falls && self.rises
    }
}

impl FromIterator<Option<SourceTime>> for EntryOrder {
    fn from_iter<I: IntoIterator<Item = Option<SourceTime>>>(times: I) -> Self {
        let mut order = Self::default();
        times.into_iter().for_each(|time| order.note(time));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_that_fall_and_never_rise_are_newest_first() {
        let check = |times: &[i64], newest_first: bool, unordered: bool| {
            let order: EntryOrder = times
                .iter()
                .map(|&time| (time >= 0).then(|| SourceTime::from_micros(time)))
                .collect();
            assert_eq!(order.is_newest_first(), newest_first, "{times:?}");
            assert_eq!(order.is_unordered(), unordered, "{times:?}");
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
