//! One table for each kind of transition: a channel in a state, an event, and what comes of it.
//!
//! States and steps are compared as text, which names every stored field that is not empty. Times are seconds, hubs and
//! topics single letters; the advertised topic is `t`.

use proptest::prelude::*;

use super::*;
use crate::test_clock;

mod convergence;

use ChannelEvent::{Started, TopicUnavailable, Woken};

/// The public URL of the tests.
const BASE: &str = "https://destination.example/";

fn hub(name: &str) -> HubUri {
    HubUri::parse(&format!("http://{name}.example/")).unwrap()
}

fn topic(name: &str) -> TopicUri {
    TopicUri::parse(&format!("http://{name}.example/")).unwrap()
}

fn hubs(names: &str) -> Vec<HubUri> {
    names.split_whitespace().map(hub).collect()
}

fn read(name: Option<&str>, names: &str) -> ChannelEvent {
    ChannelEvent::TopicRead {
        topic: name.map(topic),
        hubs: hubs(names),
    }
}

fn refused(retry_after: Option<u64>) -> ChannelEvent {
    ChannelEvent::HubRefused {
        failure: ChannelFailure {
            code: "hub-refused",
            message: String::new(),
        },
        retry_after: retry_after.map(Duration::from_secs),
    }
}

fn accepted() -> ChannelEvent {
    ChannelEvent::HubAccepted {
        answer: "202".to_owned(),
    }
}

fn rules(configured: Option<&str>) -> ChannelRules {
    ChannelRules {
        hub: configured.map(hub),
        lease_seconds: 600,
        callback_base: Some(BASE.to_owned()),
    }
}

/// A channel with its machine, on a clock of its own.
#[derive(Clone)]
struct Case {
    epoch: Now,
    channel: Channel,
    machine: ChannelMachine,
}

impl Case {
    /// A new channel that is advertised with these hubs.
    fn new(names: &str) -> Self {
        Self::configured(names, None)
    }

    fn configured(names: &str, configured: Option<&str>) -> Self {
        let epoch = Now {
            wall: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
            mono: test_clock::now().mono,
        };
        let known = hubs(names);
        let channel = Channel::new(epoch.wall, &topic("t"), &known);
        Self {
            epoch,
            channel,
            machine: ChannelMachine::new(epoch, rules(configured)),
        }
    }

    /// One whose first hub has verified at 0 and granted 600 s: it is renewed at 300.
    fn active(names: &str) -> Self {
        Self::new(names)
            .after(0, Started)
            .after(0, accepted())
            .verified(0)
    }

    fn now(&self, at: u64) -> Now {
        self.epoch.plus(Duration::from_secs(at))
    }

    fn handle(&mut self, at: u64, event: ChannelEvent) -> String {
        let now = self.now(at);
        let step = self.machine.handle(&mut self.channel, now, event);
        self.step_text(&step)
    }

    fn after(mut self, at: u64, event: ChannelEvent) -> Self {
        self.handle(at, event);
        self
    }

    fn verified(mut self, at: u64) -> Self {
        let answer = self.verify(at, Intent::Subscribe);
        assert_eq!(answer, VerificationAnswer::Confirm);
        self
    }

    fn verify(&mut self, at: u64, intent: Intent) -> VerificationAnswer {
        let slot = self.channel.callbacks.of_request();
        self.verify_at(at, slot, intent)
    }

    fn verify_at(&mut self, at: u64, slot: CallbackSlot, intent: Intent) -> VerificationAnswer {
        let now = self.now(at).wall;
        let owner = self.channel.callbacks.owner(slot);
        let topics: Vec<TopicUri> = owner.map(|owner| owner.topic.clone()).into_iter().collect();
        self.channel.verify(now, slot, &topics, intent, None, 0.0)
    }

    fn changed(mut self, at: u64, change: impl FnOnce(&mut Channel, DateTime<Utc>)) -> Self {
        let now = self.now(at).wall;
        change(&mut self.channel, now);
        self
    }

    fn left(self, at: u64) -> Self {
        self.changed(at, Channel::leave)
    }

    fn denied(self, at: u64) -> Self {
        let slot = self.channel.callbacks.of_request();
        self.denied_at(at, slot)
    }

    fn denied_at(self, at: u64, slot: CallbackSlot) -> Self {
        self.changed(at, |channel, now| {
            let topic = channel.callbacks.owner(slot).unwrap().topic.clone();
            assert!(channel.deny(now, slot, &[topic], "no"));
        })
    }

    /// Polls find changes that were not delivered.
    fn silent(self, at: u64) -> Self {
        self.changed(at, |channel, now| {
            assert!(channel.fall_silent(now).is_some());
        })
    }

    /// A delivery was accepted, as the store records it.
    fn delivered(self, at: u64) -> Self {
        self.changed(at, |channel, _| {
            channel.fault = None;
            channel.silences = 0;
            channel.working_hub = channel.callbacks.own.as_ref().map(|own| own.hub.clone());
        })
    }

    fn wanted(self, at: u64, names: &str) -> Self {
        self.changed(at, |channel, now| channel.want(now, &hubs(names)))
    }

    fn seconds(&self, time: DateTime<Utc>) -> i64 {
        (time - self.epoch.wall).num_seconds()
    }

    fn step_text(&self, step: &ChannelStep) -> String {
        let request = |request: &HubRequest| {
            let intent = match request.asked.intent {
                Intent::Subscribe => format!("subscribe for {} s", request.asked.lease_seconds),
                Intent::Unsubscribe => "unsubscribe".to_owned(),
            };
            format!(
                "{intent} at {} to {}",
                short(request.hub.as_str()),
                short(request.topic.as_str())
            )
        };
        let action = match &step.action {
            ChannelAction::ReadTopic(topic) => format!("read {}", short(topic.as_str())),
            ChannelAction::SendRequest(sent) => request(sent),
            ChannelAction::WaitUntil(time) => format!("wait until {}", self.seconds(*time)),
            ChannelAction::End => "end".to_owned(),
        };
        match &step.report {
            None => action,
            Some(ChannelReport::Healthy) => format!("healthy; {action}"),
            Some(ChannelReport::HubSkipped(hub, failure)) => {
                format!(
                    "{} skipped, {}; {action}",
                    short(hub.as_str()),
                    failure.code
                )
            }
            Some(ChannelReport::Failed(failure)) => format!("{}; {action}", failure.code),
        }
    }

    fn state_text(&self) -> String {
        let Channel {
            topic,
            subscribed_topic,
            hub,
            advertised_hubs,
            known_hubs,
            is_unwanted,
            lease,
            callbacks,
            working_hub: _,
            denial: _,
            fault: _,
            silences,
            begun: _,
            transport: _,
        } = &self.channel;
        let list = |hubs: &[HubUri]| -> Vec<String> {
            hubs.iter().map(|hub| short(hub.as_str())).collect()
        };
        let mut text = lease.state.code().to_owned();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                text = format!("{text}, {name} {value}");
            }
        };
        add("unwanted", is_unwanted.then(String::new));
        add("hub", hub.as_ref().map(|hub| short(hub.as_str())));
        let own = (subscribed_topic != topic).then(|| short(subscribed_topic.as_str()));
        add("topic", own);
        // The running subscription, where another one is requested.
        let own = callbacks.next.as_ref().and(callbacks.own.as_ref());
        let own = own.map(|own| {
            format!(
                "{} to {}",
                short(own.hub.as_str()),
                short(own.topic.as_str())
            )
        });
        add("running", own);
        add("silences", (*silences > 0).then(|| silences.to_string()));
        let others = (advertised_hubs != known_hubs).then(|| list(known_hubs).join(" "));
        add("known", others);
        add(
            "asked",
            lease.asked.map(|asked| format!("{:?}", asked.intent)),
        );
        add(
            "failures",
            (lease.failures > 0).then(|| lease.failures.to_string()),
        );
        for (name, time) in [
            ("try", lease.next_try_at),
            ("renew", lease.renew_at),
            ("expires", lease.expires_at),
        ] {
            add(name, time.map(|time| self.seconds(time).to_string()));
        }
        text.replace(" ,", ",").trim_end().to_owned()
    }
}

/// The letter of a hub or topic.
fn short(uri: &str) -> String {
    let rest = uri.trim_start_matches("http://");
    rest.split('.').next().unwrap_or_default().to_owned()
}

/// Handles an event at a time; checks the step and the state after it.
fn check(mut case: Case, at: u64, event: ChannelEvent, step: &str, state: &str) {
    let before = case.state_text();
    let found = case.handle(at, event.clone());
    assert_eq!(found, step, "{event:?} at {at} in: {before}");
    assert_eq!(case.state_text(), state, "{event:?} at {at} in: {before}");
}

/// Checks the state after a change that comes from outside the driver.
fn check_state(case: &Case, state: &str) {
    assert_eq!(case.state_text(), state);
}

#[test]
fn first_request_goes_to_the_first_advertised_hub() {
    check(
        Case::new("a b"),
        0,
        Started,
        "subscribe for 600 s at a to t",
        "pending, hub a, asked Subscribe, failures 1, try 60",
    );
    check(Case::new(""), 0, Started, "read t", "pending, try 0");
    check(
        Case::configured("a b", Some("c")),
        0,
        Started,
        "subscribe for 600 s at c to t",
        "pending, hub c, asked Subscribe, failures 1, try 60",
    );
}

#[test]
fn topic_is_read_before_every_request_but_the_first() {
    check(
        Case::active("a b"),
        299,
        Woken,
        "healthy; wait until 300",
        "active, hub a, renew 300, expires 600",
    );
    check(
        Case::active("a b"),
        300,
        Woken,
        "healthy; read t",
        "active, hub a, renew 300, expires 600",
    );
    check(
        Case::new("a b").after(0, Started).after(1, accepted()),
        60,
        Woken,
        "not-verified; read t",
        "pending, hub a, asked Subscribe, failures 1, try 60",
    );
    check(
        Case::active("a b").denied(10),
        14,
        Woken,
        "read t",
        "denied, hub a, failures 2, try 14",
    );
    // The configuration's hub overrules what the topic would state.
    check(
        Case::configured("a", Some("c"))
            .after(0, Started)
            .after(1, accepted()),
        60,
        Woken,
        "not-verified; subscribe for 600 s at c to t",
        "pending, hub c, asked Subscribe, failures 2, try 120",
    );
}

#[test]
fn hubs_and_name_of_the_topic_win() {
    let renewing = || Case::active("a b").after(300, Woken);
    for (event, step, state) in [
        (
            read(Some("u"), "c d"),
            "subscribe for 600 s at c to u",
            "active, hub c, topic u, running a to t, known c d, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        (
            read(None, "c"),
            "subscribe for 600 s at c to t",
            "active, hub c, running a to t, known c, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        // A lease is renewed where it was granted, and for the topic for which it was.
        (
            read(None, "c a"),
            "subscribe for 600 s at a to t",
            "active, hub a, known c a, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        (
            read(Some("u"), ""),
            "subscribe for 600 s at a to t",
            "active, hub a, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        (
            TopicUnavailable,
            "subscribe for 600 s at a to t",
            "active, hub a, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
    ] {
        check(renewing(), 301, event, step, state);
    }
    let moved = |event| {
        renewing()
            .after(301, read(Some("u"), "c"))
            .after(302, refused(None))
            .after(304, Woken)
            .after(305, event)
    };
    // The name that the topic stated last is used until it can be read again; one that it no longer states is not.
    check_state(
        &moved(TopicUnavailable),
        "active, hub c, topic u, running a to t, known c, asked Subscribe, failures 2, try 365, renew 300, expires 600",
    );
    check_state(
        &moved(read(None, "c")),
        "active, hub c, running a to t, known c, asked Subscribe, failures 2, try 365, renew 300, expires 600",
    );
}

#[test]
fn channel_without_a_hub_is_reported_and_tried_again() {
    let reading = Case::new("").after(0, Started);
    for event in [read(None, ""), TopicUnavailable] {
        check(
            reading.clone(),
            1,
            event.clone(),
            "no-hub; wait until 3",
            "pending, failures 1, try 3",
        );
        check(
            reading.clone().after(1, event.clone()).after(3, Woken),
            4,
            event.clone(),
            "no-hub; wait until 8",
            "pending, failures 2, try 8",
        );
    }
    check(
        reading,
        1,
        read(None, "a"),
        "subscribe for 600 s at a to t",
        "pending, hub a, known a, asked Subscribe, failures 1, try 61",
    );
}

#[test]
fn topic_that_answers_too_late_causes_no_request() {
    let reading = || {
        Case::new("a")
            .after(0, Started)
            .after(1, accepted())
            .after(60, Woken)
    };
    check(
        reading().verified(61),
        62,
        read(None, "a b"),
        "healthy; wait until 361",
        "active, hub a, known a b, renew 361, expires 661",
    );
    check(
        reading().denied(61),
        62,
        TopicUnavailable,
        "wait until 65",
        "denied, hub a, failures 2, try 65",
    );
    check(
        reading().left(61),
        62,
        read(None, "a b"),
        "unsubscribe at a to t",
        "pending, unwanted, hub a, known a b, asked Unsubscribe, failures 1, try 122",
    );
}

#[test]
fn hub_that_refuses_is_followed_by_the_next() {
    let asking = |names| Case::new(names).after(0, Started);
    check(
        asking("a b c"),
        5,
        refused(None),
        "a skipped, hub-refused; subscribe for 600 s at b to t",
        "pending, hub b, asked Subscribe, failures 1, try 65",
    );
    check(
        asking("a b c").after(5, refused(None)),
        10,
        refused(None),
        "b skipped, hub-refused; subscribe for 600 s at c to t",
        "pending, hub c, asked Subscribe, failures 1, try 70",
    );
    check(
        asking("a b"),
        5,
        accepted(),
        "wait until 60",
        "pending, hub a, asked Subscribe, failures 1, try 60",
    );
    check(
        asking("a").after(1, accepted()),
        2,
        Woken,
        "wait until 60",
        "pending, hub a, asked Subscribe, failures 1, try 60",
    );
}

#[test]
fn attempt_fails_with_the_last_hub_and_the_longest_retry_after_counts() {
    for (waits, until) in [
        ([None, None], 12),
        ([Some(60), None], 70),
        ([None, Some(60)], 70),
        ([Some(60), Some(30)], 70),
        ([Some(30), Some(60)], 70),
        ([Some(1), None], 12),
        ([Some(7200), None], 3610),
    ] {
        check(
            Case::new("a b")
                .after(0, Started)
                .after(5, refused(waits[0])),
            10,
            refused(waits[1]),
            &format!("hub-refused; wait until {until}"),
            &format!("pending, hub b, asked Subscribe, failures 1, try {until}"),
        );
    }
}

#[test]
fn after_a_failure_the_next_hub_is_asked() {
    for (case, at, step) in [
        (
            Case::new("a b c")
                .after(0, Started)
                .after(1, accepted())
                .after(60, Woken),
            61,
            "subscribe for 600 s at b to t",
        ),
        (
            Case::active("a b c").denied(1).after(5, Woken),
            6,
            "subscribe for 600 s at b to t",
        ),
        // The last one that was asked, not the first.
        (
            Case::new("a b c")
                .after(0, Started)
                .after(1, refused(None))
                .after(2, accepted())
                .after(61, Woken),
            62,
            "subscribe for 600 s at c to t",
        ),
    ] {
        let mut case = case;
        assert_eq!(case.handle(at, TopicUnavailable), step);
    }
    // After b comes c; a hub that is no longer known changes no order.
    let order = |last: &str, failures, state| {
        let mut channel = Case::new("a b c").channel;
        channel.hub = Some(hub(last));
        channel.callbacks.own = Some(CallbackOwner {
            hub: hub(last),
            topic: topic("t"),
            base: BASE.to_owned(),
        });
        channel.lease.failures = failures;
        channel.lease.state = state;
        let names = channel.hubs_in_order();
        let names: Vec<_> = names.iter().map(|hub| short(hub.as_str())).collect();
        names.join(" ")
    };
    use ChannelState::{Active, Denied, Expired, Pending};
    for (last, failures, state, expected) in [
        ("b", 0, Active, "b"),
        ("b", 2, Active, "b"),
        ("b", 3, Active, "c a b"),
        ("c", 0, Active, "c"),
        ("gone", 0, Active, "a b c"),
        ("b", 0, Pending, "a b c"),
        ("b", 0, Expired, "a b c"),
        ("a", 1, Pending, "b c a"),
        ("b", 2, Denied, "c a b"),
        ("c", 4, Active, "a b c"),
        ("gone", 3, Pending, "a b c"),
    ] {
        assert_eq!(
            order(last, failures, state),
            expected,
            "{last}, {failures}, {state:?}"
        );
    }
}

#[test]
fn verification_overrules_the_answer_to_the_request() {
    let verified = || Case::new("a b").after(0, Started).verified(3);
    for event in [refused(Some(60)), accepted()] {
        check(
            verified(),
            5,
            event,
            "healthy; wait until 303",
            "active, hub a, renew 303, expires 603",
        );
    }
    check(
        Case::new("a b")
            .after(0, Started)
            .after(1, accepted())
            .verified(59),
        59,
        Woken,
        "healthy; wait until 359",
        "active, hub a, renew 359, expires 659",
    );
}

#[test]
fn verification_confirms_only_a_pending_request() {
    use Intent::{Subscribe, Unsubscribe};
    use VerificationAnswer::{Confirm, ConfirmAgain, Reject};
    let requested = || Case::new("a").after(0, Started);
    let ended = || {
        let mut case = Case::active("a").left(10).after(10, Woken);
        assert_eq!(case.verify(11, Unsubscribe), Confirm);
        case
    };
    let active = "active, hub a, renew 305, expires 605";
    let before = "active, hub a, renew 300, expires 600";
    for (case, intent, answer, state) in [
        (Case::new("a"), Subscribe, Reject, "pending, hub a, try 0"),
        (requested(), Subscribe, Confirm, active),
        (
            requested(),
            Unsubscribe,
            Reject,
            "pending, hub a, asked Subscribe, failures 1, try 60",
        ),
        (Case::active("a"), Subscribe, ConfirmAgain, before),
        (Case::active("a"), Unsubscribe, Reject, before),
        (
            Case::active("a").denied(1),
            Subscribe,
            Reject,
            "denied, hub a, failures 2, try 5",
        ),
        // The channel is left: a request to subscribe no longer counts.
        (
            requested().left(1),
            Subscribe,
            Reject,
            "pending, unwanted, hub a, try 1",
        ),
        (
            ended(),
            Unsubscribe,
            ConfirmAgain,
            "unsubscribed, unwanted, hub a",
        ),
        (ended(), Subscribe, Reject, "unsubscribed, unwanted, hub a"),
        // It is wanted again: nor does one to unsubscribe.
        (
            Case::active("a").left(1).after(1, Woken).wanted(2, "a"),
            Unsubscribe,
            Reject,
            "pending, hub a, try 2",
        ),
    ] {
        let mut case = case;
        let given = case.state_text();
        let found = case.verify(5, intent);
        assert_eq!(found, answer, "{intent:?} in: {given}");
        assert_eq!(case.state_text(), state, "{intent:?} in: {given}");
    }
}

#[test]
fn verification_and_denial_of_another_topic_change_nothing() {
    let topic = TopicUri::parse("https://source.example/other").unwrap();
    for case in [Case::new("a").after(0, Started), Case::active("a")] {
        let mut case = case;
        let (now, state) = (case.now(5).wall, case.state_text());
        let topics = [topic.clone()];
        for intent in [Intent::Subscribe, Intent::Unsubscribe] {
            let answer = case
                .channel
                .verify(now, CallbackSlot::Own, &topics, intent, None, 0.0);
            assert_eq!(answer, VerificationAnswer::Reject, "{intent:?} in: {state}");
        }
        assert!(
            !case.channel.deny(now, CallbackSlot::Own, &topics, ""),
            "{state}"
        );
        assert_eq!(case.state_text(), state);
    }
}

#[test]
fn denial_overrules_the_answer_and_is_retried_after_a_growing_pause() {
    for event in [accepted(), refused(Some(60))] {
        check(
            Case::new("a b").after(0, Started).denied(3),
            4,
            event,
            "wait until 7",
            "denied, hub a, failures 2, try 7",
        );
    }
    check(
        Case::active("a").denied(100),
        100,
        Woken,
        "wait until 104",
        "denied, hub a, failures 2, try 104",
    );
    check(
        Case::active("a").denied(100).denied(101),
        101,
        Woken,
        "wait until 104",
        "denied, hub a, failures 2, try 104",
    );
    check(
        Case::active("a").left(100).after(100, Woken).denied(101),
        101,
        accepted(),
        "healthy; end",
        "unsubscribed, unwanted, hub a",
    );
}

#[test]
fn lease_that_runs_out_is_requested_anew() {
    check(
        Case::active("a")
            .after(300, Woken)
            .after(300, TopicUnavailable)
            .after(301, refused(Some(400))),
        600,
        Woken,
        "wait until 701",
        "expired, hub a, asked Subscribe, failures 1, try 701",
    );
    check(
        Case::active("a")
            .after(300, Woken)
            .after(300, TopicUnavailable)
            .after(301, accepted()),
        600,
        Woken,
        "not-verified; read t",
        "expired, hub a, asked Subscribe, failures 1, try 600",
    );
    // While the renewal fails, the lease continues.
    check(
        Case::active("a")
            .after(300, Woken)
            .after(300, TopicUnavailable),
        301,
        refused(None),
        "hub-refused; wait until 303",
        "active, hub a, asked Subscribe, failures 1, try 303, renew 300, expires 600",
    );
    // An earlier failure is over only once a hub has verified.
    check(
        Case::active("a")
            .after(300, Woken)
            .after(300, TopicUnavailable)
            .after(301, refused(None))
            .after(303, Woken)
            .after(303, TopicUnavailable),
        304,
        accepted(),
        "wait until 363",
        "active, hub a, asked Subscribe, failures 2, try 363, renew 300, expires 600",
    );
}

#[test]
fn channel_that_is_no_longer_wanted_is_ended_at_its_hub() {
    let left = || Case::active("a b").left(10);
    check_state(
        &left(),
        "active, unwanted, hub a, try 10, renew 300, expires 600",
    );
    check(
        left(),
        10,
        Woken,
        "unsubscribe at a to t",
        "active, unwanted, hub a, asked Unsubscribe, failures 1, try 70, renew 300, expires 600",
    );
    // The request to subscribe that was in progress no longer counts, whatever its answer.
    for event in [accepted(), refused(Some(60))] {
        check(
            Case::new("a b").after(0, Started).left(1),
            2,
            event,
            "unsubscribe at a to t",
            "pending, unwanted, hub a, asked Unsubscribe, failures 1, try 62",
        );
    }
    check(
        left().after(10, Woken).after(11, accepted()),
        12,
        Woken,
        "wait until 70",
        "active, unwanted, hub a, asked Unsubscribe, failures 1, try 70, renew 300, expires 600",
    );
    check(
        left().after(10, Woken),
        11,
        refused(Some(20)),
        "hub-refused; wait until 31",
        "active, unwanted, hub a, asked Unsubscribe, failures 1, try 31, renew 300, expires 600",
    );
    // No hub has ever been asked.
    check(
        Case::new("").left(1),
        1,
        Started,
        "healthy; end",
        "unsubscribed, unwanted",
    );
    check(
        Case::new("a")
            .changed(1, |channel, _| channel.lease.end())
            .left(2),
        3,
        Started,
        "healthy; end",
        "unsubscribed, unwanted, hub a",
    );
}

#[test]
fn hub_that_does_not_confirm_an_ending_is_asked_six_times() {
    let mut case = Case::active("a").left(0);
    let mut requests = Vec::new();
    let mut step = case.handle(0, Woken);
    let mut now = 0;
    while step != "healthy; end" && requests.len() < 10 {
        step = if step.starts_with("unsubscribe") {
            requests.push(now);
            case.handle(now, refused(None))
        } else {
            now = step.rsplit(' ').next().unwrap().parse().unwrap();
            case.handle(now, Woken)
        };
    }
    assert_eq!(requests, [0, 2, 6, 14, 30, 62]);
    assert_eq!(now, 126);
    assert_eq!(case.state_text(), "unsubscribed, unwanted, hub a");
}

#[test]
fn channel_that_comes_back_is_subscribed_to_anew() {
    let new = "pending, hub a, try 20";
    for case in [
        Case::active("a").left(10),
        Case::active("a").left(10).after(10, Woken),
        Case::active("a")
            .left(10)
            .after(10, Woken)
            .after(11, accepted()),
    ] {
        let case = case.wanted(20, "a");
        check_state(&case, new);
        for event in [accepted(), refused(Some(60)), Woken, Started] {
            check(
                case.clone(),
                20,
                event,
                "subscribe for 600 s at a to t",
                "pending, hub a, asked Subscribe, failures 1, try 80",
            );
        }
    }
    let ended = Case::active("a").changed(10, |channel, _| channel.lease.end());
    check_state(&ended.wanted(20, "a"), new);
}

#[test]
fn moved_hub_is_asked_at_once() {
    // The same hubs, or others beside the present one: nothing to do.
    let lease = "renew 300, expires 600";
    for (names, state) in [
        ("a b", format!("active, hub a, {lease}")),
        ("b a", format!("active, hub a, {lease}")),
        ("c d", format!("active, hub a, try 10, {lease}")),
        // An offer that names no hub leaves the known ones.
        ("", format!("active, hub a, known a b, {lease}")),
    ] {
        check_state(&Case::active("a b").wanted(10, names), &state);
    }
    check(
        Case::active("a b").wanted(10, "c d").after(10, Woken),
        11,
        TopicUnavailable,
        "subscribe for 600 s at c to t",
        "active, hub c, running a to t, asked Subscribe, failures 1, try 71, renew 300, expires 600",
    );
    // The failures at the old hub and its answer count no longer, but requests keep their distance.
    let failing = || Case::new("a").after(0, Started).wanted(1, "c");
    check_state(&failing(), "pending, hub a, try 1");
    check(
        failing(),
        1,
        refused(Some(60)),
        "wait until 2",
        "pending, hub a, try 1",
    );
    check(
        failing().after(1, refused(Some(60))),
        2,
        Woken,
        "subscribe for 600 s at c to t",
        "pending, hub c, asked Subscribe, failures 1, try 62",
    );
    // Where no hub was known, one is now.
    let without = Case::new("").after(0, Started).after(0, TopicUnavailable);
    check(
        without.wanted(1, "a"),
        1,
        Woken,
        "subscribe for 600 s at a to t",
        "pending, hub a, asked Subscribe, failures 1, try 61",
    );
}

#[test]
fn after_a_silence_the_next_hub_is_asked() {
    let silent = || Case::active("a b c").silent(100);
    check(
        silent(),
        100,
        Woken,
        "read t",
        "expired, hub a, silences 1, try 100",
    );
    let moved = || silent().after(100, Woken).after(101, TopicUnavailable);
    check_state(
        &moved(),
        "expired, hub b, running a to t, silences 1, asked Subscribe, failures 1, try 161",
    );
    // The next one that falls silent is followed by the third, and the third by the first.
    let third = moved().verified(102).silent(200).after(200, Woken);
    let third = third.after(201, TopicUnavailable);
    check_state(
        &third,
        "expired, hub c, running b to t, silences 2, asked Subscribe, failures 1, try 261",
    );
    let first = third.verified(202).silent(300).after(300, Woken);
    check(
        first,
        301,
        TopicUnavailable,
        "subscribe for 600 s at a to t",
        "expired, hub a, running c to t, silences 3, asked Subscribe, failures 1, try 361",
    );
    // The only one is asked again, with the callback that it has.
    check(
        Case::active("a").silent(100).after(100, Woken),
        101,
        TopicUnavailable,
        "subscribe for 600 s at a to t",
        "expired, hub a, silences 1, asked Subscribe, failures 1, try 161",
    );
    // Only a running lease can fall silent.
    for case in [
        Case::new("a"),
        Case::active("a").denied(50),
        Case::active("a").changed(1, |channel, _| channel.lease.end()),
    ] {
        let mut case = case;
        let (now, before) = (case.now(100).wall, case.state_text());
        assert_eq!(case.channel.fall_silent(now), None);
        assert_eq!(case.state_text(), before);
    }
}

#[test]
fn after_a_silence_the_other_name_of_the_topic_is_tried() {
    let own = || read(Some("u"), "a b");
    // The first subscription was to the advertised topic, and a renewal stays with it.
    let silent = |at| Case::active("a b").silent(at).after(at, Woken);
    check(
        silent(100),
        101,
        own(),
        "subscribe for 600 s at a to u",
        "expired, hub a, topic u, running a to t, silences 1, asked Subscribe, failures 1, try 161",
    );
    let again = || {
        let case = silent(100).after(101, own()).verified(102);
        case.silent(200).after(200, Woken)
    };
    check(
        again(),
        201,
        own(),
        "subscribe for 600 s at b to u",
        "expired, hub b, topic u, running a to u, silences 2, asked Subscribe, failures 1, try 261",
    );
    check(
        again()
            .after(201, own())
            .verified(202)
            .silent(300)
            .after(300, Woken),
        301,
        own(),
        "subscribe for 600 s at b to t",
        "expired, hub b, running b to u, silences 3, asked Subscribe, failures 1, try 361",
    );
    // The hub of the configuration is asked for both, too.
    let configured = Case::configured("a", Some("c"))
        .after(0, Started)
        .verified(1);
    let configured = configured.silent(100).after(100, Woken);
    check(
        configured,
        101,
        own(),
        "subscribe for 600 s at c to u",
        "expired, hub c, topic u, running c to t, silences 1, known a b, asked Subscribe, failures 1, try 161",
    );
}

#[test]
fn hub_that_has_delivered_is_asked_first_after_its_lease() {
    let working = || {
        let case = Case::active("a b c").silent(10).after(10, Woken);
        let case = case.after(11, TopicUnavailable).verified(12);
        case.delivered(13)
    };
    check(
        working().after(612, Woken),
        613,
        TopicUnavailable,
        "subscribe for 600 s at b to t",
        "expired, hub b, asked Subscribe, failures 1, try 673",
    );
    let denied = working().left(20).wanted(21, "a b c");
    check(
        denied,
        21,
        Woken,
        "subscribe for 600 s at b to t",
        "pending, hub b, asked Subscribe, failures 1, try 81",
    );
}

#[test]
fn fault_of_deliveries_outlives_a_verification() {
    use DeliveryFaultKind::{Silent, Unsigned, WrongSignature};
    let fault = |case: &Case| case.channel.fault.map(|fault| fault.kind);
    let case = Case::active("a").silent(100).after(100, Woken);
    let case = case.after(101, TopicUnavailable).verified(102);
    assert_eq!(case.channel.lease.state, ChannelState::Active);
    assert_eq!(fault(&case), Some(Silent));
    assert_eq!(fault(&case.clone().delivered(103)), None);
    assert_eq!(fault(&case.left(103)), None);
    // Rejected deliveries explain a silence.
    for kind in [Unsigned, WrongSignature] {
        let case = Case::active("a").changed(10, |channel, now| channel.note_fault(kind, now));
        let since = case.channel.fault.unwrap().at;
        let case = case.changed(20, |channel, now| channel.note_fault(kind, now));
        assert_eq!(case.channel.fault.unwrap().at, since, "the first one");
        assert_eq!(fault(&case.silent(100)), Some(kind));
    }
}

#[test]
fn unverified_request_is_reported_with_the_answer_of_the_hub() {
    let answer = "200, \"The topic URL returned a 404\"".to_owned();
    let mut case = Case::new("a b").after(0, Started);
    case.handle(1, ChannelEvent::HubAccepted { answer });
    let step = case.machine.handle(
        &mut case.channel,
        case.epoch.plus(Duration::from_secs(60)),
        Woken,
    );
    let Some(ChannelReport::Failed(failure)) = step.report else {
        panic!("{step:?}");
    };
    assert_eq!(failure.code, "not-verified");
    for part in ["http://a.example/", "The topic URL returned a 404", BASE] {
        assert!(failure.message.contains(part), "{failure:?}");
    }
    // It is reported once for each request, and not if the hub has verified, denied or refused.
    assert_eq!(
        case.handle(61, TopicUnavailable),
        "subscribe for 600 s at b to t"
    );
    assert_eq!(case.handle(121, Woken), "read t");
    let asked = || Case::new("a").after(0, Started).after(1, accepted());
    assert_eq!(asked().verified(2).handle(302, Woken), "healthy; read t");
    assert_eq!(asked().denied(2).handle(60, Woken), "read t");
    // The lease that runs is used meanwhile.
    let renewed = Case::active("a")
        .after(300, Woken)
        .after(300, TopicUnavailable);
    check(
        renewed.after(301, accepted()),
        360,
        Woken,
        "not-verified; read t",
        "active, hub a, asked Subscribe, failures 1, try 360, renew 300, expires 600",
    );
}

#[test]
fn hub_that_is_left_can_not_end_the_new_subscription() {
    use CallbackSlot::{Next, Own};
    let moving = || {
        Case::active("a b")
            .wanted(10, "c")
            .after(10, Woken)
            .after(11, TopicUnavailable)
    };
    let requested = "active, hub c, running a to t, asked Subscribe, failures 1, try 71, renew 300, expires 600";
    check_state(&moving(), requested);
    // The old hub repeats its verification.
    let mut case = moving();
    assert_eq!(
        case.verify_at(12, Own, Intent::Subscribe),
        VerificationAnswer::ConfirmAgain
    );
    assert_eq!(
        case.verify_at(12, Own, Intent::Unsubscribe),
        VerificationAnswer::Reject
    );
    check_state(&case, requested);
    // It ends its subscription: the request at the new one continues.
    let mut case = moving().denied_at(12, Own);
    check_state(&case, "expired, hub c, asked Subscribe, failures 1, try 71");
    assert_eq!(
        case.verify(13, Intent::Subscribe),
        VerificationAnswer::Confirm
    );
    // The new one denies: the lease of the old one continues.
    let denied = moving().denied_at(12, Next);
    check_state(
        &denied,
        "active, hub c, failures 1, try 14, renew 300, expires 600",
    );
    assert_eq!(denied.channel.denial.as_ref().unwrap().reason, "no");
    // The new one verifies: the old subscription is left, and ended where it was granted.
    let before = moving();
    let after = before.clone().verified(13);
    check_state(&after, "active, hub c, renew 313, expires 613");
    let former = after.channel.replaced(&before.channel, after.now(13).wall);
    let mut former = Case {
        channel: former.unwrap(),
        ..before.clone()
    };
    check_state(
        &former,
        "active, unwanted, hub a, try 13, renew 300, expires 600",
    );
    former.machine = ChannelMachine::new(former.now(13), rules(None));
    assert_eq!(former.handle(13, Started), "unsubscribe at a to t");
    // Nothing was replaced.
    let again = after.clone().after(20, Woken);
    assert_eq!(
        again.channel.replaced(&after.channel, after.now(20).wall),
        None
    );
    let ended = moving().denied_at(12, Own);
    assert_eq!(
        ended
            .channel
            .replaced(&moving().channel, ended.now(12).wall),
        None
    );
}

#[test]
fn changed_public_url_is_subscribed_with_anew() {
    let other = || ChannelRules {
        callback_base: Some("https://other.example/".to_owned()),
        ..rules(None)
    };
    let restarted = |case: Case, at| {
        let machine = ChannelMachine::new(case.now(at), other());
        Case { machine, ..case }
    };
    let mut case = restarted(Case::active("a"), 100);
    assert_eq!(case.handle(100, Started), "healthy; read t");
    assert_eq!(
        case.handle(101, TopicUnavailable),
        "subscribe for 600 s at a to t"
    );
    check_state(
        &case,
        "active, hub a, running a to t, asked Subscribe, failures 1, try 161, renew 300, expires 600",
    );
    let before = case.channel.clone();
    let case = case.verified(102);
    let former = case.channel.replaced(&before, case.now(102).wall).unwrap();
    let base = former.callbacks.own.as_ref().unwrap().base.as_str();
    assert_eq!(base, BASE, "it is ended with the callback that the hub has");
    // Neither is it requested twice, nor where the URL is the same.
    assert_eq!(case.clone().handle(103, Started), "healthy; wait until 402");
    assert_eq!(
        Case::active("a").handle(100, Started),
        "healthy; wait until 300"
    );
    let left = restarted(Case::active("a").left(10), 11);
    assert_eq!(left.clone().handle(11, Started), "unsubscribe at a to t");
}

#[test]
fn subscription_is_renewed_after_a_downtime() {
    let down = |case: Case| case.changed(200, Channel::renew_after_downtime);
    check(
        down(Case::active("a")),
        200,
        Started,
        "healthy; read t",
        "active, hub a, try 200, expires 600",
    );
    for case in [
        Case::new("a"),
        Case::active("a").denied(50),
        Case::active("a").left(50),
    ] {
        let before = case.state_text();
        assert_eq!(down(case).state_text(), before);
    }
}

#[test]
fn restart_repeats_a_request_of_unknown_fate_soon() {
    // A request is pending, and its answer, if any, is lost.
    let requested = || Case::new("a b").after(0, Started);
    check(
        requested(),
        1,
        Started,
        "wait until 2",
        "pending, hub a, asked Subscribe, failures 1, try 2",
    );
    check(
        requested(),
        2,
        Started,
        "read t",
        "pending, hub a, asked Subscribe, failures 1, try 2",
    );
    // Its verification counts all the same.
    check(
        requested().verified(1),
        1,
        Started,
        "healthy; wait until 301",
        "active, hub a, renew 301, expires 601",
    );
    // What was refused waits as before.
    check(
        Case::new("a")
            .after(0, Started)
            .after(1, refused(Some(300))),
        2,
        Started,
        "wait until 301",
        "pending, hub a, asked Subscribe, failures 1, try 301",
    );
    // An answer to what was discarded changes nothing.
    for event in [
        accepted(),
        refused(Some(60)),
        TopicUnavailable,
        read(None, "c"),
    ] {
        check(
            requested().after(0, Started),
            1,
            event,
            "wait until 2",
            "pending, hub a, asked Subscribe, failures 1, try 2",
        );
    }
}

#[test]
fn only_an_interruption_begins_another_subscription() {
    let renewed = |case: Case| {
        case.after(300, Woken)
            .after(300, TopicUnavailable)
            .verified(301)
    };
    let check =
        |case: Case, begun: u32, what: &str| assert_eq!(case.channel.begun, begun, "{what}");
    check(Case::new("a"), 0, "never verified");
    check(Case::active("a"), 1, "verified");
    check(renewed(Case::active("a")), 1, "renewed in time");
    let mut repeated = Case::active("a");
    assert_eq!(
        repeated.verify(10, Intent::Subscribe),
        VerificationAnswer::ConfirmAgain
    );
    check(repeated, 1, "verified again");
    let late = Case::active("a")
        .after(300, Woken)
        .after(300, TopicUnavailable);
    check(late.clone().verified(601), 2, "after its end, unnoticed");
    check(late.after(600, Woken).verified(601), 2, "after its end");
    let failed = Case::active("a")
        .after(300, Woken)
        .after(300, TopicUnavailable);
    let failed = failed.after(301, refused(None)).after(303, Woken);
    check(
        failed.after(303, TopicUnavailable).verified(304),
        2,
        "the hub failed meanwhile",
    );
    let down = Case::active("a").changed(200, Channel::renew_after_downtime);
    let down = down.after(200, Started).after(200, TopicUnavailable);
    check(down.verified(201), 2, "after a downtime");
    let moved = Case::active("a").wanted(10, "b").after(10, Woken);
    check(
        moved.after(10, TopicUnavailable).verified(11),
        2,
        "another hub",
    );
    let denied = Case::active("a").denied(10).after(20, Woken);
    check(
        denied.after(20, TopicUnavailable).verified(21),
        2,
        "after a denial",
    );
    let silent = Case::active("a").silent(10).after(12, Woken);
    check(
        silent.after(12, TopicUnavailable).verified(13),
        2,
        "after a silence",
    );
}

#[test]
fn clock_that_is_set_back_takes_all_dates_with_it() {
    let hour = TimeDelta::hours(1);
    for (case, event, step, state) in [
        (
            Case::active("a"),
            Woken,
            "healthy; wait until -3300",
            "active, hub a, renew -3300, expires -3000",
        ),
        (
            Case::active("a").denied(90),
            Woken,
            "wait until -3506",
            "denied, hub a, failures 2, try -3506",
        ),
        (
            Case::new("a").after(0, Started),
            accepted(),
            "wait until -3540",
            "pending, hub a, asked Subscribe, failures 1, try -3540",
        ),
    ] {
        let mut case = case;
        case.epoch.wall -= hour;
        let now = case.now(if event == Woken { 92 } else { 30 });
        case.epoch.wall += hour;
        let found = case.machine.handle(&mut case.channel, now, event);
        assert_eq!(case.step_text(&found), step);
        assert_eq!(case.state_text(), state);
        // It is noticed once.
        let before = case.channel.clone();
        case.machine.handle(&mut case.channel, now, Woken);
        assert_eq!(case.channel, before);
    }
}

proptest! {
    /// Whatever hubs and topics answer, a wanted channel has a next action, and two requests of different attempts are at
    /// least two seconds apart, and at most one in five minutes beyond the first twelve.
    #[test]
    fn wanted_channel_never_stalls_and_never_hurries(
        events in proptest::collection::vec((0_u8..9, 0_u64..100), 1..80)
    ) {
        let mut case = Case::new("a b");
        let (mut now, mut last, mut attempts) = (0, None::<u64>, 0);
        let mut action = ChannelAction::WaitUntil(case.epoch.wall);
        for (number, step) in events {
            now += step;
            let wall = case.now(now).wall;
            let event = match (number, &action) {
                (0, _) => { if case.channel.callbacks.own.is_some() { case = case.denied(now); } Woken }
                (1, _) => { let (slot, topic) = (case.channel.callbacks.of_request(), case.channel.subscribed_topic.clone()); case.channel.verify(wall, slot, &[topic], Intent::Subscribe, Some(step), 0.5); Woken }
                (2, _) => { case.channel.fall_silent(wall); Woken }
                (3, _) => Started,
                (_, ChannelAction::ReadTopic(_)) if number % 2 == 0 => TopicUnavailable,
                (_, ChannelAction::ReadTopic(_)) => read(None, "b c"),
                (_, ChannelAction::SendRequest(_)) if number % 2 == 0 => accepted(),
                (_, ChannelAction::SendRequest(_)) => refused(Some(step)),
                _ => Woken,
            };
            let is_other_hub = matches!(event, ChannelEvent::HubRefused { .. });
            let is_woken = event == Woken;
            let at = case.now(now);
            action = case.machine.handle(&mut case.channel, at, event).action;
            match &action {
                ChannelAction::SendRequest(_) if !is_other_hub => {
                    prop_assert!(last.is_none_or(|last| now - last >= 2), "requests at {last:?} and {now}");
                    last = Some(now);
                    attempts += 1;
                    prop_assert!(attempts <= 12 + now / 300, "{attempts} requests until {now}");
                }
                ChannelAction::SendRequest(_) => last = Some(now),
                // A failed attempt may end just when the lease runs out; then the next event expires it.
                ChannelAction::WaitUntil(time) => prop_assert!(*time > wall || !is_woken),
                ChannelAction::ReadTopic(_) => {}
                ChannelAction::End => prop_assert!(false, "it has ended"),
            }
        }
    }
}
