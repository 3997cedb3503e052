//! One table for each kind of transition: a channel in a state, an event, and what comes of it.
//!
//! States and steps are compared as text, which names every stored field that is not empty. Times are seconds, hubs and
//! topics single letters; the advertised topic is `t`.

use proptest::prelude::*;

use super::*;
use crate::clock;

mod convergence;

use ChannelEvent::{HubAccepted, Started, TopicUnavailable, Woken};

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

fn rules(configured: Option<&str>) -> ChannelRules {
    ChannelRules {
        hub: configured.map(hub),
        lease_seconds: 600,
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
            mono: clock::now().mono,
        };
        let known = hubs(names);
        let channel = Channel {
            topic: topic("t"),
            subscribed_topic: topic("t"),
            hub: known.first().cloned(),
            advertised_hubs: known.clone(),
            known_hubs: known,
            left: false,
            lease: Lease::new(epoch.wall),
        };
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
            .after(0, HubAccepted)
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
        let ruling = self.verify(at, Intent::Subscribe);
        assert_eq!(ruling, Ruling::Confirm);
        self
    }

    fn verify(&mut self, at: u64, intent: Intent) -> Ruling {
        let (now, topic) = (self.now(at).wall, self.channel.subscribed_topic.clone());
        self.channel.verify(now, &topic, intent, None, 0.0)
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
        self.changed(at, |channel, now| {
            let topic = channel.subscribed_topic.clone();
            assert!(channel.deny(now, &topic));
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
            left,
            lease,
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
        add("left", left.then(String::new));
        add("hub", hub.as_ref().map(|hub| short(hub.as_str())));
        let own = (subscribed_topic != topic).then(|| short(subscribed_topic.as_str()));
        add("topic", own);
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
        Case::new("a b").after(0, Started).after(1, HubAccepted),
        60,
        Woken,
        "read t",
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
            .after(1, HubAccepted),
        60,
        Woken,
        "subscribe for 600 s at c to t",
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
            "active, hub c, topic u, known c d, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        (
            read(None, "c"),
            "subscribe for 600 s at c to t",
            "active, hub c, known c, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        // A lease is renewed where it was granted.
        (
            read(None, "c a"),
            "subscribe for 600 s at a to t",
            "active, hub a, known c a, asked Subscribe, failures 1, try 361, renew 300, expires 600",
        ),
        (
            read(Some("u"), ""),
            "subscribe for 600 s at a to u",
            "active, hub a, topic u, asked Subscribe, failures 1, try 361, renew 300, expires 600",
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
        "active, hub c, topic u, known c, asked Subscribe, failures 2, try 365, renew 300, expires 600",
    );
    check_state(
        &moved(read(None, "c")),
        "active, hub c, known c, asked Subscribe, failures 2, try 365, renew 300, expires 600",
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
            .after(1, HubAccepted)
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
        "pending, left, hub a, known a b, asked Unsubscribe, failures 1, try 122",
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
        HubAccepted,
        "wait until 60",
        "pending, hub a, asked Subscribe, failures 1, try 60",
    );
    check(
        asking("a").after(1, HubAccepted),
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
fn hub_that_failed_is_asked_last() {
    for (case, at, step) in [
        (
            Case::new("a b c")
                .after(0, Started)
                .after(1, HubAccepted)
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
                .after(2, HubAccepted)
                .after(61, Woken),
            62,
            "subscribe for 600 s at a to t",
        ),
    ] {
        let mut case = case;
        assert_eq!(case.handle(at, TopicUnavailable), step);
    }
    // Of three, b is tried after a and c; a hub that is no longer known changes no order.
    let order = |last: &str, failures, state| {
        let mut channel = Case::new("a b c").channel;
        channel.hub = Some(hub(last));
        channel.lease.failures = failures;
        channel.lease.state = state;
        let names = channel.hubs_in_order();
        let names: Vec<_> = names.iter().map(|hub| short(hub.as_str())).collect();
        names.join(" ")
    };
    use ChannelState::{Active, Denied, Expired, Pending};
    for (last, failures, state, expected) in [
        ("b", 0, Active, "b a c"),
        ("c", 0, Active, "c a b"),
        ("gone", 0, Active, "a b c"),
        ("b", 0, Pending, "a b c"),
        ("b", 0, Expired, "a b c"),
        ("a", 1, Pending, "b c a"),
        ("b", 2, Denied, "a c b"),
        ("c", 1, Active, "a b c"),
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
    for event in [refused(Some(60)), HubAccepted] {
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
            .after(1, HubAccepted)
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
    use Ruling::{Confirm, ConfirmAgain, Refuse};
    let requested = || Case::new("a").after(0, Started);
    let ended = || {
        let mut case = Case::active("a").left(10).after(10, Woken);
        assert_eq!(case.verify(11, Unsubscribe), Confirm);
        case
    };
    let active = "active, hub a, renew 305, expires 605";
    let before = "active, hub a, renew 300, expires 600";
    for (case, intent, ruling, state) in [
        (Case::new("a"), Subscribe, Refuse, "pending, hub a, try 0"),
        (requested(), Subscribe, Confirm, active),
        (
            requested(),
            Unsubscribe,
            Refuse,
            "pending, hub a, asked Subscribe, failures 1, try 60",
        ),
        (Case::active("a"), Subscribe, ConfirmAgain, before),
        (Case::active("a"), Unsubscribe, Refuse, before),
        (
            Case::active("a").denied(1),
            Subscribe,
            Refuse,
            "denied, hub a, failures 2, try 5",
        ),
        // The channel is left: a request to subscribe no longer counts.
        (
            requested().left(1),
            Subscribe,
            Refuse,
            "pending, left, hub a, try 1",
        ),
        (
            ended(),
            Unsubscribe,
            ConfirmAgain,
            "unsubscribed, left, hub a",
        ),
        (ended(), Subscribe, Refuse, "unsubscribed, left, hub a"),
        // It is wanted again: nor does one to unsubscribe.
        (
            Case::active("a").left(1).after(1, Woken).wanted(2, "a"),
            Unsubscribe,
            Refuse,
            "pending, hub a, try 2",
        ),
    ] {
        let mut case = case;
        let given = case.state_text();
        let found = case.verify(5, intent);
        assert_eq!(found, ruling, "{intent:?} in: {given}");
        assert_eq!(case.state_text(), state, "{intent:?} in: {given}");
    }
}

#[test]
fn verification_and_denial_of_another_topic_change_nothing() {
    let topic = TopicUri::parse("https://source.example/other").unwrap();
    for case in [Case::new("a").after(0, Started), Case::active("a")] {
        let mut case = case;
        let (now, state) = (case.now(5).wall, case.state_text());
        for intent in [Intent::Subscribe, Intent::Unsubscribe] {
            let ruling = case.channel.verify(now, &topic, intent, None, 0.0);
            assert_eq!(ruling, Ruling::Refuse, "{intent:?} in: {state}");
        }
        assert!(!case.channel.deny(now, &topic), "{state}");
        assert_eq!(case.state_text(), state);
    }
}

#[test]
fn denial_overrules_the_answer_and_is_retried_after_a_growing_pause() {
    for event in [HubAccepted, refused(Some(60))] {
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
        "wait until 109",
        "denied, hub a, failures 3, try 109",
    );
    check(
        Case::active("a").left(100).after(100, Woken).denied(101),
        101,
        HubAccepted,
        "healthy; end",
        "unsubscribed, left, hub a",
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
        "read t",
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
        HubAccepted,
        "wait until 363",
        "active, hub a, asked Subscribe, failures 2, try 363, renew 300, expires 600",
    );
}

#[test]
fn channel_that_is_no_longer_wanted_is_ended_at_its_hub() {
    let left = || Case::active("a b").left(10);
    check_state(
        &left(),
        "active, left, hub a, try 10, renew 300, expires 600",
    );
    check(
        left(),
        10,
        Woken,
        "unsubscribe at a to t",
        "active, left, hub a, asked Unsubscribe, failures 1, try 70, renew 300, expires 600",
    );
    // The request to subscribe that was in progress no longer counts, whatever its answer.
    for event in [HubAccepted, refused(Some(60))] {
        check(
            Case::new("a b").after(0, Started).left(1),
            2,
            event,
            "unsubscribe at a to t",
            "pending, left, hub a, asked Unsubscribe, failures 1, try 62",
        );
    }
    check(
        left().after(10, Woken).after(11, HubAccepted),
        12,
        Woken,
        "wait until 70",
        "active, left, hub a, asked Unsubscribe, failures 1, try 70, renew 300, expires 600",
    );
    check(
        left().after(10, Woken),
        11,
        refused(Some(20)),
        "hub-refused; wait until 31",
        "active, left, hub a, asked Unsubscribe, failures 1, try 31, renew 300, expires 600",
    );
    // No hub has ever been asked.
    check(
        Case::new("").left(1),
        1,
        Started,
        "healthy; end",
        "unsubscribed, left",
    );
    check(
        Case::new("a")
            .changed(1, |channel, _| channel.lease.end())
            .left(2),
        3,
        Started,
        "healthy; end",
        "unsubscribed, left, hub a",
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
    assert_eq!(case.state_text(), "unsubscribed, left, hub a");
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
            .after(11, HubAccepted),
    ] {
        let case = case.wanted(20, "a");
        check_state(&case, new);
        for event in [HubAccepted, refused(Some(60)), Woken, Started] {
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
        "active, hub c, asked Subscribe, failures 1, try 71, renew 300, expires 600",
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
fn silent_hub_is_asked_anew() {
    let fall_silent = |case: Case, at| {
        let mut failure = None;
        let case = case.changed(at, |channel, now| failure = channel.fall_silent(now));
        (case, failure.map(|failure| failure.code))
    };
    let (silent, code) = fall_silent(Case::active("a b"), 100);
    assert_eq!(code, Some("push-silent"));
    check(silent, 100, Woken, "read t", "expired, hub a, try 100");
    // Only a running lease can fall silent.
    for case in [
        Case::new("a"),
        Case::active("a").denied(50),
        Case::active("a").changed(1, |channel, _| channel.lease.end()),
    ] {
        let before = case.state_text();
        let (case, code) = fall_silent(case, 100);
        assert_eq!((code, case.state_text()), (None, before));
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
        HubAccepted,
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
            HubAccepted,
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
    /// least two seconds apart.
    #[test]
    fn wanted_channel_never_stalls_and_never_hurries(
        events in proptest::collection::vec((0_u8..9, 0_u64..100), 1..80)
    ) {
        let mut case = Case::new("a b");
        let (mut now, mut last) = (0, None::<u64>);
        let mut action = ChannelAction::WaitUntil(case.epoch.wall);
        for (number, step) in events {
            now += step;
            let wall = case.now(now).wall;
            let event = match (number, &action) {
                (0, _) => { case = case.denied(now); Woken }
                (1, _) => { let topic = case.channel.subscribed_topic.clone(); case.channel.verify(wall, &topic, Intent::Subscribe, Some(step), 0.5); Woken }
                (2, _) => { case.channel.fall_silent(wall); Woken }
                (3, _) => Started,
                (_, ChannelAction::ReadTopic(_)) if number % 2 == 0 => TopicUnavailable,
                (_, ChannelAction::ReadTopic(_)) => read(None, "b c"),
                (_, ChannelAction::SendRequest(_)) if number % 2 == 0 => HubAccepted,
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
