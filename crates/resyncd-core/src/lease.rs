//! The dates of one subscription: requested, verified, renewed, denied, ended (WebSub, sections 5 and 6).
//!
//! The inner part of the channel machine ([`Channel`](super::Channel)), and the only code that moves these dates. It knows
//! neither hubs nor topics.
//!
//! Leases are dates on the wall clock, because they outlive the process. A verification counts only for a pending request:
//! without one it never shortens, lengthens or ends a lease. A clock that is set forward only causes early renewals; when it
//! is set back, the dates move with it.
//!
//! A hub does not set the pace: whatever it grants, refuses or denies, a channel sends [`REQUEST_BURST`] requests for a
//! subscription and then one per [`REQUEST_INTERVAL`]. A short lease is renewed in time while that lasts. Then it runs out
//! before its renewal; deliveries are still accepted, and the polls state what the hub does not deliver.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use websub::Intent;

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelState {
    /// Requested, or about to be.
    Pending,
    /// Verified by the hub; the lease runs.
    Active,
    /// Denied by the hub; requested again after a pause.
    Denied,
    /// The lease ran out before the hub verified a renewal.
    Expired,
    /// Ended by this Destination.
    Unsubscribed,
}

impl ChannelState {
    /// The stable name, for the status and the database.
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

/// The shortest time between two requests of one channel.
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
/// A connection that has lasted so long has worked: the next pause is a short one again.
const LASTING: TimeDelta = TimeDelta::minutes(1);
/// A smaller difference is a correction of the clock, not a step.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(1);

/// The state and the dates of one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The state.
    pub state: ChannelState,
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
            state: ChannelState::Pending,
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

    /// As [`new`](Self::new), for a channel that had a subscription before: the pace of its requests continues.
    pub(super) fn anew(&self, now: DateTime<Utc>) -> Self {
        Self {
            paced_until: self.paced_until,
            ..Self::new(now)
        }
    }

    /// Whether a verification now renews a lease that has run without an interruption or a doubt.
    pub(super) fn is_undisturbed(&self, now: DateTime<Utc>) -> bool {
        self.state == ChannelState::Active
            && self.expires_at.is_some_and(|at| at > now)
            && self.renew_at.is_some()
            // The request that is to be verified counts as failed.
            && self.failures <= 1
    }

    /// Whether the subscription runs, and no request since was left without a verification.
    pub fn is_healthy(&self) -> bool {
        self.state == ChannelState::Active && self.failures == 0
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do; `None` once the subscription has ended.
    pub(super) fn next_deadline(&self) -> Option<DateTime<Utc>> {
        let expiry = self
            .expires_at
            .filter(|_| self.state == ChannelState::Active);
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
    pub(super) fn shift_back(&mut self, now: DateTime<Utc>, by: TimeDelta) {
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
            if self.state == ChannelState::Active {
                self.next_try_at = Some(now);
            }
        }
    }

    /// Expires a lease that has run out. Returns whether a request is due now.
    pub(super) fn handle_timeout(&mut self, now: DateTime<Utc>) -> bool {
        self.detect_clock_step(now);
        let latest = now + REQUEST_INTERVAL * REQUEST_BURST;
        self.paced_until = self.paced_until.map(|until| until.min(latest));
        if self.state == ChannelState::Active && self.expires_at.is_some_and(|at| at <= now) {
            self.expire(now);
        }
        self.request_at().is_some_and(|at| at <= now)
    }

    /// Records a request before it is sent, so that its verification is recognised even if it arrives before the hub's
    /// answer. Until it is verified, the request counts as failed.
    pub(super) fn begin_request(&mut self, now: DateTime<Utc>, asked: PendingRequest) {
        self.asked = Some(asked);
        self.failures = self.failures.saturating_add(1);
        self.not_before = None;
        if asked.intent == Intent::Subscribe {
            self.use_pace(now);
        }
        self.begin_verification(now);
    }

    fn use_pace(&mut self, now: DateTime<Utc>) {
        let used = self.paced_until.map_or(now, |until| until.max(now));
        self.paced_until = Some(used + REQUEST_INTERVAL);
    }

    /// Records that there is no connection, and that one is to be opened now.
    pub(super) fn await_connection(&mut self, now: DateTime<Utc>) {
        if self.state == ChannelState::Active {
            // It was open until the process ended: the request that opened it is not the one that is missing an answer.
            self.asked_at = None;
        }
        self.state = ChannelState::Pending;
        self.next_try_at = Some(self.not_before.map_or(now, |at| at.max(now)));
    }

    /// Records that a connection is being opened. Until it is open, that counts as failed.
    pub(super) fn begin_connection(&mut self, now: DateTime<Utc>) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = None;
        self.use_pace(now);
        self.begin_verification(now);
    }

    /// Records that the connection is open. Whether it works is seen once it has lasted.
    pub(super) fn connection_opened(&mut self) {
        self.state = ChannelState::Active;
        self.next_try_at = None;
    }

    /// Records that the Source has registered the callback.
    pub(super) fn callback_registered(&mut self) {
        self.connection_opened();
        self.failures = 0;
        self.not_before = None;
    }

    /// Records that the connection that was open has ended. It may have been given up before, as [`expire`](Self::expire) does.
    pub(super) fn lose_connection(&mut self, now: DateTime<Utc>, spread: f64) {
        let has_lasted = |begun: DateTime<Utc>| (now - begun).abs() >= LASTING;
        if self.asked_at.is_some_and(has_lasted) {
            self.failures = 0;
        }
        if self.state == ChannelState::Active {
            self.lose();
        }
        self.fail_connection(now, None, spread);
    }

    /// Records that no connection could be opened. `spread`, from 0 to 1, lengthens the pause by up to a half.
    pub(super) fn fail_connection(
        &mut self,
        now: DateTime<Utc>,
        retry_after: Option<Duration>,
        spread: f64,
    ) {
        self.fail_request(now, retry_after);
        let pause = pause(self.failures).to_std().unwrap_or_default();
        let jitter = pause.mul_f64(spread.clamp(0.0, 1.0) / 2.0);
        let jitter = TimeDelta::from_std(jitter).unwrap_or_default();
        self.next_try_at = self.next_try_at.map(|at| at + jitter);
    }

    /// Restarts the time for the verification: the pending request goes to another hub.
    pub(super) fn begin_verification(&mut self, now: DateTime<Utc>) {
        self.asked_at = Some(now);
        self.next_try_at = Some(self.unverified_at(now));
    }

    /// Continues after a restart. The verification of a pending request may have been missed meanwhile, so the next attempt
    /// is due as early as after a failed request.
    pub(super) fn resume(&mut self) {
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

    /// Records that the pending request failed or was refused. `retry_after`: the hub's `Retry-After`.
    pub(super) fn fail_request(&mut self, now: DateTime<Utc>, retry_after: Option<Duration>) {
        let wait = retry_after.map(|wait| {
            let wait = TimeDelta::from_std(wait).unwrap_or(LONGEST_PAUSE);
            wait.min(LONGEST_PAUSE)
        });
        self.not_before = wait.map(|wait| now + wait);
        let soonest = now + pause(self.failures);
        self.next_try_at = Some(self.not_before.map_or(soonest, |at| at.max(soonest)));
    }

    /// Records that another hub denies what was requested of it, while the lease of this one continues.
    pub(super) fn drop_request(&mut self, now: DateTime<Utc>) {
        self.asked = None;
        self.fail_request(now, None);
    }

    /// Records that the hub has ended the lease while another one is being asked: that request continues.
    pub(super) fn lose(&mut self) {
        self.state = ChannelState::Expired;
        self.expires_at = None;
        self.renew_at = None;
    }

    /// Records that no hub is known.
    pub(super) fn fail_without_hub(&mut self, now: DateTime<Utc>) {
        self.failures = self.failures.saturating_add(1);
        self.fail_request(now, None);
    }

    /// Answers a hub's verification of intent. `granted` is the lease in seconds. `spread`, from 0 to 1, chooses the time of
    /// the renewal between half and two thirds of the lease.
    pub(super) fn verify(
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
            None if intent == Intent::Subscribe && self.state == ChannelState::Active => {
                VerificationAnswer::ConfirmAgain
            }
            None if intent == Intent::Unsubscribe && self.state == ChannelState::Unsubscribed => {
                VerificationAnswer::ConfirmAgain
            }
            None => VerificationAnswer::Reject,
        }
    }

    fn activate(&mut self, now: DateTime<Utc>, lease_seconds: u64, spread: f64) {
        let lease = Duration::from_secs(lease_seconds.clamp(1, LONGEST_LEASE));
        let renewal = lease.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 6.0);
        let later = |by: Duration| now + TimeDelta::from_std(by).unwrap_or(TimeDelta::days(366));
        self.state = ChannelState::Active;
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
    pub(super) fn end(&mut self) {
        self.state = ChannelState::Unsubscribed;
        self.asked = None;
        self.failures = 0;
        self.expires_at = None;
        self.renew_at = None;
        self.next_try_at = None;
        self.not_before = None;
    }

    /// Applies a hub's denial. If the subscription was to end, it has ended.
    pub(super) fn deny(&mut self, now: DateTime<Utc>) {
        let is_ending = self
            .asked
            .is_some_and(|asked| asked.intent == Intent::Unsubscribe);
        if is_ending || self.state == ChannelState::Unsubscribed {
            self.end();
            return;
        }
        if self.state == ChannelState::Denied && self.asked.is_none() {
            // Said again, it must not postpone the request to the next hub.
            return;
        }
        self.state = ChannelState::Denied;
        self.asked = None;
        self.expires_at = None;
        self.renew_at = None;
        self.failures = self.failures.max(1).saturating_add(1);
        self.next_try_at = Some(now + pause(self.failures));
    }

    /// Expires a running lease: it has run out, or the hub no longer delivers. A request is due now, or when the hub's
    /// `Retry-After` is over. Returns whether a lease was running.
    pub(super) fn expire(&mut self, now: DateTime<Utc>) -> bool {
        let is_running = self.state == ChannelState::Active;
        if is_running {
            self.lose();
            self.next_try_at = Some(self.not_before.map_or(now, |at| at.max(now)));
        }
        is_running
    }

    /// Makes a request due now although the lease runs: the hub may have given it up.
    pub(super) fn renew_now(&mut self, now: DateTime<Utc>) {
        if self.state == ChannelState::Active {
            // The next verification does not renew a subscription that is known to have worked.
            self.renew_at = None;
            self.next_try_at = Some(self.not_before.map_or(now, |at| at.max(now)));
        }
    }

    /// Makes a new request due now, because another hub is to be asked. The pending request no longer counts; a running
    /// lease continues.
    pub(super) fn restart(&mut self, now: DateTime<Utc>) {
        self.asked = None;
        self.failures = 0;
        self.not_before = None;
        self.next_try_at = Some(now);
    }

    /// Makes the request to end the subscription due now. The pending request no longer counts.
    pub(super) fn begin_ending(&mut self, now: DateTime<Utc>) {
        self.restart(now);
        self.asked_at = None;
        self.paced_until = None;
    }
}

/// The pause after this many failures in a row: 2 s, 4 s, 8 s, … up to an hour.
fn pause(failures: u32) -> TimeDelta {
    let seconds = 1_i64.checked_shl(failures.clamp(1, 20)).unwrap_or(i64::MAX);
    TimeDelta::seconds(seconds).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
