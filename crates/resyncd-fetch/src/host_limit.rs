//! How many requests for resources a host gets at once: additive increase, multiplicative decrease.
//!
//! - HTTP/1.1 needs a connection for each request: the limit begins at `connections_per_host` and never exceeds it.
//! - HTTP/2 has all requests on one connection: the limit begins there too and grows up to `streams_per_host`, by one with each
//!   completed request until the host was overloaded for the first time, and by one a round after that.
//! - An overload (429, 503, no connection) halves the limit, or the number of requests in progress if they are fewer. The other
//!   requests that were started before then change nothing: a burst of answers 429 is one overload.
//! - A refusal (401, 403, or a 5xx that is not 503) may be that of one resource. So many in a row, with no other answer between them,
//!   are those of the host: each of them is an overload, as 429 is.
//! - Where one request at once is too many, there is a pause before the next one.
//! - What may be an overload (a time-out, a connection that breaks) halves only what exceeds `connections_per_host`.
//! - The limit never falls below 1. Beyond `connections_per_host` it grows only while it is used.
//! - Why it is lower than it may be is shown until it is not, or until a round of requests has used less than half of it.
//!
//! It does no I/O and reads no clock.

use chrono::{DateTime, Utc};

/// From how many refusals in a row on each is an overload: as many as there are requests at once by default.
const REFUSALS: usize = 8;

/// The version of HTTP that a host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.0 or HTTP/1.1: a request a connection.
    Http1,
    /// HTTP/2: many requests on one connection.
    Http2,
}

/// The configured limits, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    /// `connections_per_host`.
    pub(super) connections: usize,
    /// `streams_per_host`.
    pub(super) streams: usize,
}

/// How an overload shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overload {
    /// The host states it, or it can't be connected to.
    Clear,
    /// A request has timed out, or its connection has broken. Too many requests may have waited for a place on the connection; or
    /// it is a fault of the one resource, whose retries must not slow down the others: `connections_per_host` stay.
    Suspected,
}

/// Why a host gets fewer requests at once than it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slowed {
    /// The stable code of the error.
    pub code: &'static str,
    /// The error.
    pub message: String,
    /// When it last occurred.
    pub at: DateTime<Utc>,
}

/// The limit of one host.
#[derive(Debug)]
pub(super) struct HostLimit {
    most: Most,
    /// `None` until an answer has shown it.
    protocol: Option<Protocol>,
    limit: usize,
    /// The number of overloads: a request counts only if there was none since it was started.
    epoch: u64,
    /// How many requests have completed since the limit last changed.
    completed: usize,
    /// The most requests that were in progress at once while the last requests, as many as the limit, completed.
    peak: usize,
    /// How many of those have completed.
    measured: usize,
    slowed: Option<Slowed>,
    /// How many requests were refused in a row.
    refusals: usize,
    /// Whether one request at once was too many.
    pauses: bool,
}

impl HostLimit {
    pub(super) fn new(most: Most) -> Self {
        Self {
            most,
            protocol: None,
            limit: most.connections,
            epoch: 0,
            completed: 0,
            peak: 0,
            measured: 0,
            slowed: None,
            refusals: 0,
            pauses: false,
        }
    }

    /// How many requests may be in progress now.
    pub(super) fn at_once(&self) -> usize {
        self.limit.min(self.most())
    }

    /// How many there may be when nothing slows them down.
    pub(super) fn most(&self) -> usize {
        match self.protocol {
            Some(Protocol::Http2) => self.most.streams,
            Some(Protocol::Http1) | None => self.most.connections,
        }
    }

    /// The version that the host has answered with last.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// The epoch, which the end of a request that is not for a resource is reported with.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why the limit is lower than it may be.
    pub(super) fn slowed(&self) -> Option<&Slowed> {
        self.slowed.as_ref()
    }

    /// Whether there is to be a pause before the next request.
    pub(super) fn pauses(&self) -> bool {
        self.pauses
    }

    /// The host has refused a request. Whether that is an overload.
    pub(super) fn refused(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS
    }

    /// A request was not refused, or that was long ago.
    pub(super) fn end_refusals(&mut self) {
        self.refusals = 0;
    }

    /// The host has answered.
    pub(super) fn answered(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
        self.limit = self.at_once();
    }

    /// The version may have changed: a request to the host has failed without an answer.
    pub(super) fn forget_protocol(&mut self) {
        self.protocol = None;
    }

    /// A request for a resource begins; so many are in progress with it. Returns the epoch, which its end is reported with.
    pub(super) fn started(&mut self, in_progress: usize) -> u64 {
        self.peak = self.peak.max(in_progress);
        self.epoch
    }

    /// A request has ended in order; so many for resources were in progress with it.
    pub(super) fn completed(&mut self, epoch: u64, in_progress: usize) {
        if epoch != self.epoch {
            return;
        }
        self.pauses = false;
        if self.limit >= self.most() {
            self.slowed = None;
            return;
        }
        let is_used = self.limit < self.most.connections || self.peak * 2 >= self.limit;
        self.measured += 1;
        let is_round = self.measured >= self.limit;
        if is_round {
            self.measured = 0;
            self.peak = in_progress;
        }
        if !is_used {
            // The limit that there is has not been tried. After a round it is known that it delays nothing.
            if is_round {
                self.slowed = None;
            }
            return;
        }
        self.completed += 1;
        let needed = if self.epoch == 0 { 1 } else { self.limit };
        if self.completed >= needed {
            self.limit += 1;
            self.completed = 0;
        }
    }

    /// A request of this epoch has met an overload, while so many for resources were in progress with it.
    pub(super) fn overloaded(
        &mut self,
        epoch: u64,
        overload: Overload,
        in_progress: usize,
        slowed: Slowed,
    ) {
        let floor = match overload {
            Overload::Clear => 1,
            Overload::Suspected => self.most.connections,
        };
        if epoch != self.epoch || self.at_once() < floor {
            return;
        }
        // A limit that was not used is no measure, but `connections_per_host` always is one.
        let used = in_progress.max(self.most.connections);
        let half = self.at_once().min(used) / 2;
        let limit = half.max(floor);
        if limit == self.at_once() && overload == Overload::Suspected {
            return;
        }
        self.limit = limit;
        self.pauses = overload == Overload::Clear && limit == 1;
        self.epoch += 1;
        self.completed = 0;
        self.peak = 0;
        self.measured = 0;
        self.slowed = Some(slowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most {
        connections: 8,
        streams: 20,
    };

    /// What happens to a host.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An answer of that version.
        Answers(Protocol),
        /// As many requests as allowed are started, and complete; so often.
        Completes(usize),
        /// So many requests complete one after the other.
        OneByOne(usize),
        /// As many requests as allowed are started, and each meets an overload.
        AllFail(Overload),
        /// So many requests are started, and one of them meets an overload.
        OneFails(usize),
        /// As many requests as allowed are started; one meets an overload, and then the others complete.
        LateCompletions,
        /// A request fails without an answer.
        Forgets,
        /// So many requests are refused one after the other.
        Refused(usize),
    }

    use Overload::{Clear, Suspected};
    use Protocol::{Http1, Http2};
    use Step::*;

    fn slowed() -> Slowed {
        Slowed {
            code: "http-status",
            message: "the server answered with status 429".to_owned(),
            at: DateTime::UNIX_EPOCH,
        }
    }

    fn start(limit: &mut HostLimit, count: usize) -> Vec<u64> {
        (1..=count).map(|nth| limit.started(nth)).collect()
    }

    fn apply(limit: &mut HostLimit, step: Step) {
        match step {
            Answers(protocol) => limit.answered(protocol),
            Completes(times) => {
                for _ in 0..times {
                    let epochs = start(limit, limit.at_once());
                    let count = epochs.len();
                    for (ended, epoch) in epochs.into_iter().enumerate() {
                        limit.completed(epoch, count - ended);
                    }
                }
            }
            OneByOne(count) => {
                for _ in 0..count {
                    let epoch = limit.started(1);
                    limit.completed(epoch, 1);
                }
            }
            AllFail(overload) => {
                let epochs = start(limit, limit.at_once());
                for (ended, &epoch) in epochs.iter().enumerate() {
                    limit.overloaded(epoch, overload, epochs.len() - ended, slowed());
                }
            }
            OneFails(count) => {
                let epoch = start(limit, count)[0];
                limit.overloaded(epoch, Clear, count, slowed());
            }
            LateCompletions => {
                let epochs = start(limit, limit.at_once());
                limit.overloaded(epochs[0], Clear, epochs.len(), slowed());
                epochs[1..]
                    .iter()
                    .for_each(|&epoch| limit.completed(epoch, 1));
            }
            Forgets => limit.forget_protocol(),
            Refused(count) => {
                for _ in 0..count {
                    let epoch = limit.started(1);
                    if limit.refused() {
                        limit.overloaded(epoch, Clear, 1, slowed());
                    }
                }
            }
        }
    }

    /// After these steps there may be so many requests at once, of so many; whether an overload is shown.
    fn check(steps: &[Step], expected: (usize, usize, bool)) {
        let mut limit = HostLimit::new(MOST);
        steps.iter().for_each(|&step| apply(&mut limit, step));
        let found = (limit.at_once(), limit.most(), limit.slowed().is_some());
        assert_eq!(found, expected, "{steps:?}");
    }

    #[test]
    fn limit_rises_by_one_and_falls_by_half() {
        for (steps, expected) in [
            // As before it is known what the host speaks.
            (&[][..], (8, 8, false)),
            (&[Completes(5)], (8, 8, false)),
            (&[Answers(Http1), Completes(5)], (8, 8, false)),
            // HTTP/2: by one with each request, up to the limit.
            (&[Answers(Http2)], (8, 20, false)),
            (&[Answers(Http2), Completes(1)], (16, 20, false)),
            (&[Answers(Http2), Completes(2)], (20, 20, false)),
            // Not by requests that do not use it.
            (&[Answers(Http2), OneByOne(100)], (8, 20, false)),
            // An overload halves once, however many requests meet it.
            (&[Answers(Http1), AllFail(Clear)], (4, 8, true)),
            (
                &[Answers(Http1), AllFail(Clear), AllFail(Clear)],
                (2, 8, true),
            ),
            // What was in progress is halved, not what might have been.
            (&[Answers(Http2), Completes(2), OneFails(10)], (5, 20, true)),
            (
                &[Answers(Http2), Completes(2), LateCompletions],
                (10, 20, true),
            ),
            // Afterwards a round of requests raises it by one.
            (
                &[Answers(Http1), AllFail(Clear), Completes(1)],
                (5, 8, true),
            ),
            (
                &[Answers(Http1), AllFail(Clear), Completes(3)],
                (7, 8, true),
            ),
            // The reason is shown until a request completes without it.
            (
                &[Answers(Http1), AllFail(Clear), Completes(4)],
                (8, 8, true),
            ),
            (
                &[Answers(Http1), AllFail(Clear), Completes(5)],
                (8, 8, false),
            ),
            // It never falls below one, from where it rises again.
            (
                &[
                    Answers(Http1),
                    AllFail(Clear),
                    AllFail(Clear),
                    AllFail(Clear),
                    AllFail(Clear),
                ],
                (1, 8, true),
            ),
            (
                &[
                    Answers(Http1),
                    AllFail(Clear),
                    AllFail(Clear),
                    AllFail(Clear),
                    OneByOne(1),
                ],
                (2, 8, true),
            ),
            // So it does where requests are few: up to the connections.
            (&[Answers(Http1), OneFails(1), OneByOne(9)], (6, 8, true)),
            (&[Answers(Http2), OneFails(1), OneByOne(99)], (8, 20, false)),
            // What may be an overload takes back only what exceeds the connections.
            (&[Answers(Http1), AllFail(Suspected)], (8, 8, false)),
            (
                &[Answers(Http1), AllFail(Clear), AllFail(Suspected)],
                (4, 8, true),
            ),
            (
                &[Answers(Http2), Completes(2), AllFail(Suspected)],
                (10, 20, true),
            ),
            (
                &[
                    Answers(Http2),
                    Completes(2),
                    AllFail(Suspected),
                    AllFail(Suspected),
                ],
                (8, 20, true),
            ),
            // A refusal is that of one resource, until there are several in a row.
            (&[Refused(REFUSALS - 1)], (8, 8, false)),
            (&[Refused(REFUSALS)], (4, 8, true)),
            (&[Refused(REFUSALS + 2)], (1, 8, true)),
            // The version decides, and may change.
            (
                &[Answers(Http2), Completes(2), Answers(Http1)],
                (8, 8, false),
            ),
            (&[Answers(Http2), Completes(2), Forgets], (8, 8, false)),
            (
                &[Answers(Http2), Completes(2), Forgets, Answers(Http2)],
                (20, 20, false),
            ),
        ] {
            check(steps, expected);
        }
    }

    #[test]
    fn fewer_streams_than_connections_are_respected() {
        let mut limit = HostLimit::new(Most {
            connections: 8,
            streams: 2,
        });
        limit.answered(Http2);
        assert_eq!((limit.at_once(), limit.most()), (2, 2));
    }

    #[test]
    fn one_request_at_once_that_is_too_many_is_followed_by_a_pause() {
        let mut limit = HostLimit::new(MOST);
        for (overloads, pauses) in [(2, false), (1, true), (1, true)] {
            for _ in 0..overloads {
                apply(&mut limit, AllFail(Clear));
            }
            assert_eq!(limit.pauses(), pauses);
        }
        apply(&mut limit, OneByOne(1));
        assert!(!limit.pauses());
    }

    #[test]
    fn refusals_between_other_answers_are_no_overload() {
        let mut limit = HostLimit::new(MOST);
        for _ in 0..3 {
            apply(&mut limit, Refused(REFUSALS - 1));
            limit.end_refusals();
        }
        assert_eq!(limit.at_once(), 8);
    }
}
