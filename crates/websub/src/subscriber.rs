//! The subscriber's side: the lease of one subscription, from the request to its end (sections 5.1 to 5.3).
//!
//! [`Lease`] has the dates of a subscription, and its methods are the only code that moves them. It knows neither HTTP nor hubs nor
//! topics, and reads no clock: the subscriber passes the time, saves the value where it has to outlive the process, and sends what is due:
//!
//! ```
//! # use chrono::{DateTime, TimeDelta};
//! use websub::Intent;
//! use websub::subscriber::{Lease, PendingRequest, VerificationAnswer};
//!
//! let now = DateTime::UNIX_EPOCH;
//! let mut lease = Lease::new(now);
//! assert!(lease.handle_timeout(now));
//! lease.begin_request(now, PendingRequest { intent: Intent::Subscribe, lease_seconds: 3600 });
//! // The hub verifies the intent, and grants half an hour.
//! let answer = lease.verify(now, Intent::Subscribe, Some(1800), 0.0);
//! assert_eq!(answer, VerificationAnswer::Confirm);
//! assert_eq!(lease.next_deadline(), Some(now + TimeDelta::minutes(15)));
//! ```
//!
//! Leases are dates on the wall clock, because they outlive the process. A verification counts only for a pending request:
//! without one it never shortens, lengthens or ends a lease. A clock that is set forward only causes early renewals; when it
//! is set back, the dates move with it.
//!
//! A hub does not set the pace: whatever it grants, refuses or denies, twelve requests for a subscription may follow each other
//! quickly, and then there is one per five minutes. A short lease is renewed in time while that lasts. Then it runs out before its
//! renewal, and the subscriber polls meanwhile.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::Intent;

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Requested, or about to be.
    Pending,
    /// Verified by the hub; the lease runs.
    Active,
    /// Denied by the hub; requested again after a pause.
    Denied,
    /// The lease ran out before the hub verified a renewal.
    Expired,
    /// Ended by the subscriber.
    Unsubscribed,
}

impl LeaseState {
    /// The stable name, for storage and display.
    pub fn code(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Unsubscribed => "unsubscribed",
        }
    }

    /// The state of a stable name.
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

/// A request that the hub has not verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// The mode.
    pub intent: Intent,
    /// The requested lease, in seconds.
    pub lease_seconds: u64,
}

/// The answer to a hub's verification of intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerificationAnswer {
    /// Confirm a pending request; the lease has changed.
    Confirm,
    /// Confirm a repeated verification; nothing has changed.
    ConfirmAgain,
    /// Reject: no such request is pending.
    Reject,
}

/// The shortest time between two requests for one subscription.
const SHORTEST_PAUSE: TimeDelta = TimeDelta::seconds(2);
/// The shortest lease that is always renewed in time, and the pace of the requests beyond [`REQUEST_BURST`].
const REQUEST_INTERVAL: TimeDelta = TimeDelta::minutes(5);
/// How many requests for a subscription may follow each other faster than [`REQUEST_INTERVAL`]: those after failures, to
/// other hubs, and the first renewals of a short lease.
const REQUEST_BURST: i32 = 12;
/// The longest pause between two attempts.
const LONGEST_PAUSE: TimeDelta = TimeDelta::hours(1);
/// How long a hub may take to verify a request.
const VERIFICATION_TIME: TimeDelta = TimeDelta::minutes(1);
/// The longest lease, in seconds. A longer grant is confirmed, but renewed as if it were this.
const LONGEST_LEASE: u64 = 366 * 24 * 3600;
/// A smaller difference is a correction of the clock, not a step.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(1);

/// The state and the dates of one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The state.
    pub state: LeaseState,
    /// The request that the hub has not verified yet.
    pub asked: Option<PendingRequest>,
    /// When the lease runs out.
    pub expires_at: Option<DateTime<Utc>>,
    /// When to request the next lease.
    pub renew_at: Option<DateTime<Utc>>,
    /// When to send the next request while no lease runs or its renewal fails.
    pub next_try_at: Option<DateTime<Utc>>,
    /// Requests in a row that were not verified.
    pub failures: u32,
    /// When the last request was sent.
    pub asked_at: Option<DateTime<Utc>>,
    /// Before this time the hub does not want another request: its `Retry-After`.
    pub not_before: Option<DateTime<Utc>>,
    /// How far into the future the requests so far have used the pace of one per five minutes (a leaky bucket).
    pub paced_until: Option<DateTime<Utc>>,
}

impl Lease {
    /// A subscription whose first request is due now.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self {
            state: LeaseState::Pending,
            asked: None,
            expires_at: None,
            renew_at: None,
            next_try_at: Some(now),
            failures: 0,
            asked_at: None,
            not_before: None,
            paced_until: None,
        }
    }

    /// As [`new`](Self::new), for a subscriber that had the subscription before: the pace of its requests continues.
    pub fn anew(&self, now: DateTime<Utc>) -> Self {
        Self {
            paced_until: self.paced_until,
            ..Self::new(now)
        }
    }

    /// Whether a verification now renews a lease that has run without an interruption or a doubt.
    pub fn is_undisturbed(&self, now: DateTime<Utc>) -> bool {
        self.state == LeaseState::Active
            && self.expires_at.is_some_and(|at| at > now)
            && self.renew_at.is_some()
            // The request that is to be verified counts as failed.
            && self.failures <= 1
    }

    /// Whether the subscription runs, and no request since was left without a verification.
    pub fn is_healthy(&self) -> bool {
        self.state == LeaseState::Active && self.failures == 0
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do; `None` once the subscription has ended.
    pub fn next_deadline(&self) -> Option<DateTime<Utc>> {
        let expiry = self.expires_at.filter(|_| self.state == LeaseState::Active);
        [expiry, self.request_at()].into_iter().flatten().min()
    }

    /// When the next request is due: at least two seconds after the last one, and not before the pace allows it.
    fn request_at(&self) -> Option<DateTime<Utc>> {
        let at = self.next_try_at.or(self.renew_at)?;
        let soonest = self.asked_at.map(|last| last + SHORTEST_PAUSE);
        Some(at).max(soonest).max(self.paced_at())
    }

    /// When the pace allows the next request.
    fn paced_at(&self) -> Option<DateTime<Utc>> {
        let until = self.paced_until?;
        until.checked_sub_signed(REQUEST_INTERVAL * (REQUEST_BURST - 1))
    }

    /// Moves all dates after the wall clock was set back by `by`. The lease does not run out before the hub has had time to
    /// verify a renewal: it may have been granted after the step.
    pub fn shift_back(&mut self, now: DateTime<Utc>, by: TimeDelta) {
        for date in [
            &mut self.expires_at,
            &mut self.renew_at,
            &mut self.next_try_at,
            &mut self.asked_at,
            &mut self.not_before,
            &mut self.paced_until,
        ] {
            *date = date.and_then(|date| date.checked_sub_signed(by));
        }
        let soonest = now + VERIFICATION_TIME;
        self.expires_at = self.expires_at.map(|at| at.max(soonest));
    }

    /// Detects that the clock was set back while the process did not run: the last request can't be in the future. How much
    /// of the lease has passed is unknown then, so it is renewed at once.
    fn detect_clock_step(&mut self, now: DateTime<Utc>) {
        let Some(ahead) = self.asked_at.map(|asked_at| asked_at - now) else {
            return;
        };
        if ahead > CLOCK_TOLERANCE {
            self.shift_back(now, ahead);
            if self.state == LeaseState::Active {
                self.next_try_at = Some(now);
            }
        }
    }

    /// Expires a lease that has run out. Returns whether a request is due now.
    pub fn handle_timeout(&mut self, now: DateTime<Utc>) -> bool {
        self.detect_clock_step(now);
        let latest = now + REQUEST_INTERVAL * REQUEST_BURST;
        self.paced_until = self.paced_until.map(|until| until.min(latest));
        if self.state == LeaseState::Active && self.expires_at.is_some_and(|at| at <= now) {
            self.expire(now);
        }
        self.request_at().is_some_and(|at| at <= now)
    }

    /// Records a request before it is sent, so that its verification is recognised even if it arrives before the hub's
    /// answer. Until it is verified, the request counts as failed.
    pub fn begin_request(&mut self, now: DateTime<Utc>, asked: PendingRequest) {
        self.asked = Some(asked);
        if asked.intent == Intent::Subscribe {
            self.use_pace(now);
        }
        self.count_attempt(now);
    }

    /// As [`begin_request`](Self::begin_request), for a subscription that is requested in a way without verifications of intent.
    pub fn begin_attempt(&mut self, now: DateTime<Utc>) {
        self.use_pace(now);
        self.count_attempt(now);
    }

    fn use_pace(&mut self, now: DateTime<Utc>) {
        let used = self.paced_until.map_or(now, |until| until.max(now));
        self.paced_until = Some(used + REQUEST_INTERVAL);
    }

    fn count_attempt(&mut self, now: DateTime<Utc>) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = None;
        self.begin_verification(now);
    }

    /// Restarts the time for the verification: the pending request goes to another hub.
    pub fn begin_verification(&mut self, now: DateTime<Utc>) {
        self.asked_at = Some(now);
        self.next_try_at = Some(self.unverified_at(now));
    }

    /// Continues after a restart. The verification of a pending request may have been missed meanwhile, so the next attempt
    /// is due as early as after a failed request.
    pub fn resume(&mut self) {
        let Some(asked_at) = self.asked_at.filter(|_| self.asked.is_some()) else {
            return;
        };
        if self.next_try_at == Some(self.unverified_at(asked_at)) {
            self.next_try_at = Some(asked_at + self.pause());
        }
    }

    /// When a request counts as failed that the hub neither refuses nor verifies.
    fn unverified_at(&self, asked_at: DateTime<Utc>) -> DateTime<Utc> {
        asked_at + VERIFICATION_TIME.max(self.pause())
    }

    /// The pause after the failures so far: 2 s, 4 s, 8 s, … up to an hour.
    pub fn pause(&self) -> TimeDelta {
        let doubled = 1_i64.checked_shl(self.failures.clamp(1, 20));
        TimeDelta::seconds(doubled.unwrap_or(i64::MAX)).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Records that the pending request failed or was refused. `retry_after`: the hub's `Retry-After`.
    pub fn fail_request(&mut self, now: DateTime<Utc>, retry_after: Option<Duration>) {
        let wait = retry_after.map(|wait| {
            let wait = TimeDelta::from_std(wait).unwrap_or(LONGEST_PAUSE);
            wait.min(LONGEST_PAUSE)
        });
        self.not_before = wait.map(|wait| now + wait);
        let soonest = now + self.pause();
        self.next_try_at = Some(self.not_before.map_or(soonest, |at| at.max(soonest)));
    }

    /// Records that another hub denies what was requested of it, while the lease of this one continues.
    pub fn drop_request(&mut self, now: DateTime<Utc>) {
        self.asked = None;
        self.fail_request(now, None);
    }

    /// Records that the hub has ended the lease while another one is being asked: that request continues.
    pub fn lose(&mut self) {
        self.state = LeaseState::Expired;
        self.expires_at = None;
        self.renew_at = None;
    }

    /// Records that no hub is known.
    pub fn fail_without_hub(&mut self, now: DateTime<Utc>) {
        self.failures = self.failures.saturating_add(1);
        self.fail_request(now, None);
    }

    /// Answers a hub's verification of intent. `granted` is the lease in seconds. `spread`, from 0 to 1, chooses the time of
    /// the renewal between half and two thirds of the lease.
    pub fn verify(
        &mut self,
        now: DateTime<Utc>,
        intent: Intent,
        granted: Option<u64>,
        spread: f64,
    ) -> VerificationAnswer {
        match self.asked.filter(|asked| asked.intent == intent) {
            Some(asked) => {
                match intent {
                    Intent::Subscribe => {
                        let granted = granted.filter(|&seconds| seconds > 0);
                        self.activate(now, granted.unwrap_or(asked.lease_seconds), spread);
                    }
                    Intent::Unsubscribe => self.end(),
                }
                VerificationAnswer::Confirm
            }
            None if intent == Intent::Subscribe && self.state == LeaseState::Active => {
                VerificationAnswer::ConfirmAgain
            }
            None if intent == Intent::Unsubscribe && self.state == LeaseState::Unsubscribed => {
                VerificationAnswer::ConfirmAgain
            }
            None => VerificationAnswer::Reject,
        }
    }

    fn activate(&mut self, now: DateTime<Utc>, lease_seconds: u64, spread: f64) {
        let lease = Duration::from_secs(lease_seconds.clamp(1, LONGEST_LEASE));
        let renewal = lease.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 6.0);
        let later = |by: Duration| now + TimeDelta::from_std(by).unwrap_or(TimeDelta::days(366));
        self.state = LeaseState::Active;
        self.asked = None;
        self.failures = 0;
        self.next_try_at = None;
        self.not_before = None;
        self.expires_at = Some(later(lease));
        if later(lease) <= now + SHORTEST_PAUSE {
            // It can't be renewed before it ends, so there is no point in trying often.
            self.paced_until = Some(now + REQUEST_INTERVAL * REQUEST_BURST);
        }
        let renew_at = later(renewal).max(now + SHORTEST_PAUSE);
        self.renew_at = Some(renew_at).max(self.paced_at());
    }

    /// Ends the subscription for good.
    pub fn end(&mut self) {
        self.state = LeaseState::Unsubscribed;
        self.asked = None;
        self.failures = 0;
        self.expires_at = None;
        self.renew_at = None;
        self.next_try_at = None;
        self.not_before = None;
    }

    /// Applies a hub's denial. If the subscription was to end, it has ended.
    pub fn deny(&mut self, now: DateTime<Utc>) {
        let is_ending = self
            .asked
            .is_some_and(|asked| asked.intent == Intent::Unsubscribe);
        if is_ending || self.state == LeaseState::Unsubscribed {
            self.end();
            return;
        }
        if self.state == LeaseState::Denied && self.asked.is_none() {
            // Said again, it must not postpone the request to the next hub.
            return;
        }
        self.state = LeaseState::Denied;
        self.asked = None;
        self.expires_at = None;
        self.renew_at = None;
        self.failures = self.failures.max(1).saturating_add(1);
        self.next_try_at = Some(now + self.pause());
    }

    /// Expires a running lease: it has run out, or the hub no longer delivers. A request is due now, or when the hub's
    /// `Retry-After` is over. Returns whether a lease was running.
    pub fn expire(&mut self, now: DateTime<Utc>) -> bool {
        let is_running = self.state == LeaseState::Active;
        if is_running {
            self.lose();
            self.next_try_at = Some(self.not_before.map_or(now, |at| at.max(now)));
        }
        is_running
    }

    /// Makes a request due now although the lease runs: the hub may have given it up.
    pub fn renew_now(&mut self, now: DateTime<Utc>) {
        if self.state == LeaseState::Active {
            // The next verification does not renew a subscription that is known to have worked.
            self.renew_at = None;
            self.next_try_at = Some(self.not_before.map_or(now, |at| at.max(now)));
        }
    }

    /// Makes a new request due now, because another hub is to be asked. The pending request no longer counts; a running
    /// lease continues.
    pub fn restart(&mut self, now: DateTime<Utc>) {
        self.asked = None;
        self.failures = 0;
        self.not_before = None;
        self.next_try_at = Some(now);
    }

    /// Makes the request to end the subscription due now. The pending request no longer counts.
    pub fn begin_ending(&mut self, now: DateTime<Utc>) {
        self.restart(now);
        self.asked_at = None;
        self.paced_until = None;
    }
}

#[cfg(test)]
mod tests;
