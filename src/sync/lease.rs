//! The life of one subscription: asked for, verified, renewed, denied, ended (WebSub, sections 5 and 6).
//!
//! Leases are dates on the wall clock, because they outlive the process. A hub's word is taken only for what was asked:
//! an unasked verification never shortens, lengthens or ends a lease. A clock that is set forward only makes renewals come
//! too soon; one that is set back takes the dates with it.

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

/// So much a clock may be corrected without being set.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(1);

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
    /// When the hub was asked last.
    pub asked_at: Option<DateTime<Utc>>,
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
            asked_at: None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<DateTime<Utc>> {
        let expiry = self
            .expires_at
            .filter(|_| self.state == ChannelState::Active);
        [expiry, self.ask_at()].into_iter().flatten().min()
    }

    /// When the hub is to be asked: never sooner than two seconds after it was asked last.
    fn ask_at(&self) -> Option<DateTime<Utc>> {
        let at = self.next_try_at.or(self.renew_at)?;
        Some(
            self.asked_at
                .map_or(at, |last| at.max(last + SHORTEST_PAUSE)),
        )
    }

    /// Takes it that the wall clock was set back: what was dated by it moves with it. The lease is not taken to have run out
    /// over it before the hub could be asked: it may have been granted after the clock was set.
    pub fn set_back(&mut self, now: DateTime<Utc>, by: TimeDelta) {
        for date in [
            &mut self.expires_at,
            &mut self.renew_at,
            &mut self.next_try_at,
            &mut self.asked_at,
        ] {
            *date = date.and_then(|date| date.checked_sub_signed(by));
        }
        let soonest = now + VERIFICATION_TIME;
        self.expires_at = self.expires_at.map(|at| at.max(soonest));
    }

    /// Notices that the clock was set back while nobody looked: the hub can't have been asked in the future. How much of the
    /// lease has run nobody knows then, so that it is renewed at once.
    fn look_at_clock(&mut self, now: DateTime<Utc>) {
        let Some(ahead) = self.asked_at.map(|asked_at| asked_at - now) else {
            return;
        };
        if ahead > CLOCK_TOLERANCE {
            self.set_back(now, ahead);
            if self.state == ChannelState::Active {
                self.next_try_at = Some(now);
            }
        }
    }

    /// Moves on with time; tells whether the hub is to be asked now.
    pub fn handle_timeout(&mut self, now: DateTime<Utc>) -> bool {
        self.look_at_clock(now);
        if self.state == ChannelState::Active && self.expires_at.is_some_and(|at| at <= now) {
            self.state = ChannelState::Expired;
            self.expires_at = None;
            self.renew_at = None;
            self.next_try_at = Some(self.next_try_at.map_or(now, |at| at.min(now)));
        }
        self.ask_at().is_some_and(|at| at <= now)
    }

    /// Notes a request that is about to be sent, so that its verification is recognised even if it comes first. Until the
    /// hub has verified it, the request counts as failed.
    pub fn ask(&mut self, now: DateTime<Utc>, asked: Asked) {
        self.asked = Some(asked);
        self.asked_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.next_try_at = Some(self.unverified_at(now));
    }

    /// Goes on after a restart. Of a request that nothing has come of, the hub's verification may have come when nobody was
    /// there to answer: it is not waited for any longer than for a request that failed.
    pub fn resume(&mut self) {
        let Some(asked_at) = self.asked_at.filter(|_| self.asked.is_some()) else {
            return;
        };
        if self.next_try_at == Some(self.unverified_at(asked_at)) {
            self.next_try_at = Some(asked_at + pause(self.failures));
        }
    }

    /// When a request counts as failed that the hub neither refuses nor verifies.
    fn unverified_at(&self, asked_at: DateTime<Utc>) -> DateTime<Utc> {
        asked_at + VERIFICATION_TIME.max(pause(self.failures))
    }

    /// Notes that a request failed or was refused. `wait`: how long the hub asked to be left alone.
    pub fn failed(&mut self, now: DateTime<Utc>, wait: Option<Duration>) {
        let wait = wait
            .and_then(|wait| TimeDelta::from_std(wait).ok())
            .unwrap_or_default();
        self.next_try_at = Some(now + pause(self.failures).max(wait).min(LONGEST_PAUSE));
    }

    /// Notes that there was no hub to ask.
    pub fn nobody_to_ask(&mut self, now: DateTime<Utc>) {
        self.failures = self.failures.saturating_add(1);
        self.failed(now, None);
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
                    Intent::Unsubscribe => self.end(),
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

    fn end(&mut self) {
        self.state = ChannelState::Unsubscribed;
        self.asked = None;
        self.expires_at = None;
        self.renew_at = None;
        self.next_try_at = None;
    }

    /// Takes a hub's word that it refuses or ends the subscription. If that is what was wanted, all is well.
    pub fn denied(&mut self, now: DateTime<Utc>) {
        let was_to_end = self
            .asked
            .is_some_and(|asked| asked.intent == Intent::Unsubscribe);
        if was_to_end || self.state == ChannelState::Unsubscribed {
            self.end();
            return;
        }
        self.state = ChannelState::Denied;
        self.asked = None;
        self.expires_at = None;
        self.renew_at = None;
        self.failures = self.failures.max(1).saturating_add(1);
        self.next_try_at = Some(now + pause(self.failures));
    }

    /// Takes it that the hub has forgotten the subscription, whatever its lease says: it is told as expired, and asked for
    /// anew at once.
    pub fn fell_silent(&mut self, now: DateTime<Utc>) {
        if self.state == ChannelState::Active {
            self.state = ChannelState::Expired;
            self.expires_at = None;
            self.renew_at = None;
            self.next_try_at = Some(now);
        }
    }

    /// Asks anew at once, whatever was: there is another hub to ask, or something else to ask for. A lease that runs goes on.
    pub fn restart(&mut self, now: DateTime<Utc>) {
        if self.state == ChannelState::Unsubscribed {
            *self = Self::new(now);
        }
        self.failures = 0;
        self.next_try_at = Some(now);
    }
}

/// The pause after so many failures in a row: 2 s, 4 s, 8 s, … up to an hour.
fn pause(failures: u32) -> TimeDelta {
    let seconds = 1_i64.checked_shl(failures.clamp(1, 20)).unwrap_or(i64::MAX);
    TimeDelta::seconds(seconds).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
