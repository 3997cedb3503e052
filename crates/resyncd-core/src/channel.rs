//! The machine of one channel: what is requested of which hub, and when (WebSub, sections 4 and 5). That of a channel over another
//! transport is [`connection`].
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
//! It must not know HTTP, tokens, secrets or rows.

mod callbacks;
mod choice;
mod connection;
mod fault;

use std::collections::VecDeque;
use std::time::Duration;

pub use callbacks::{CallbackChange, CallbackOwner, CallbackSlot, Callbacks};
pub use choice::{ChannelChoice, ChannelKey, choose_channels};
use chrono::{DateTime, TimeDelta, Utc};
pub use connection::ConnectionStep;
pub use fault::{DeliveryFault, DeliveryFaultKind, Denial};
use websub::Intent;
use websub::subscriber::{Lease, PendingRequest, VerificationAnswer};

use crate::{ChannelState, ClockStepDetector, HubUri, Now, TopicUri, Transport};

/// The code of the failure of a channel whose hub has accepted a request and not verified it in time.
pub const NOT_VERIFIED: &str = "not-verified";
/// How many requests a hub gets to end a subscription that is no longer wanted. After that the lease runs out by itself.
const ENDING_TRIES: u32 = 6;
/// How often the hub of a lease that runs may fail to renew it before another one is asked.
const MAX_RENEWAL_FAILURES: u32 = 3;
/// The wait where the lease has no date. The machine never leaves it in such a state; a damaged row might.
const UNDATED_WAIT: TimeDelta = TimeDelta::hours(1);

/// What is stored of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Over what its notifications come.
    pub transport: Transport,
    /// The topic as advertised.
    pub topic: TopicUri,
    /// The topic that the hub was asked for: what the topic calls itself. Verifications and denials must name it.
    pub subscribed_topic: TopicUri,
    /// The hub that was asked last; `None`: none is known.
    pub hub: Option<HubUri>,
    /// Which hub was given which callback.
    pub callbacks: Callbacks,
    /// The hub whose delivery was accepted last.
    pub working_hub: Option<HubUri>,
    /// The hubs that are advertised with the channel, or the one of the configuration.
    pub advertised_hubs: Vec<HubUri>,
    /// The hubs to ask: the advertised ones, until the topic itself names others.
    pub known_hubs: Vec<HubUri>,
    /// Whether the channel is no longer wanted, so that its subscription ends.
    pub is_unwanted: bool,
    /// State and dates of the subscription.
    pub lease: Lease,
    /// The denial, until a subscription is verified.
    pub denial: Option<Denial>,
    /// What is wrong with the deliveries, until one is accepted.
    pub fault: Option<DeliveryFault>,
    /// How often the hubs have fallen silent since a delivery was accepted.
    pub silences: u32,
    /// How often a subscription has begun: a verification that did not just renew the running one. Deliveries may be missing
    /// from before it.
    pub begun: u32,
}

impl Channel {
    /// A channel over WebSub whose first request is due now.
    pub fn new(now: DateTime<Utc>, topic: &TopicUri, hubs: &[HubUri]) -> Self {
        Self {
            transport: Transport::Websub,
            topic: topic.clone(),
            subscribed_topic: topic.clone(),
            hub: hubs.first().cloned(),
            callbacks: Callbacks::default(),
            working_hub: None,
            advertised_hubs: hubs.to_vec(),
            known_hubs: hubs.to_vec(),
            is_unwanted: false,
            lease: Lease::new(now),
            denial: None,
            fault: None,
            silences: 0,
            begun: 0,
        }
    }

    /// A channel over a transport without hubs, that is to be connected now.
    pub fn without_hubs(transport: Transport, now: DateTime<Utc>, topic: &TopicUri) -> Self {
        Self {
            transport,
            ..Self::new(now, topic, &[])
        }
    }

    /// Whether its subscription is being ended or has ended.
    pub fn is_ending(&self) -> bool {
        self.is_unwanted || self.lease.state == ChannelState::Unsubscribed
    }

    /// The channel is advertised, with these hubs. If it was left before, it is subscribed to anew; if its hub is not among
    /// them, another one is asked.
    pub fn want(&mut self, now: DateTime<Utc>, hubs: &[HubUri]) {
        if self.is_ending() {
            self.is_unwanted = false;
            self.lease = self.lease.anew(now);
            self.forget_faults();
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
        self.is_unwanted = true;
        self.forget_faults();
        // A hub that is asked for another subscription finds its callback gone.
        self.callbacks.next = None;
        if let Some(own) = &self.callbacks.own {
            self.hub = Some(own.hub.clone());
            self.subscribed_topic = own.topic.clone();
        }
        if self.lease.state != ChannelState::Unsubscribed {
            self.lease.begin_ending(now);
        }
    }

    fn forget_faults(&mut self) {
        self.denial = None;
        self.fault = None;
        self.silences = 0;
    }

    /// The hub may have given the subscription up while this Destination did not run: it is requested again.
    pub fn renew_after_downtime(&mut self, now: DateTime<Utc>) {
        if !self.is_ending() && self.transport.has_lease() {
            self.lease.renew_now(now);
        }
    }

    /// Answers the verification of intent of the hub that has a callback. `topics`: the readings of the topic that it states.
    /// `lease_seconds` is the granted lease; `spread`, from 0 to 1, chooses the time of the renewal.
    pub fn verify(
        &mut self,
        now: DateTime<Utc>,
        slot: CallbackSlot,
        topics: &[TopicUri],
        intent: Intent,
        lease_seconds: Option<u64>,
        spread: f64,
    ) -> VerificationAnswer {
        if !self.has_asked(slot, topics) {
            return VerificationAnswer::Reject;
        }
        if slot != self.callbacks.of_request() {
            // The hub whose subscription is to be replaced repeats itself.
            let is_running = self.lease.state == ChannelState::Active;
            return match intent {
                Intent::Subscribe if is_running => VerificationAnswer::ConfirmAgain,
                _ => VerificationAnswer::Reject,
            };
        }
        let renews = self.lease.is_undisturbed(now) && self.callbacks.next.is_none();
        let answer = self.lease.verify(now, intent, lease_seconds, spread);
        if answer == VerificationAnswer::Confirm {
            if intent == Intent::Subscribe && !renews {
                self.begun = self.begun.wrapping_add(1);
            }
            self.denial = None;
            self.callbacks.replace();
        }
        answer
    }

    /// Applies the denial of the hub that has a callback. `false`: this topic was not requested with it, and nothing has
    /// changed.
    pub fn deny(
        &mut self,
        now: DateTime<Utc>,
        slot: CallbackSlot,
        topics: &[TopicUri],
        reason: &str,
    ) -> bool {
        if !self.has_asked(slot, topics) {
            return false;
        }
        let hub = self.callbacks.owner(slot).map(|owner| owner.hub.clone());
        match (slot, self.callbacks.of_request()) {
            // The subscription that is to be replaced ends early; the request for the other one continues.
            (CallbackSlot::Own, CallbackSlot::Next) => {
                self.lease.lose();
                self.callbacks.replace();
                return true;
            }
            (CallbackSlot::Next, _) => {
                self.callbacks.next = None;
                if self.lease.state == ChannelState::Active {
                    self.lease.drop_request(now);
                } else {
                    self.lease.deny(now);
                }
            }
            _ => self.lease.deny(now),
        }
        let has_ended = self.lease.state == ChannelState::Unsubscribed;
        self.denial = (!has_ended).then(|| Denial::new(hub, reason, now));
        true
    }

    /// Whether the hub that has a callback was asked for one of these topics.
    fn has_asked(&self, slot: CallbackSlot, topics: &[TopicUri]) -> bool {
        let owner = self.callbacks.owner(slot);
        owner.is_some_and(|owner| topics.contains(&owner.topic))
    }

    /// The subscription that a verification has replaced, as a channel that is left; `before`: this channel before it.
    pub fn replaced(&self, before: &Self, now: DateTime<Utc>) -> Option<Self> {
        let is_replaced =
            self.callbacks.change_since(&before.callbacks) == CallbackChange::Replaced;
        // Otherwise the hub has ended it.
        let is_verified = self.lease.state == ChannelState::Active;
        if !is_replaced || !is_verified {
            return None;
        }
        let mut former = before.clone();
        former.leave(now);
        Some(former)
    }

    /// Whether a hub may have a subscription, granted or requested; or whether there is a connection or a registration, or is to be one.
    pub fn may_be_subscribed(&self) -> bool {
        use ChannelState::{Active, Expired, Pending};
        let may_have_any = self.callbacks.own.is_some() || !self.transport.has_hubs();
        may_have_any && matches!(self.lease.state, Active | Expired | Pending)
    }

    /// Whether a hub is expected to deliver.
    pub fn is_delivered(&self) -> bool {
        !self.is_unwanted && self.lease.state == ChannelState::Active
    }

    /// Polls have found changes that the hub did not deliver: the lease counts as expired. Returns what to report; `None` if
    /// no lease was running.
    pub fn fall_silent(&mut self, now: DateTime<Utc>) -> Option<DeliveryFaultKind> {
        if !self.lease.expire(now) {
            return None;
        }
        self.silences = self.silences.saturating_add(1);
        // Rejected deliveries explain why nothing was received.
        if !self
            .fault
            .is_some_and(|fault| fault.kind.is_of_signatures())
        {
            self.note_fault(DeliveryFaultKind::Silent, now);
        }
        Some(DeliveryFaultKind::Silent)
    }

    /// Records what is wrong with the deliveries.
    pub fn note_fault(&mut self, kind: DeliveryFaultKind, now: DateTime<Utc>) {
        if !self.is_unwanted && self.fault.is_none_or(|fault| fault.kind != kind) {
            self.fault = Some(DeliveryFault { kind, at: now });
        }
    }

    /// Whether the subscription has expired because the hub fell silent.
    fn is_silent(&self) -> bool {
        self.silences > 0 && self.lease.state == ChannelState::Expired
    }

    /// The known hubs in the order in which to ask them: the one that granted the running lease first, or else the one that
    /// has delivered last. After one that has failed or fallen silent comes the next. While a lease runs, the hub that granted it
    /// fails several times before another is asked: it still delivers.
    fn hubs_in_order(&self) -> VecDeque<HubUri> {
        let mut hubs = self.known_hubs.clone();
        let granting = self.callbacks.own.as_ref().map(|own| own.hub.clone());
        let runs = self.lease.state == ChannelState::Active && !self.is_silent();
        let granting_known = granting.iter().find(|&granting| hubs.contains(granting));
        if let Some(granting) = granting_known
            && runs
            && self.lease.failures < MAX_RENEWAL_FAILURES
        {
            return VecDeque::from([granting.clone()]);
        }
        let place =
            |wanted: &Option<HubUri>| hubs.iter().position(|hub| Some(hub) == wanted.as_ref());
        if self.lease.failures > 0 || self.is_silent() {
            if let Some(last) = place(&self.hub) {
                hubs.rotate_left(last + 1);
            }
        } else {
            let preferred = match self.lease.state {
                ChannelState::Active => granting,
                _ => self.working_hub.clone(),
            };
            if let Some(preferred) = place(&preferred) {
                hubs[..=preferred].rotate_right(1);
            }
        }
        hubs.into()
    }

    /// What to ask for: a topic, and the hubs in their order. `topic`: the one to prefer; `own`: what the topic calls itself.
    ///
    /// A subscription that runs is renewed as it is. After a silence the other name of the topic is tried at the same hub,
    /// after the next one another hub, and so on.
    fn targets(
        &self,
        topic: TopicUri,
        own: Option<&TopicUri>,
        configured: Option<&HubUri>,
    ) -> (TopicUri, VecDeque<HubUri>) {
        let mut hubs = match configured {
            Some(hub) => VecDeque::from([hub.clone()]),
            None => self.hubs_in_order(),
        };
        let Some(granted) = &self.callbacks.own else {
            return (topic, hubs);
        };
        let is_granting = |hub: &HubUri| *hub == granted.hub;
        if self.lease.state == ChannelState::Active && hubs.front().is_some_and(is_granting) {
            return (granted.topic.clone(), hubs);
        }
        if self.is_silent() && self.lease.failures == 0 && self.silences % 2 == 1 {
            let names = [own, Some(&self.topic)].into_iter().flatten();
            let other = names.into_iter().find(|&name| *name != granted.topic);
            if let (Some(other), Some(place)) = (other, hubs.iter().position(is_granting)) {
                hubs.rotate_left(place);
                return (other.clone(), hubs);
            }
        }
        (topic, hubs)
    }

    /// If the public URL has changed, the subscription is requested anew with the present one.
    fn follow_base(&mut self, now: DateTime<Utc>, base: Option<&String>) {
        let differs = |owner: &CallbackOwner| base.is_some_and(|base| owner.base != *base);
        let latest = self.callbacks.owner(self.callbacks.of_request());
        if !self.is_ending() && latest.is_some_and(differs) {
            self.lease.restart(now);
        }
    }

    /// The action that waits for the next deadline.
    fn wait(&self, now: DateTime<Utc>) -> ChannelAction {
        ChannelAction::WaitUntil(self.next_deadline(now))
    }

    fn next_deadline(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let deadline = self.lease.next_deadline();
        deadline.unwrap_or(now + UNDATED_WAIT)
    }
}

/// What the configuration states about the channels of a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRules {
    /// The hub to use instead of every advertised one.
    pub hub: Option<HubUri>,
    /// The lease to request, in seconds.
    pub lease_seconds: u64,
    /// The public URL that callbacks begin with; `None`: none is configured, and nothing is subscribed to.
    pub callback_base: Option<String>,
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
    pub asked: PendingRequest,
    /// The public URL that the callback begins with.
    pub callback_base: String,
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
    HubAccepted {
        /// Its answer: the status, and the text if there is one.
        answer: String,
    },
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
enum ChannelAttempt {
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

/// A request that a hub has accepted and not verified yet.
#[derive(Clone, Debug)]
struct AcceptedRequest {
    request: HubRequest,
    /// The hub's answer.
    answer: String,
}

impl AcceptedRequest {
    /// Why the request counts as failed.
    fn failure(&self) -> ChannelFailure {
        let HubRequest {
            hub,
            asked,
            callback_base,
            ..
        } = &self.request;
        let wanted = match asked.intent {
            Intent::Subscribe => "subscribe",
            Intent::Unsubscribe => "unsubscribe",
        };
        ChannelFailure {
            code: NOT_VERIFIED,
            message: format!(
                "{hub} has accepted the request to {wanted} and not verified it; does the public_url {callback_base} lead here? The hub's answer: {}",
                self.answer
            ),
        }
    }
}

/// The driver's half of the machine of one channel.
#[derive(Clone, Debug)]
pub struct ChannelMachine {
    rules: ChannelRules,
    clock: ClockStepDetector,
    attempt: Option<ChannelAttempt>,
    accepted: Option<AcceptedRequest>,
}

impl ChannelMachine {
    /// A machine whose first event is [`ChannelEvent::Started`].
    pub fn new(now: Now, rules: ChannelRules) -> Self {
        Self {
            rules,
            clock: ClockStepDetector::since(now),
            attempt: None,
            accepted: None,
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
                self.accepted = None;
                channel.lease.resume();
                channel.follow_base(now, self.rules.callback_base.as_ref());
                self.advance(channel, now)
            }
            (ChannelEvent::TopicRead { topic, hubs }, Some(ChannelAttempt::ReadingTopic)) => {
                if !hubs.is_empty() {
                    channel.known_hubs = hubs;
                }
                let preferred = topic.as_ref().unwrap_or(&channel.topic).clone();
                self.subscribe(channel, now, preferred, topic.as_ref())
            }
            (ChannelEvent::TopicUnavailable, Some(ChannelAttempt::ReadingTopic)) => {
                let topic = channel.subscribed_topic.clone();
                self.subscribe(channel, now, topic, None)
            }
            (ChannelEvent::HubAccepted { answer }, Some(ChannelAttempt::Requesting(accepted)))
                if channel.lease.asked == Some(accepted.request.asked) =>
            {
                let request = accepted.request;
                self.accepted = Some(AcceptedRequest { request, answer });
                self.advance(channel, now)
            }
            (
                ChannelEvent::HubRefused {
                    failure,
                    retry_after,
                },
                Some(ChannelAttempt::Requesting(mut refused)),
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
        let is_verified = channel.lease.asked.is_none();
        let accepted = self.accepted.take_if(|_| is_due || is_verified);
        let unverified = accepted.filter(|_| !is_verified);
        let step = match channel.lease.state {
            ChannelState::Unsubscribed => ChannelAction::End.into(),
            _ if !is_due => channel.wait(now).into(),
            _ if channel.is_unwanted => self.unsubscribe(channel, now),
            state => {
                let is_first = state == ChannelState::Pending && channel.lease.failures == 0;
                if self.rules.hub.is_some() && !channel.is_silent() {
                    let topic = channel.topic.clone();
                    self.subscribe(channel, now, topic, None)
                } else if is_first && !channel.known_hubs.is_empty() {
                    let topic = channel.subscribed_topic.clone();
                    self.subscribe(channel, now, topic, None)
                } else {
                    self.attempt = Some(ChannelAttempt::ReadingTopic);
                    ChannelAction::ReadTopic(channel.topic.clone()).into()
                }
            }
        };
        // A request counts as failed until it is verified, so only an undisturbed lease is healthy.
        let is_healthy = step.action == ChannelAction::End || channel.lease.is_healthy();
        let unverified = unverified.map(|accepted| ChannelReport::Failed(accepted.failure()));
        let report = unverified.or(step.report);
        ChannelStep {
            report: report.or(is_healthy.then_some(ChannelReport::Healthy)),
            ..step
        }
    }

    /// Asks the first hub for a subscription, or for its renewal, unless that is no longer due. `topic`: the one to prefer;
    /// `own`: what the topic calls itself.
    fn subscribe(
        &mut self,
        channel: &mut Channel,
        now: DateTime<Utc>,
        topic: TopicUri,
        own: Option<&TopicUri>,
    ) -> ChannelStep {
        if channel.is_ending() || !channel.lease.handle_timeout(now) {
            return self.advance(channel, now);
        }
        let (topic, mut hubs) = channel.targets(topic, own, self.rules.hub.as_ref());
        let hub = hubs.pop_front();
        let Some((hub, base)) = hub.zip(self.rules.callback_base.clone()) else {
            channel.lease.fail_without_hub(now);
            let (code, message) = match self.rules.callback_base {
                Some(_) => (
                    "no-hub",
                    "neither the Capability List nor the topic names a hub",
                ),
                None => ("no-public-url", "[callback] public_url is not set"),
            };
            let failure = ChannelFailure {
                code,
                message: message.to_owned(),
            };
            return ChannelStep {
                report: Some(ChannelReport::Failed(failure)),
                action: channel.wait(now),
            };
        };
        let asked = PendingRequest {
            intent: Intent::Subscribe,
            lease_seconds: self.rules.lease_seconds,
        };
        channel.lease.begin_request(now, asked);
        let next = RequestInProgress {
            request: HubRequest {
                hub,
                topic,
                asked,
                callback_base: base,
            },
            rest: hubs,
            retry_after: None,
        };
        self.send(channel, next).into()
    }

    /// Asks the hub to end the subscription. A hub that keeps failing is left alone, and one that was never asked need not be.
    fn unsubscribe(&mut self, channel: &mut Channel, now: DateTime<Utc>) -> ChannelStep {
        let is_tired = channel.lease.failures >= ENDING_TRIES;
        let own = channel.callbacks.own.clone().filter(|_| !is_tired);
        let Some(own) = own else {
            channel.lease.end();
            return ChannelAction::End.into();
        };
        let asked = PendingRequest {
            intent: Intent::Unsubscribe,
            lease_seconds: 0,
        };
        channel.lease.begin_request(now, asked);
        let next = RequestInProgress {
            request: HubRequest {
                hub: own.hub,
                topic: own.topic,
                asked,
                callback_base: own.base,
            },
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
        let report = ChannelReport::HubSkipped(request.hub.clone(), failure);
        let next = RequestInProgress {
            request: HubRequest { hub, ..request },
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
        if request.asked.intent == Intent::Subscribe {
            let owner = CallbackOwner {
                hub: request.hub.clone(),
                topic: request.topic.clone(),
                base: request.callback_base.clone(),
            };
            use ChannelState::{Active, Expired};
            let may_deliver = matches!(channel.lease.state, Active | Expired);
            channel.callbacks.assign(owner, may_deliver);
        }
        self.accepted = None;
        self.attempt = Some(ChannelAttempt::Requesting(Box::new(next)));
        ChannelAction::SendRequest(request)
    }
}

#[cfg(test)]
mod tests;
