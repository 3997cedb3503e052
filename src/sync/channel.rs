//! The machine of one channel: what is requested of which hub, and when (WebSub, sections 4 and 5).
//!
//! There are two halves. [`Channel`] is what is stored: it outlives the process, and several parts of the shell change it,
//! each in a transaction of its own that loads it, calls one method and saves it. [`ChannelMachine`] belongs to the one
//! driver of the channel and holds the request in progress. The driver passes an event to [`ChannelMachine::handle`] within
//! such a transaction, adopts the machine only when the commit has succeeded, and then performs the returned action, whose
//! result is the next event:
//!
//! ```text
//! Started, Woken ──► ReadTopic ──► TopicRead, TopicUnavailable
//!        │               ▼
//!        └────────► SendRequest ──► HubAccepted, HubRefused ──► the next hub, WaitUntil or End
//! ```
//!
//! Invariants:
//!
//! - A request is stored before it is sent: some hubs verify before they answer.
//! - A verification or a denial overrules whatever the hub answers to the request.
//! - While the channel is wanted there is always a next action.
//! - After a failed commit the driver discards the request in progress and continues with [`ChannelEvent::Started`].
//!
//! It must not know HTTP, secrets, callbacks or rows.

mod choice;

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::lease::{Asked, ChannelState, Lease, Ruling};
use crate::clock::{ClockStepDetector, Now};
use crate::protocol::websub::Intent;
use crate::protocol::{HubUri, TopicUri};

pub use choice::{ChannelChoice, ChannelKey, choose_channels};

/// How many requests a hub gets to end a subscription that is no longer wanted. After that the lease runs out by itself.
const ENDING_TRIES: u32 = 6;
/// The wait where the lease has no date. The machine never leaves it in such a state; a damaged row might.
const UNDATED_WAIT: TimeDelta = TimeDelta::hours(1);

/// What is stored of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The topic as advertised.
    pub topic: TopicUri,
    /// The topic that the hub was asked for: what the topic calls itself. Verifications and denials must name it.
    pub subscribed_topic: TopicUri,
    /// The hub that was asked last; `None`: none is known.
    pub hub: Option<HubUri>,
    /// The hubs that are advertised with the channel, or the one of the configuration.
    pub advertised_hubs: Vec<HubUri>,
    /// The hubs to ask: the advertised ones, until the topic itself names others.
    pub known_hubs: Vec<HubUri>,
    /// Whether the channel is no longer wanted, so that its subscription ends.
    pub left: bool,
    /// State and dates of the subscription.
    pub lease: Lease,
}

impl Channel {
    /// Whether its subscription is being ended or has ended.
    pub fn is_ending(&self) -> bool {
        self.left || self.lease.state == ChannelState::Unsubscribed
    }

    /// The channel is advertised, with these hubs. If it was left before, it is subscribed to anew; if its hub is not among
    /// them, another one is asked.
    pub fn want(&mut self, now: DateTime<Utc>, hubs: &[HubUri]) {
        if self.is_ending() {
            self.left = false;
            self.lease = Lease::new(now);
        }
        if self.advertised_hubs == hubs {
            return;
        }
        self.advertised_hubs = hubs.to_vec();
        if !hubs.is_empty() {
            self.known_hubs = hubs.to_vec();
        }
        let has_moved = |hub: &HubUri| !hubs.is_empty() && !hubs.contains(hub);
        if self.hub.as_ref().is_none_or(has_moved) {
            self.lease.restart(now);
        }
    }

    /// The channel is no longer wanted: its subscription ends.
    pub fn leave(&mut self, now: DateTime<Utc>) {
        self.left = true;
        if self.lease.state != ChannelState::Unsubscribed {
            self.lease.begin_ending(now);
        }
    }

    /// Answers a hub's verification of intent for a topic. `lease_seconds` is the granted lease; `spread`, from 0 to 1, chooses
    /// the time of the renewal.
    pub fn verify(
        &mut self,
        now: DateTime<Utc>,
        topic: &TopicUri,
        intent: Intent,
        lease_seconds: Option<u64>,
        spread: f64,
    ) -> Ruling {
        if *topic != self.subscribed_topic {
            return Ruling::Refuse;
        }
        self.lease.verify(now, intent, lease_seconds, spread)
    }

    /// Applies a hub's denial of a topic. `false`: the channel has not requested this topic, and nothing has changed.
    pub fn deny(&mut self, now: DateTime<Utc>, topic: &TopicUri) -> bool {
        let is_requested = *topic == self.subscribed_topic;
        if is_requested {
            self.lease.deny(now);
        }
        is_requested
    }

    /// Whether a hub may have a subscription, granted or requested.
    pub fn may_be_subscribed(&self) -> bool {
        use ChannelState::{Active, Expired, Pending};
        self.hub.is_some() && matches!(self.lease.state, Active | Expired | Pending)
    }

    /// Whether a hub is expected to deliver.
    pub fn is_delivered(&self) -> bool {
        !self.left && self.lease.state == ChannelState::Active
    }

    /// Polls have found changes that the hub did not deliver: the lease counts as expired. Returns what to report; `None` if
    /// no lease was running.
    pub fn fall_silent(&mut self, now: DateTime<Utc>) -> Option<ChannelFailure> {
        let failure = ChannelFailure {
            code: "push-silent",
            message: "polls find changes that the hub has not delivered".to_owned(),
        };
        self.lease.expire(now).then_some(failure)
    }

    /// The known hubs in the order in which to ask them: the one that granted the running lease first, the one that failed
    /// last time last.
    fn hubs_in_order(&self) -> VecDeque<HubUri> {
        let mut hubs = self.known_hubs.clone();
        let last = self.hub.as_ref();
        if let Some(last) = hubs.iter().position(|hub| Some(hub) == last) {
            if self.lease.failures > 0 {
                hubs[last..].rotate_left(1);
            } else if self.lease.state == ChannelState::Active {
                hubs[..=last].rotate_right(1);
            }
        }
        hubs.into()
    }

    /// The action that waits for the next deadline.
    fn wait(&self, now: DateTime<Utc>) -> ChannelAction {
        let deadline = self.lease.next_deadline();
        ChannelAction::WaitUntil(deadline.unwrap_or(now + UNDATED_WAIT))
    }
}

/// What the configuration states about the channels of a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRules {
    /// The hub to use instead of every advertised one.
    pub hub: Option<HubUri>,
    /// The lease to request, in seconds.
    pub lease_seconds: u64,
}

/// Why a subscription does not work, for status and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFailure {
    /// The stable code.
    pub code: &'static str,
    /// The details, for people.
    pub message: String,
}

/// A request to send to a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRequest {
    /// The hub.
    pub hub: HubUri,
    /// The topic.
    pub topic: TopicUri,
    /// What is requested.
    pub asked: Asked,
}

/// What has happened to the driver of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// It begins, or continues after a failed commit: what became of a stored request is unknown.
    Started,
    /// The time of [`ChannelAction::WaitUntil`] has come, or the stored channel has changed.
    Woken,
    /// The topic was read, and states this.
    TopicRead {
        /// What the topic calls itself.
        topic: Option<TopicUri>,
        /// Its hubs, in its order.
        hubs: Vec<HubUri>,
    },
    /// The topic could not be read.
    TopicUnavailable,
    /// The hub has accepted the request.
    HubAccepted,
    /// The hub has refused the request, or has not answered.
    HubRefused {
        /// Why.
        failure: ChannelFailure,
        /// The hub's `Retry-After`.
        retry_after: Option<Duration>,
    },
}

/// What the driver is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelAction {
    /// Read the topic's links.
    ReadTopic(TopicUri),
    /// Send a request to a hub.
    SendRequest(HubRequest),
    /// Wait until this time of the wall clock, or until the stored channel changes.
    WaitUntil(DateTime<Utc>),
    /// Nothing: the subscription has ended.
    End,
}

/// What the driver is to report first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelReport {
    /// The subscription works, or has ended: an earlier failure is over.
    Healthy,
    /// A hub has refused, and the next one is asked.
    HubSkipped(HubUri, ChannelFailure),
    /// The attempt has failed.
    Failed(ChannelFailure),
}

/// The result of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStep {
    /// What to report first.
    pub report: Option<ChannelReport>,
    /// What to do then.
    pub action: ChannelAction,
}

impl From<ChannelAction> for ChannelStep {
    fn from(action: ChannelAction) -> Self {
        Self {
            report: None,
            action,
        }
    }
}

/// What is in progress. It ends with the process.
#[derive(Clone, Debug)]
enum Attempt {
    ReadingTopic,
    Requesting(Box<RequestInProgress>),
}

#[derive(Clone, Debug)]
struct RequestInProgress {
    request: HubRequest,
    /// The hubs to ask after this one.
    rest: VecDeque<HubUri>,
    /// The longest `Retry-After` of the hubs that have refused.
    retry_after: Option<Duration>,
}

/// The driver's half of the machine of one channel.
#[derive(Clone, Debug)]
pub struct ChannelMachine {
    rules: ChannelRules,
    clock: ClockStepDetector,
    attempt: Option<Attempt>,
}

impl ChannelMachine {
    /// A machine whose first event is [`ChannelEvent::Started`].
    pub fn new(now: Now, rules: ChannelRules) -> Self {
        Self {
            rules,
            clock: ClockStepDetector::since(now),
            attempt: None,
        }
    }

    /// Handles an event. Both halves change together: if `channel` can't be saved, this machine must be discarded for the
    /// one from before the call.
    pub fn handle(&mut self, channel: &mut Channel, now: Now, event: ChannelEvent) -> ChannelStep {
        if let Some(by) = self.clock.noticed(now) {
            channel.lease.shift_back(now.wall, by);
        }
        let now = now.wall;
        match (event, self.attempt.take()) {
            (ChannelEvent::Started, _) => {
                channel.lease.resume();
                self.advance(channel, now)
            }
            (ChannelEvent::TopicRead { topic, hubs }, Some(Attempt::ReadingTopic)) => {
                if !hubs.is_empty() {
                    channel.known_hubs = hubs;
                }
                let topic = topic.unwrap_or_else(|| channel.topic.clone());
                self.subscribe(channel, now, topic)
            }
            (ChannelEvent::TopicUnavailable, Some(Attempt::ReadingTopic)) => {
                let topic = channel.subscribed_topic.clone();
                self.subscribe(channel, now, topic)
            }
            (
                ChannelEvent::HubRefused {
                    failure,
                    retry_after,
                },
                Some(Attempt::Requesting(mut refused)),
            ) if channel.lease.asked == Some(refused.request.asked) => {
                refused.retry_after = refused.retry_after.max(retry_after);
                self.try_next_hub(channel, now, *refused, failure)
            }
            // Accepted, or overruled by a verification, a denial or a change of what is wanted.
            _ => self.advance(channel, now),
        }
    }

    /// Begins what is due.
    fn advance(&mut self, channel: &mut Channel, now: DateTime<Utc>) -> ChannelStep {
        let is_due = channel.lease.handle_timeout(now);
        let is_active = channel.lease.state == ChannelState::Active;
        let step = match channel.lease.state {
            ChannelState::Unsubscribed => ChannelAction::End.into(),
            _ if !is_due => channel.wait(now).into(),
            _ if channel.left => self.unsubscribe(channel, now),
            state => {
                let is_first = state == ChannelState::Pending && channel.lease.failures == 0;
                if self.rules.hub.is_some() {
                    let topic = channel.topic.clone();
                    self.subscribe(channel, now, topic)
                } else if is_first && !channel.known_hubs.is_empty() {
                    let topic = channel.subscribed_topic.clone();
                    self.subscribe(channel, now, topic)
                } else {
                    self.attempt = Some(Attempt::ReadingTopic);
                    ChannelAction::ReadTopic(channel.topic.clone()).into()
                }
            }
        };
        // A request counts as failed until it is verified, so only an undisturbed lease is healthy.
        let is_healthy =
            step.action == ChannelAction::End || is_active && channel.lease.failures == 0;
        ChannelStep {
            report: step.report.or(is_healthy.then_some(ChannelReport::Healthy)),
            ..step
        }
    }

    /// Asks the first hub for a subscription to this topic, or for its renewal, unless that is no longer due.
    fn subscribe(
        &mut self,
        channel: &mut Channel,
        now: DateTime<Utc>,
        topic: TopicUri,
    ) -> ChannelStep {
        if channel.is_ending() || !channel.lease.handle_timeout(now) {
            return self.advance(channel, now);
        }
        let mut hubs = match &self.rules.hub {
            Some(hub) => VecDeque::from([hub.clone()]),
            None => channel.hubs_in_order(),
        };
        let Some(hub) = hubs.pop_front() else {
            channel.lease.fail_without_hub(now);
            let failure = ChannelFailure {
                code: "no-hub",
                message: "neither the Capability List nor the topic names a hub".to_owned(),
            };
            return ChannelStep {
                report: Some(ChannelReport::Failed(failure)),
                action: channel.wait(now),
            };
        };
        let asked = Asked {
            intent: Intent::Subscribe,
            lease_seconds: self.rules.lease_seconds,
        };
        channel.lease.begin_request(now, asked);
        let next = RequestInProgress {
            request: HubRequest { hub, topic, asked },
            rest: hubs,
            retry_after: None,
        };
        self.send(channel, next).into()
    }

    /// Asks the hub to end the subscription. A hub that keeps failing is left alone, and one that was never asked need not be.
    fn unsubscribe(&mut self, channel: &mut Channel, now: DateTime<Utc>) -> ChannelStep {
        let is_tired = channel.lease.failures >= ENDING_TRIES;
        let Some(hub) = channel.hub.clone().filter(|_| !is_tired) else {
            channel.lease.end();
            return ChannelAction::End.into();
        };
        let asked = Asked {
            intent: Intent::Unsubscribe,
            lease_seconds: 0,
        };
        channel.lease.begin_request(now, asked);
        let topic = channel.subscribed_topic.clone();
        let next = RequestInProgress {
            request: HubRequest { hub, topic, asked },
            rest: VecDeque::new(),
            retry_after: None,
        };
        self.send(channel, next).into()
    }

    /// Continues after a refusal with the next hub; after the last one the attempt has failed.
    fn try_next_hub(
        &mut self,
        channel: &mut Channel,
        now: DateTime<Utc>,
        refused: RequestInProgress,
        failure: ChannelFailure,
    ) -> ChannelStep {
        let RequestInProgress {
            request,
            mut rest,
            retry_after,
        } = refused;
        let Some(hub) = rest.pop_front() else {
            channel.lease.fail_request(now, retry_after);
            return ChannelStep {
                report: Some(ChannelReport::Failed(failure)),
                action: channel.wait(now),
            };
        };
        channel.lease.begin_verification(now);
        let report = ChannelReport::HubSkipped(request.hub, failure);
        let next = RequestInProgress {
            request: HubRequest {
                hub,
                topic: request.topic,
                asked: request.asked,
            },
            rest,
            retry_after,
        };
        ChannelStep {
            report: Some(report),
            action: self.send(channel, next),
        }
    }

    fn send(&mut self, channel: &mut Channel, next: RequestInProgress) -> ChannelAction {
        let request = next.request.clone();
        channel.hub = Some(request.hub.clone());
        channel.subscribed_topic = request.topic.clone();
        self.attempt = Some(Attempt::Requesting(Box::new(next)));
        ChannelAction::SendRequest(request)
    }
}

#[cfg(test)]
mod tests;
