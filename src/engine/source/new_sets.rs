//! How many new sets of a Source begin to be followed: as many as `[limits] sets` has room for, and within a day no more than that limit,
//! or than 100 if that is more, besides as many at once. Former sets that have something still take the room of others.
//!
//! Must not know where sets are found, nor what following one means.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use resyncd_fetch::DiscoveryError;
use url::Url;

/// In which time as many new sets may come as a Source may have.
const DAY: Duration = Duration::from_secs(86_400);
/// How many may come at least: a low limit is for what is followed, and bounds that by itself.
const FEWEST: u32 = 100;

/// The pace at which new sets begin to be followed.
#[derive(Debug, Default)]
pub(crate) struct NewSets {
    /// Until when those that have begun use up the pace; `None`: none has.
    used_until: Option<Instant>,
}

impl NewSets {
    /// Which of these sets may be followed, each in its place. `counted`: those that have their room, among them former ones; `most`: how many
    /// there may be. Also returns why others may not.
    pub(crate) fn admit<'a>(
        &mut self,
        found: impl Iterator<Item = &'a Url>,
        counted: &HashSet<Url>,
        most: usize,
        now: Instant,
    ) -> (Vec<bool>, Option<DiscoveryError>) {
        let mut room = most.saturating_sub(counted.len());
        let mut left_out = None;
        let mut admit = |set: &Url| {
            if counted.contains(set) {
                return Ok(());
            }
            if room == 0 {
                return Err(DiscoveryError::TooManySets);
            }
            self.begin(most, now)?;
            room -= 1;
            Ok(())
        };
        let admitted = found.map(|set| {
            let result = admit(set);
            let is_admitted = result.is_ok();
            if let Err(error) = result {
                left_out.get_or_insert(error);
            }
            is_admitted
        });
        (admitted.collect(), left_out)
    }

    fn begin(&mut self, most: usize, now: Instant) -> Result<(), DiscoveryError> {
        let each = DAY / u32::try_from(most).unwrap_or(u32::MAX).max(FEWEST);
        let used_until = self.used_until.map_or(now, |until| until.max(now)) + each;
        if used_until > now + DAY {
            return Err(DiscoveryError::TooManyNewSets);
        }
        self.used_until = Some(used_until);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn list(name: &str) -> Url {
        Url::parse(&format!("https://example.org/{name}")).unwrap()
    }

    const FULL: Option<&str> = Some("too-many-sets");
    const PACED: Option<&str> = Some("too-many-new-sets");

    #[test]
    fn former_sets_take_room_and_may_return() {
        let mut sets = NewSets::default();
        for (counted, found, expected, code) in [
            ("", "a b", "a b", None),
            ("a b", "b a", "b a", None),
            ("", "a b c d e", "a b c d", FULL),
            ("a b c", "d b e", "d b", FULL),
            ("a b c d", "b e d", "b d", FULL),
            ("a b c d e f", "g a", "a", FULL),
        ] {
            let names = found.split_whitespace();
            let uris: Vec<Url> = names.clone().map(list).collect();
            let counted = counted.split_whitespace().map(list).collect();
            let now = clock::now().mono;
            let (admitted, left_out) = sets.admit(uris.iter(), &counted, 4, now);
            let admitted = names.zip(admitted).filter(|(_, admitted)| *admitted);
            let admitted: Vec<&str> = admitted.map(|(name, _)| name).collect();
            assert_eq!(admitted.join(" "), expected, "{counted:?}");
            assert_eq!(left_out.as_ref().map(DiscoveryError::code), code);
        }
    }

    /// Steps of `(hours, new sets, admitted, code)`; nothing is left of the sets before.
    #[track_caller]
    fn check(most: usize, steps: &[(u64, usize, usize, Option<&str>)]) {
        let (mut sets, begun, counted) = (NewSets::default(), clock::now().mono, HashSet::new());
        for (step, &(hours, new, expected, code)) in steps.iter().enumerate() {
            let new: Vec<Url> = (0..new).map(|number| list(&number.to_string())).collect();
            let now = begun + Duration::from_secs(hours * 3600);
            let (admitted, left_out) = sets.admit(new.iter(), &counted, most, now);
            let admitted = admitted.into_iter().filter(|admitted| *admitted);
            let left_out = left_out.as_ref().map(DiscoveryError::code);
            assert_eq!((admitted.count(), left_out), (expected, code), "{step}");
        }
    }

    #[test]
    fn new_sets_come_a_limit_at_once_and_then_a_limit_a_day() {
        check(
            2400,
            &[
                (0, 1000, 1000, None),
                (0, 1500, 1400, PACED),
                (0, 1, 0, PACED),
                (1, 101, 100, PACED),
                (3, 50, 50, None),
                (3, 200, 150, PACED),
                // After a quiet time no more come at once.
                (500, 2401, 2400, FULL),
                (500, 1, 0, PACED),
            ],
        );
        check(1, &[(0, 1, 1, None), (0, 2, 1, FULL), (1, 1, 1, None)]);
        let each: Vec<_> = (0..100).map(|_| (0, 1, 1, None)).collect();
        check(1, &[&each[..], &[(0, 1, 0, PACED)]].concat());
    }
}
