//! The dates of one subscription, on a clock that only the tests move.

use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
}

fn asked(lease: u64) -> PendingRequest {
    PendingRequest {
        intent: Intent::Subscribe,
        lease_seconds: lease,
    }
}

fn active(granted: Option<u64>) -> Lease {
    let mut lease = Lease::new(at(0));
    assert!(lease.handle_timeout(at(0)));
    lease.begin_request(at(0), asked(600));
    assert_eq!(
        lease.verify(at(0), Intent::Subscribe, granted, 0.0),
        VerificationAnswer::Confirm
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
        lease.begin_request(at(0), asked(600));
        lease.verify(at(0), Intent::Subscribe, None, spread);
        assert_eq!(lease.renew_at, Some(at(renew)), "spread {spread}");
    }
}

/// The times of the requests until `end`, to a hub that verifies each one at once and grants `granted` seconds.
fn requests_until(end: i64, granted: u64) -> Vec<i64> {
    let (mut lease, mut now, mut sent) = (Lease::new(at(0)), 0, Vec::new());
    while now < end {
        if lease.handle_timeout(at(now)) {
            sent.push(now);
            lease.begin_request(at(now), asked(600));
            lease.verify(at(now), Intent::Subscribe, Some(granted), 0.0);
        } else {
            let next = lease.next_deadline().unwrap() - at(0);
            // Whole seconds: it is not woken before the deadline.
            now = (next.num_milliseconds() + 999) / 1000;
        }
    }
    sent
}

#[test]
fn hub_does_not_set_the_pace_with_short_leases() {
    // It can't be renewed in time.
    for granted in [1, 2] {
        assert_eq!(requests_until(1500, granted), [0, 300, 600, 900, 1200]);
    }
    // Renewed in time, until it has been too often.
    let sent = requests_until(1500, 10);
    assert_eq!(sent[..12], [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]);
    assert_eq!(sent[12..], [300, 600, 900, 1200]);
    // Renewed in time for ever.
    let sent = requests_until(100_000, 600);
    assert!(
        sent.windows(2).all(|pair| pair[1] - pair[0] == 300),
        "{sent:?}"
    );
}

#[test]
fn pace_of_the_requests_outlives_denials_and_returns_but_not_an_ending() {
    let mut lease = Lease::new(at(0));
    for _ in 0..REQUEST_BURST {
        lease.restart(at(0));
        lease.begin_request(at(0), asked(600));
    }
    lease.restart(at(1));
    assert_eq!(lease.next_deadline(), Some(at(300)));
    lease.deny(at(2));
    assert_eq!(lease.next_deadline(), Some(at(300)));
    assert_eq!(lease.anew(at(3)).next_deadline(), Some(at(300)));
    // An absurd date of a clock that was set back delays nothing for long.
    let mut far = lease.clone();
    far.paced_until = Some(at(DAY));
    far.handle_timeout(at(4));
    assert_eq!(far.next_deadline(), Some(at(304)));
    lease.begin_ending(at(5));
    assert_eq!(lease.next_deadline(), Some(at(5)));
}

#[test]
fn verification_without_a_pending_request_changes_nothing() {
    let mut lease = active(None);
    let before = lease.clone();
    assert_eq!(
        lease.verify(at(1), Intent::Subscribe, Some(1), 0.5),
        VerificationAnswer::ConfirmAgain
    );
    assert_eq!(
        lease.verify(at(1), Intent::Unsubscribe, None, 0.5),
        VerificationAnswer::Reject
    );
    assert_eq!(lease, before);
    assert_eq!(
        Lease::new(at(0)).verify(at(0), Intent::Subscribe, None, 0.5),
        VerificationAnswer::Reject
    );
}

#[test]
fn running_lease_stays_active_while_its_renewal_fails() {
    let mut lease = active(None);
    assert!(!lease.handle_timeout(at(299)));
    assert!(lease.handle_timeout(at(300)));
    let mut tries = Vec::new();
    let mut now = 300;
    while now < 600 {
        lease.begin_request(at(now), asked(600));
        lease.fail_request(at(now), None);
        tries.push(now);
        now = (lease.next_try_at.unwrap() - at(0)).num_seconds();
        assert_eq!(lease.state, LeaseState::Active);
    }
    assert_eq!(tries, [300, 302, 306, 314, 330, 362, 426, 554]);
    assert_eq!(lease.next_deadline(), Some(at(600)));
    assert!(lease.handle_timeout(at(600)), "expired: request at once");
    assert_eq!(lease.state, LeaseState::Expired);
}

#[test]
fn request_that_is_not_verified_is_repeated() {
    let mut lease = Lease::new(at(0));
    lease.begin_request(at(0), asked(600));
    assert!(!lease.handle_timeout(at(59)));
    assert!(lease.handle_timeout(at(60)));
    assert_eq!(
        lease.verify(at(61), Intent::Subscribe, None, 0.0),
        VerificationAnswer::Confirm,
        "a late verification counts"
    );
}

#[test]
fn denied_subscription_is_requested_again_after_a_growing_pause() {
    let mut lease = active(None);
    let mut pauses = Vec::new();
    for now in [0, 100, 200, 300] {
        lease.deny(at(now));
        assert_eq!(lease.state, LeaseState::Denied);
        pauses.push((lease.next_try_at.unwrap() - at(now)).num_seconds());
        lease.begin_request(at(now + 50), asked(600));
    }
    assert_eq!(pauses, [4, 16, 64, 256]);
}

/// A hub that denies again and again must not keep the next one from being asked.
#[test]
fn repeated_denial_does_not_postpone_the_next_request() {
    let mut lease = active(None);
    lease.deny(at(0));
    let (due, failures) = (lease.next_try_at, lease.failures);
    for now in [1, 2, 3] {
        lease.deny(at(now));
        assert_eq!((lease.next_try_at, lease.failures), (due, failures));
    }
}

#[test]
fn ended_subscription_confirms_its_end_and_has_no_deadline() {
    let mut lease = active(None);
    lease.begin_request(
        at(5),
        PendingRequest {
            intent: Intent::Unsubscribe,
            lease_seconds: 0,
        },
    );
    assert_eq!(
        lease.verify(at(6), Intent::Subscribe, None, 0.0),
        VerificationAnswer::ConfirmAgain
    );
    assert_eq!(
        lease.verify(at(6), Intent::Unsubscribe, None, 0.0),
        VerificationAnswer::Confirm
    );
    assert_eq!(lease.state, LeaseState::Unsubscribed);
    assert_eq!(lease.next_deadline(), None);
    assert_eq!(
        lease.verify(at(7), Intent::Unsubscribe, None, 0.0),
        VerificationAnswer::ConfirmAgain
    );
}

#[test]
fn denial_of_a_request_to_unsubscribe_ends_the_subscription() {
    let mut lease = active(None);
    let unsubscribe = PendingRequest {
        intent: Intent::Unsubscribe,
        lease_seconds: 0,
    };
    lease.begin_request(at(5), unsubscribe);
    lease.deny(at(6));
    assert_eq!(lease.state, LeaseState::Unsubscribed);
    lease.deny(at(7));
    assert_eq!(lease.state, LeaseState::Unsubscribed, "and stays so");
    assert_eq!(lease.next_deadline(), None);
}

#[test]
fn lease_that_is_expired_early_is_requested_at_once() {
    let mut lease = active(None);
    lease.expire(at(100));
    assert_eq!((lease.state, lease.expires_at), (LeaseState::Expired, None));
    assert!(lease.handle_timeout(at(100)));
    lease.begin_request(at(100), asked(600));
    lease.verify(at(101), Intent::Subscribe, None, 0.0);
    assert_eq!(lease.state, LeaseState::Active);
    // Only a running lease is expired.
    lease.deny(at(200));
    let denied = lease.clone();
    lease.expire(at(300));
    assert_eq!(lease, denied);
}

#[test]
fn attempts_without_a_hub_are_repeated_after_growing_pauses() {
    let mut lease = Lease::new(at(0));
    let mut tries = Vec::new();
    let mut now = 0;
    while tries.len() < 4 {
        assert!(lease.handle_timeout(at(now)));
        tries.push(now);
        lease.fail_without_hub(at(now));
        now = (lease.next_deadline().unwrap() - at(0)).num_seconds();
    }
    assert_eq!(tries, [0, 2, 6, 14]);
    assert_eq!(
        lease.verify(at(20), Intent::Subscribe, None, 0.0),
        VerificationAnswer::Reject,
        "no request is pending"
    );
}

proptest! {
    /// Whatever a hub does, there is always a next deadline, and two requests are at least two seconds apart.
    #[test]
    fn lease_always_has_a_deadline_and_requests_are_two_seconds_apart(
        events in proptest::collection::vec(
            (0_u8..6, prop_oneof![0_i64..4, 0_i64..200], prop_oneof![0_u64..4, any::<u64>()]), 1..60,
        )
    ) {
        let mut lease = Lease::new(at(0));
        let mut now = 0;
        let mut last_request: Option<i64> = None;
        for (event, step, number) in events {
            now += step;
            match event {
                0 | 1 => if lease.handle_timeout(at(now)) {
                    prop_assert!(last_request.is_none_or(|last| now - last >= 2), "requests at {last_request:?} and {now}");
                    last_request = Some(now);
                    lease.begin_request(at(now), asked(600));
                    if event == 1 { lease.fail_request(at(now), None); }
                },
                2 => { lease.verify(at(now), Intent::Subscribe, Some(number), 0.5); }
                3 => { lease.verify(at(now), Intent::Unsubscribe, None, 0.5); }
                4 => { lease.expire(at(now)); }
                _ => lease.deny(at(now)),
            }
            prop_assert!(lease.next_deadline().is_some());
            prop_assert_ne!(lease.state, LeaseState::Unsubscribed);
        }
    }
}

const DAY: i64 = 24 * 3600;

#[test]
fn all_dates_move_with_a_clock_that_is_set_back() {
    for by in [3600, DAY, 3650 * DAY] {
        let mut lease = active(None);
        assert!(!lease.handle_timeout(at(100)));
        let now = at(100 - by);
        lease.shift_back(now, TimeDelta::seconds(by));
        assert!(!lease.handle_timeout(now), "{by}");
        assert_eq!(lease.next_deadline(), Some(at(300 - by)), "{by}");
        assert_eq!(lease.expires_at, Some(at(600 - by)), "{by}");
        // If it was granted after the step, it is renewed early and not lost.
        lease.shift_back(now, TimeDelta::seconds(by));
        assert!(lease.handle_timeout(now), "{by}");
        assert_eq!(lease.state, LeaseState::Active, "{by}");
    }
}

#[test]
fn undetected_clock_step_back_renews_the_lease() {
    for by in [3600, DAY, 3650 * DAY] {
        let mut lease = active(None);
        let now = at(100 - by);
        lease.handle_timeout(now);
        assert_eq!(lease.state, LeaseState::Active, "{by}");
        let deadline = lease.next_deadline().unwrap();
        assert!(deadline <= now + SHORTEST_PAUSE, "{by}: {deadline}");
        assert!(lease.handle_timeout(deadline), "{by}");
        lease.begin_request(deadline, asked(600));
        lease.verify(deadline, Intent::Subscribe, None, 0.0);
        assert_eq!(lease.expires_at, Some(deadline + TimeDelta::seconds(600)));
        // Without an answer the lease still expires.
        let mut lease = active(None);
        lease.handle_timeout(now);
        assert!(lease.expires_at <= Some(now + TimeDelta::seconds(600)));
    }
    let mut lease = active(None);
    assert!(!lease.handle_timeout(at(-30)), "a small correction");
    assert_eq!(lease, active(None));
}

#[test]
fn undetected_clock_step_back_repeats_the_request() {
    for (state, by) in [(LeaseState::Denied, DAY), (LeaseState::Pending, 3650 * DAY)] {
        let mut lease = Lease::new(at(0));
        lease.begin_request(at(0), asked(600));
        if state == LeaseState::Denied {
            lease.deny(at(1));
        }
        let now = at(-by);
        lease.handle_timeout(now);
        assert_eq!(lease.state, state);
        let deadline = lease.next_deadline().unwrap();
        assert!(deadline <= now + LONGEST_PAUSE, "{state:?}: {deadline}");
    }
}

#[test]
fn clock_that_is_set_forward_expires_the_lease() {
    for by in [DAY, 3650 * DAY] {
        let mut lease = active(None);
        assert!(lease.handle_timeout(at(by)));
        assert_eq!(lease.state, LeaseState::Expired);
    }
}

#[test]
fn pending_request_is_repeated_soon_after_a_restart() {
    let mut lease = Lease::new(at(0));
    for (asked_at, pause) in [(0, 2), (10, 4), (20, 8)] {
        lease.begin_request(at(asked_at), asked(600));
        assert_eq!(lease.next_deadline(), Some(at(asked_at + 60)));
        lease.resume();
        lease.resume();
        assert_eq!(lease.next_deadline(), Some(at(asked_at + pause)));
    }
    // Its verification still counts.
    let answer = lease.verify(at(21), Intent::Subscribe, None, 0.0);
    assert_eq!(answer, VerificationAnswer::Confirm);
    let before = lease.clone();
    lease.resume();
    assert_eq!(lease, before);
}

#[test]
fn refused_request_keeps_its_retry_after_over_a_restart() {
    let mut lease = Lease::new(at(0));
    lease.begin_request(at(0), asked(600));
    lease.fail_request(at(1), Some(Duration::from_secs(300)));
    lease.resume();
    assert_eq!(lease.next_deadline(), Some(at(301)));
}

#[test]
fn each_state_has_a_code_of_its_own() {
    for state in [
        LeaseState::Pending,
        LeaseState::Active,
        LeaseState::Denied,
        LeaseState::Expired,
        LeaseState::Unsubscribed,
    ] {
        assert_eq!(LeaseState::from_code(state.code()), Some(state));
    }
    assert_eq!(LeaseState::from_code("other"), None);
}
