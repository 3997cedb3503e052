//! The life of one subscription: asked for, verified, renewed, denied, ended (WebSub, sections 5 and 6).
//!
//! Leases are dates on the wall clock, because they outlive the process. A hub's word is taken only for what was asked:
//! an unasked verification never shortens, lengthens or ends a lease.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Where a subscription stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelState {
    /// Asked for, or about to be.
    Pending,
    /// The hub has verified it, and its lease runs.
    Active,
    /// The hub refuses it; it is asked again after a pause.
    Denied,
    /// The lease ran out before the hub confirmed the next one.
    Expired,
    /// It was ended on purpose.
    Unsubscribed,
}

impl ChannelState {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Unsubscribed => "unsubscribed",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        let all = [
            Self::Pending,
            Self::Active,
            Self::Denied,
            Self::Expired,
            Self::Unsubscribed,
        ];
        all.into_iter().find(|state| state.code() == code)
    }
}

/// What is asked of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To begin or to renew.
    Subscribe,
    /// To end.
    Unsubscribe,
}

/// A request whose verification is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What for.
    pub intent: Intent,
    /// The lease that was asked for, in seconds.
    pub lease_seconds: u64,
}

/// What a hub's verification is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Confirm: it was asked for. The lease has changed.
    Confirm,
    /// Confirm: it is so already, and stays as it is.
    ConfirmAgain,
    /// Refuse: nobody asked.
    Refuse,
}

/// The shortest time between two requests of one channel.
const SHORTEST_PAUSE: TimeDelta = TimeDelta::seconds(2);
/// The longest pause between two tries of a request.
const LONGEST_PAUSE: TimeDelta = TimeDelta::hours(1);
/// How long a hub may take from a request to its verification.
const VERIFICATION_TIME: TimeDelta = TimeDelta::minutes(1);
/// The longest lease that is counted with: what a hub grants beyond is confirmed, but renewed as if it were this.
const LONGEST_LEASE: u64 = 366 * 24 * 3600;

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Where it stands.
    pub state: ChannelState,
    /// What the hub has been asked and has not verified yet.
    pub asked: Option<Asked>,
    /// When the lease runs out.
    pub expires_at: Option<DateTime<Utc>>,
    /// When to ask for the next one.
    pub renew_at: Option<DateTime<Utc>>,
    /// When to ask the hub (again), while there is nothing to renew or renewing fails.
    pub next_try_at: Option<DateTime<Utc>>,
    /// How often in a row the hub was asked without success.
    pub failures: u32,
}

impl Lease {
    /// A subscription to be asked for at once.
    #[must_use]
    pub fn new(now: DateTime<Utc>) -> Self {
        Self {
            state: ChannelState::Pending,
            asked: None,
            expires_at: None,
            renew_at: None,
            next_try_at: Some(now),
            failures: 0,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<DateTime<Utc>> {
        let expiry = self
            .expires_at
            .filter(|_| self.state == ChannelState::Active);
        let ask = self.next_try_at.or(self.renew_at);
        [expiry, ask].into_iter().flatten().min()
    }

    /// Moves on with time; tells whether the hub is to be asked now.
    pub fn handle_timeout(&mut self, now: DateTime<Utc>) -> bool {
        if self.state == ChannelState::Active && self.expires_at.is_some_and(|at| at <= now) {
            self.state = ChannelState::Expired;
            self.expires_at = None;
            self.renew_at = None;
            self.next_try_at = Some(self.next_try_at.map_or(now, |at| at.min(now)));
        }
        self.next_try_at
            .or(self.renew_at)
            .is_some_and(|at| at <= now)
    }

    /// Notes a request that is about to be sent, so that its verification is recognised even if it comes first. Until the
    /// hub has verified it, the request counts as failed.
    pub fn ask(&mut self, now: DateTime<Utc>, asked: Asked) {
        self.asked = Some(asked);
        self.failures = self.failures.saturating_add(1);
        self.next_try_at = Some(now + VERIFICATION_TIME.max(pause(self.failures)));
    }

    /// Notes that a request failed or was refused. `wait`: how long the hub asked to be left alone.
    pub fn failed(&mut self, now: DateTime<Utc>, wait: Option<Duration>) {
        let wait = wait
            .and_then(|wait| TimeDelta::from_std(wait).ok())
            .unwrap_or_default();
        self.next_try_at = Some(now + pause(self.failures).max(wait).min(LONGEST_PAUSE));
    }

    /// Takes a hub's verification of intent for the channel's own topic. `spread`, from 0 to 1, chooses the moment of the
    /// renewal between half and two thirds of the lease.
    pub fn verify(
        &mut self,
        now: DateTime<Utc>,
        intent: Intent,
        granted: Option<u64>,
        spread: f64,
    ) -> Ruling {
        match self.asked.filter(|asked| asked.intent == intent) {
            Some(asked) => {
                self.asked = None;
                self.failures = 0;
                self.next_try_at = None;
                match intent {
                    Intent::Subscribe => self.run(
                        now,
                        granted.filter(|&s| s > 0).unwrap_or(asked.lease_seconds),
                        spread,
                    ),
                    Intent::Unsubscribe => {
                        self.state = ChannelState::Unsubscribed;
                        self.expires_at = None;
                        self.renew_at = None;
                    }
                }
                Ruling::Confirm
            }
            None if intent == Intent::Subscribe && self.state == ChannelState::Active => {
                Ruling::ConfirmAgain
            }
            None if intent == Intent::Unsubscribe && self.state == ChannelState::Unsubscribed => {
                Ruling::ConfirmAgain
            }
            None => Ruling::Refuse,
        }
    }

    fn run(&mut self, now: DateTime<Utc>, lease_seconds: u64, spread: f64) {
        let lease = Duration::from_secs(lease_seconds.clamp(1, LONGEST_LEASE));
        let renewal = lease.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 6.0);
        let later = |by: Duration| now + TimeDelta::from_std(by).unwrap_or(TimeDelta::days(366));
        self.state = ChannelState::Active;
        self.expires_at = Some(later(lease));
        self.renew_at = Some(later(renewal).max(now + SHORTEST_PAUSE));
    }

    /// Takes a hub's word that it refuses or ends the subscription.
    pub fn denied(&mut self, now: DateTime<Utc>) {
        self.state = ChannelState::Denied;
        self.asked = None;
        self.expires_at = None;
        self.renew_at = None;
        self.failures = self.failures.max(1).saturating_add(1);
        self.next_try_at = Some(now + pause(self.failures));
    }

    /// Asks anew at once, whatever was: after a start, or when push has silently stopped.
    pub fn restart(&mut self, now: DateTime<Utc>) {
        if self.state == ChannelState::Unsubscribed {
            *self = Self::new(now);
        }
        self.next_try_at = Some(now);
    }
}

/// The pause after so many failures in a row: 2 s, 4 s, 8 s, … up to an hour.
fn pause(failures: u32) -> TimeDelta {
    let seconds = 1_i64.checked_shl(failures.clamp(1, 20)).unwrap_or(i64::MAX);
    TimeDelta::seconds(seconds).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn asked(lease: u64) -> Asked {
        Asked {
            intent: Intent::Subscribe,
            lease_seconds: lease,
        }
    }

    fn active(granted: Option<u64>) -> Lease {
        let mut lease = Lease::new(at(0));
        assert!(lease.handle_timeout(at(0)));
        lease.ask(at(0), asked(600));
        assert_eq!(
            lease.verify(at(0), Intent::Subscribe, granted, 0.0),
            Ruling::Confirm
        );
        lease
    }

    #[test]
    fn granted_lease_counts_whatever_was_asked() {
        for (granted, expires) in [
            (Some(60), 60),
            (Some(6000), 6000),
            (None, 600),
            (Some(0), 600),
            (Some(1), 1),
        ] {
            assert_eq!(
                active(granted).expires_at,
                Some(at(expires)),
                "granted {granted:?}"
            );
        }
        for absurd in [u64::MAX, 1 << 63] {
            assert_eq!(active(Some(absurd)).expires_at, Some(at(366 * 24 * 3600)));
        }
    }

    #[test]
    fn renewal_lies_between_half_and_two_thirds_of_the_lease() {
        for (spread, renew) in [(0.0, 300), (1.0, 400), (7.0, 400)] {
            let mut lease = Lease::new(at(0));
            lease.ask(at(0), asked(600));
            lease.verify(at(0), Intent::Subscribe, None, spread);
            assert_eq!(lease.renew_at, Some(at(renew)), "spread {spread}");
        }
        assert_eq!(
            active(Some(1)).renew_at,
            Some(at(2)),
            "never more often than every two seconds"
        );
    }

    #[test]
    fn unasked_verification_changes_nothing() {
        let mut lease = active(None);
        let before = lease.clone();
        assert_eq!(
            lease.verify(at(1), Intent::Subscribe, Some(1), 0.5),
            Ruling::ConfirmAgain
        );
        assert_eq!(
            lease.verify(at(1), Intent::Unsubscribe, None, 0.5),
            Ruling::Refuse
        );
        assert_eq!(lease, before);
        assert_eq!(
            Lease::new(at(0)).verify(at(0), Intent::Subscribe, None, 0.5),
            Ruling::Refuse
        );
    }

    #[test]
    fn old_lease_goes_on_while_the_renewal_fails() {
        let mut lease = active(None);
        assert!(!lease.handle_timeout(at(299)));
        assert!(lease.handle_timeout(at(300)));
        let mut tries = Vec::new();
        let mut now = 300;
        while now < 600 {
            lease.ask(at(now), asked(600));
            lease.failed(at(now), None);
            tries.push(now);
            now = (lease.next_try_at.unwrap() - at(0)).num_seconds();
            assert_eq!(lease.state, ChannelState::Active);
        }
        assert_eq!(tries, [300, 302, 306, 314, 330, 362, 426, 554]);
        assert_eq!(lease.next_deadline(), Some(at(600)));
        assert!(lease.handle_timeout(at(600)), "expired: ask at once");
        assert_eq!(lease.state, ChannelState::Expired);
    }

    #[test]
    fn hub_that_never_verifies_is_asked_again() {
        let mut lease = Lease::new(at(0));
        lease.ask(at(0), asked(600));
        assert!(!lease.handle_timeout(at(59)));
        assert!(lease.handle_timeout(at(60)));
        assert_eq!(
            lease.verify(at(61), Intent::Subscribe, None, 0.0),
            Ruling::Confirm,
            "late is not never"
        );
    }

    #[test]
    fn denied_channel_is_asked_again_after_a_growing_pause() {
        let mut lease = active(None);
        let mut pauses = Vec::new();
        for now in [0, 100, 200, 300] {
            lease.denied(at(now));
            assert_eq!(lease.state, ChannelState::Denied);
            pauses.push((lease.next_try_at.unwrap() - at(now)).num_seconds());
        }
        assert_eq!(pauses, [4, 8, 16, 32]);
    }

    #[test]
    fn ended_channel_confirms_its_end_and_asks_no_more() {
        let mut lease = active(None);
        lease.ask(
            at(5),
            Asked {
                intent: Intent::Unsubscribe,
                lease_seconds: 0,
            },
        );
        assert_eq!(
            lease.verify(at(6), Intent::Subscribe, None, 0.0),
            Ruling::ConfirmAgain
        );
        assert_eq!(
            lease.verify(at(6), Intent::Unsubscribe, None, 0.0),
            Ruling::Confirm
        );
        assert_eq!(lease.state, ChannelState::Unsubscribed);
        assert_eq!(lease.next_deadline(), None);
        assert_eq!(
            lease.verify(at(7), Intent::Unsubscribe, None, 0.0),
            Ruling::ConfirmAgain
        );
    }

    proptest! {
        /// Whatever a hub does, there is always a next step while the channel is wanted, and no two requests are closer
        /// than two seconds unless one was confirmed between them.
        #[test]
        fn channel_never_stalls_and_never_hurries(events in proptest::collection::vec((0_u8..5, 0_i64..200, any::<u64>()), 1..60)) {
            let mut lease = Lease::new(at(0));
            let mut now = 0;
            let mut last_request: Option<i64> = None;
            for (event, step, number) in events {
                now += step;
                match event {
                    0 | 1 => if lease.handle_timeout(at(now)) {
                        prop_assert!(last_request.is_none_or(|last| now - last >= 2), "asked at {last_request:?} and {now}");
                        last_request = Some(now);
                        lease.ask(at(now), asked(600));
                        if event == 1 { lease.failed(at(now), None); }
                    },
                    2 => { lease.verify(at(now), Intent::Subscribe, Some(number), 0.5); }
                    3 => { lease.verify(at(now), Intent::Unsubscribe, None, 0.5); }
                    _ => lease.denied(at(now)),
                }
                prop_assert!(lease.next_deadline().is_some());
                prop_assert_ne!(lease.state, ChannelState::Unsubscribed);
            }
        }
    }
}
