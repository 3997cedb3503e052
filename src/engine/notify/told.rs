//! What one `[[notify]]` has told, and what it tells next.
//!
//! Invariants: one message for one thing, and one when it is over. What begins again within an hour after its end is told an hour after
//! the last message about it at the earliest, and so is its end. The functions are pure: the same facts give the same result.
//!
//! Must not know how a message is sent.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::subjects::{Subject, Subjects};
use crate::config::Notify;
use crate::status::Attention;

/// The shortest time between two messages about one thing that begins again and again.
const FLAPPING: TimeDelta = TimeDelta::hours(1);

/// Something that was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ToldThing {
    subject: Subject,
    /// What it was, and since when.
    message: String,
    since: String,
    /// When it was told last.
    told_at: DateTime<Utc>,
    /// Whether its end was not told yet.
    is_open: bool,
    /// Whether it has begun again within an hour after its end.
    has_come_back: bool,
    /// Since when it is over, as far as this process knows.
    #[serde(skip)]
    over_since: Option<DateTime<Utc>>,
}

/// Everything that one `[[notify]]` has told and that may be over, or begin again, soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told(Vec<ToldThing>);

/// Something that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) subject: Subject,
    pub(super) message: String,
    pub(super) since: String,
}

/// What one message tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) began: Vec<(Subject, Attention)>,
    /// What was told before and still is so.
    pub(super) lasting: Vec<(Subject, Attention)>,
    pub(super) ended: Vec<Ended>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.began.is_empty() && self.lasting.is_empty() && self.ended.is_empty()
    }
}

impl ToldThing {
    /// Whether the last message about it is an hour old. A clock that was set back counts as none.
    fn is_rested(&self, now: DateTime<Utc>) -> bool {
        now - self.told_at >= FLAPPING || self.told_at > now
    }
}

impl Told {
    /// Notes what there is at that time. What was told is forgotten once it has been over for an hour.
    pub(super) fn observe(&mut self, notify: &Notify, found: &Subjects, now: DateTime<Utc>) {
        self.0.retain_mut(|thing| {
            let is_over = !found.contains_key(&thing.subject);
            thing.over_since = is_over.then(|| thing.over_since.unwrap_or(now));
            thing.is_open &= !is_over || notify.tells_ends();
            let is_forgotten = thing
                .over_since
                .is_some_and(|since| now - since >= FLAPPING);
            notify.tells(&thing.subject.code) && (thing.is_open || !is_forgotten)
        });
    }

    /// What is to be told at that time.
    pub(super) fn news(&self, notify: &Notify, found: &Subjects, now: DateTime<Utc>) -> News {
        let after = TimeDelta::from_std(notify.after).unwrap_or(TimeDelta::MAX);
        let mut news = News::default();
        for (subject, attention) in found {
            let thing = self.0.iter().find(|thing| thing.subject == *subject);
            let row = || (subject.clone(), attention.clone());
            match thing {
                Some(thing) if thing.is_open => {
                    let told_for = (now - thing.told_at).to_std().unwrap_or_default();
                    if notify.repeat.is_some_and(|repeat| told_for >= repeat) {
                        news.lasting.push(row());
                    }
                }
                thing => {
                    let is_rested = thing.is_none_or(|thing| thing.is_rested(now));
                    if notify.tells(&subject.code) && lasts(attention, after, now) && is_rested {
                        news.began.push(row());
                    }
                }
            }
        }
        for thing in self.0.iter().filter(|thing| thing.is_open) {
            let is_over = thing.over_since.is_some_and(|since| now - since >= after);
            if is_over && (!thing.has_come_back || thing.is_rested(now)) {
                news.ended.push(Ended {
                    subject: thing.subject.clone(),
                    message: thing.message.clone(),
                    since: thing.since.clone(),
                });
            }
        }
        news
    }

    /// Notes that these news were told.
    pub(super) fn note(&mut self, news: &News, now: DateTime<Utc>) {
        for (subject, attention) in news.began.iter().chain(&news.lasting) {
            let known = self.0.iter().position(|thing| thing.subject == *subject);
            let known = known.map(|at| self.0.swap_remove(at));
            self.0.push(ToldThing {
                subject: subject.clone(),
                message: attention.message.clone(),
                since: attention.since.clone(),
                told_at: now,
                is_open: true,
                has_come_back: known.is_some_and(|known| !known.is_open || known.has_come_back),
                over_since: None,
            });
        }
        for thing in &mut self.0 {
            if news
                .ended
                .iter()
                .any(|ended| ended.subject == thing.subject)
            {
                (thing.is_open, thing.told_at) = (false, now);
            }
        }
    }
}

/// Whether something that is told is so for long enough.
pub(super) fn has_news(notify: &Notify, found: &Subjects, now: DateTime<Utc>) -> bool {
    !Told::default().news(notify, found, now).is_empty()
}

/// Whether it has lasted for so long. Of what has no time it is not known since when it is so: it is not withheld.
fn lasts(attention: &Attention, after: TimeDelta, now: DateTime<Utc>) -> bool {
    let since = DateTime::parse_from_rfc3339(&attention.since);
    since.is_ok_and(|since| now.signed_duration_since(since) >= after) || since.is_err()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::NotifyAction;

    const HOUR: i64 = 60;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    fn notify(on: &[&str], after: u64, repeat: Option<u64>) -> Notify {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Notify {
            name: "operators".to_owned(),
            on: on.iter().map(|&on| on.to_owned()).collect(),
            after: minutes(after),
            repeat: repeat.map(minutes),
            action: NotifyAction::Command {
                program: "/bin/true".into(),
                arguments: Vec::new(),
            },
        }
    }

    /// What there is: each code with the minute since when.
    fn found(things: &[(&str, i64)]) -> Subjects {
        let thing = |(code, since): &(&str, i64)| {
            let subject = Subject {
                source: Some("example".to_owned()),
                set: None,
                code: (*code).to_owned(),
            };
            let attention = Attention {
                code: (*code).to_owned(),
                message: "m".to_owned(),
                since: at(*since).to_rfc3339(),
                next_step: "n".to_owned(),
            };
            (subject, attention)
        };
        things.iter().map(thing).collect()
    }

    /// What is told in that minute: `+` what begins, `=` what lasts, `-` what is over. It counts as told.
    fn step(told: &mut Told, notify: &Notify, minute: i64, things: &[(&str, i64)]) -> String {
        let (found, now) = (found(things), at(minute));
        told.observe(notify, &found, now);
        let news = told.news(notify, &found, now);
        told.note(&news, now);
        let signed = |sign: char, code: &str| format!("{sign}{code}");
        let began = news.began.iter().map(|it| signed('+', &it.0.code));
        let lasting = news.lasting.iter().map(|it| signed('=', &it.0.code));
        let ended = news.ended.iter().map(|it| signed('-', &it.subject.code));
        let all: Vec<String> = began.chain(lasting).chain(ended).collect();
        all.join(" ")
    }

    /// A minute, what there is in it, and what is told.
    type Step<'a> = (i64, &'a [(&'a str, i64)], &'a str);

    #[track_caller]
    fn check(notify: &Notify, steps: &[Step<'_>]) {
        let mut told = Told::default();
        for (minute, things, expected) in steps {
            let found = step(&mut told, notify, *minute, things);
            assert_eq!(found, *expected, "in minute {minute}");
            // As a restart does.
            let stored = serde_json::to_string(&told).unwrap();
            let again: Told = serde_json::from_str(&stored).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), stored);
        }
    }

    const ALL: [&str; 3] = ["attention", "failing", "recovered"];

    #[test]
    fn thing_is_told_once_and_once_when_it_is_over() {
        check(
            &notify(&ALL, 5, None),
            &[
                (0, &[], ""),
                (1, &[("stale", 1)], ""),
                (5, &[("stale", 1)], ""),
                (6, &[("stale", 1)], "+stale"),
                (7, &[("stale", 1)], ""),
                (900, &[("stale", 1)], ""),
                (901, &[], ""),
                (905, &[], ""),
                (906, &[], "-stale"),
                (907, &[], ""),
            ],
        );
    }

    #[test]
    fn short_things_are_not_told() {
        check(
            &notify(&ALL, 5, None),
            &[
                (1, &[("failing", 1)], ""),
                (5, &[("failing", 1)], ""),
                (6, &[], ""),
                (7, &[("failing", 7)], ""),
                (11, &[("failing", 7)], ""),
                (12, &[("failing", 7)], "+failing"),
                // Nor are short interruptions.
                (13, &[], ""),
                (14, &[("failing", 14)], ""),
                (20, &[], ""),
                (25, &[], "-failing"),
            ],
        );
    }

    #[test]
    fn storm_is_one_message_and_what_lasts_is_repeated() {
        check(
            &notify(&ALL, 0, Some(120)),
            &[
                (
                    0,
                    &[("held-deletions", 0), ("stale", 0)],
                    "+held-deletions +stale",
                ),
                (119, &[("held-deletions", 0), ("stale", 0)], ""),
                (120, &[("held-deletions", 0)], "=held-deletions -stale"),
                (239, &[("held-deletions", 0)], ""),
                (240, &[("held-deletions", 0)], "=held-deletions"),
            ],
        );
    }

    #[test]
    fn only_what_is_wanted_is_told() {
        let things: &[(&str, i64)] = &[("failing", 0), ("held-deletions", 0), ("stale", 0)];
        for (on, begins, ends) in [
            (&["attention"][..], "+held-deletions +stale", ""),
            (&["failing", "recovered"], "+failing", "-failing"),
            (&["held-deletions"], "+held-deletions", ""),
            (&["stale", "recovered"], "+stale", "-stale"),
            (&["recovered"], "", ""),
        ] {
            let notify = notify(on, 0, None);
            check(
                &notify,
                &[(0, things, begins), (1, &[], ends), (2, &[], "")],
            );
        }
    }

    #[test]
    fn what_begins_again_and_again_is_told_once_an_hour() {
        let wanted = notify(&ALL, 0, None);
        let mut told = Told::default();
        let mut messages = Vec::new();
        // For a day it fails for one minute, and works for the next one.
        for minute in 0..24 * HOUR {
            let things = [("failing", minute)];
            let failing = &things[..usize::from(minute % 2 == 0)];
            if !step(&mut told, &wanted, minute, failing).is_empty() {
                messages.push(minute);
            }
        }
        // The first end is told at once.
        assert_eq!(messages[..2], [0, 1]);
        let mut later = messages[1..].windows(2);
        assert!(later.all(|pair| pair[1] - pair[0] >= HOUR), "{messages:?}");
        assert!(messages.len() > 20, "{messages:?}");
        // What is over for long is forgotten, and is told at once when it begins again.
        let end = 24 * HOUR;
        for minute in end..end + 3 * HOUR {
            step(&mut told, &wanted, minute, &[]);
        }
        assert_eq!(told, Told::default());
        let again = end + 3 * HOUR;
        let began = step(&mut told, &wanted, again, &[("failing", again)]);
        assert_eq!(began, "+failing");
    }

    #[test]
    fn clock_that_is_set_back_withholds_nothing() {
        check(
            &notify(&ALL, 0, None),
            &[
                (5000, &[("stale", 4000)], "+stale"),
                (5001, &[], "-stale"),
                (100, &[("stale", 100)], "+stale"),
                (101, &[], ""),
                (160, &[], "-stale"),
            ],
        );
    }

    #[test]
    fn what_has_no_time_is_told() {
        let mut there = found(&[("stale", 0)]);
        for attention in there.values_mut() {
            attention.since.clear();
        }
        assert!(has_news(&notify(&ALL, 5, None), &there, at(0)));
        assert!(!has_news(&notify(&["failing"], 5, None), &there, at(0)));
    }
}
