//! Whether an answer may be the former version of a resource, as a cache in front of the Source has it until it expires.
//!
//! Such an answer is not accepted at once, but asked for again a few times. Many Sources date a resource by its metadata, so that its
//! file is older than announced, always: therefore only changes of the last day are doubted, and none any more after some for which that
//! was futile. What is known of that is in memory: a restart costs a few requests.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use resourcesync::SourceTime;
use resyncd_core::{Expected, Now, is_plausible};
use resyncd_fetch::parse_http_date;

use super::task_error::TaskError;
use crate::store::{Origin, Task};

/// The pauses before an answer is asked for again.
pub(super) const PAUSES: [TimeDelta; 5] = [
    TimeDelta::seconds(1),
    TimeDelta::seconds(5),
    TimeDelta::seconds(25),
    TimeDelta::minutes(2),
    TimeDelta::minutes(10),
];
/// The age from which a change is not doubted any more: no usual cache has what is older.
const OLDEST: TimeDelta = TimeDelta::days(1);
/// For how many changes in a row it may be futile.
const MOST_FUTILE: u32 = 10;
/// How many answers of a Source are doubted within [`WINDOW`].
const MOST_DOUBTED: u32 = 1000;
const WINDOW: Duration = Duration::from_secs(3600);
/// In microseconds.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// What is known of a Source's answers.
#[derive(Debug, Default)]
pub(super) struct FormerVersions {
    /// For how many changes in a row the last answer was as old as the first one.
    futile: u32,
    doubted: u32,
    since: Option<Instant>,
}

/// The version that a server has answered with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Served {
    /// The one that the mirror has (304).
    Known,
    /// One with that `Last-Modified`.
    Version(Option<SourceTime>),
}

/// What becomes of an answer that may be the former version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It is asked for again.
    AskedAgain,
    /// It was asked for often enough.
    Accepted,
    /// The Source dates its resources otherwise.
    Usual,
}

impl FormerVersions {
    fn doubt(&mut self, now: Now, attempts: u32) -> Doubt {
        if self.futile >= MOST_FUTILE {
            return Doubt::Usual;
        }
        if attempts as usize >= PAUSES.len() {
            self.futile += 1;
            return Doubt::Accepted;
        }
        let since = *self.since.get_or_insert(now.mono);
        if now.mono.saturating_duration_since(since) >= WINDOW {
            (self.since, self.doubted) = (Some(now.mono), 0);
        }
        if self.doubted == MOST_DOUBTED {
            return Doubt::Accepted;
        }
        self.doubted += 1;
        Doubt::AskedAgain
    }

    /// Checks an answer to a task's request. Returns whether what may be the former version is accepted after all.
    pub(super) fn check(
        &mut self,
        now: Now,
        task: &Task,
        expected: &Expected,
        served: Served,
    ) -> Result<bool, TaskError> {
        let Some(announced) = doubted_time(now, task, expected) else {
            return Ok(false);
        };
        let known = task.live_version.as_ref();
        let known = known.and_then(|known| known.validators.last_modified.as_deref());
        let known = known.and_then(parse_http_date).map(SourceTime::from);
        let got = match served {
            Served::Known => known,
            // A later version than that of the mirror may be the announced one, whatever its date.
            Served::Version(got) => got.filter(|&got| known.is_some_and(|known| got <= known)),
        };
        // Of a time without a time of day, a day.
        let precision = if announced.micros() % DAY == 0 {
            DAY
        } else {
            SECOND
        };
        let got = got.filter(|got| announced.micros() - got.micros() >= precision);
        let Some(got) = got else {
            if task.attempts > 0 {
                self.futile = 0;
            }
            return Ok(false);
        };
        match self.doubt(now, task.attempts) {
            Doubt::AskedAgain => Err(TaskError::FormerVersion { announced, got }),
            Doubt::Accepted => Ok(true),
            Doubt::Usual => Ok(false),
        }
    }
}

/// Whether a cache is to ask the Source again.
pub(super) fn is_asked_again(now: Now, task: &Task, expected: &Expected) -> bool {
    task.attempts > 0 && doubted_time(now, task, expected).is_some()
}

/// The announced time of a change that no digest proves, if an answer may be the former version.
fn doubted_time(now: Now, task: &Task, expected: &Expected) -> Option<SourceTime> {
    let announced = task.lastmod.or(task.changed_at)?;
    let is_recent =
        announced > SourceTime::from(now.wall - OLDEST) && is_plausible(announced, now.wall);
    // The time that only a hub states is none of the Source's.
    let has_former =
        task.live && !task.live_doubted && !task.unconfirmed && task.origin != Origin::Audit;
    (is_recent && has_former && expected.content.hashes.is_empty()).then_some(announced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn answers_are_doubted_until_that_was_futile_for_some_changes() {
        let (mut answers, now) = (FormerVersions::default(), clock::now());
        for _ in 0..MOST_FUTILE {
            for attempts in 0..5 {
                assert_eq!(answers.doubt(now, attempts), Doubt::AskedAgain);
            }
            assert_eq!(answers.doubt(now, 5), Doubt::Accepted);
        }
        assert_eq!(answers.doubt(now, 0), Doubt::Usual);
    }

    #[test]
    fn answers_that_are_doubted_in_an_hour_are_limited() {
        let (mut answers, now) = (FormerVersions::default(), clock::now());
        for _ in 0..MOST_DOUBTED {
            assert_eq!(answers.doubt(now, 0), Doubt::AskedAgain);
        }
        assert_eq!(answers.doubt(now, 0), Doubt::Accepted);
        assert_eq!(answers.doubt(now.plus(WINDOW), 0), Doubt::AskedAgain);
    }
}
