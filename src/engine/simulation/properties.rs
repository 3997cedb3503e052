//! Random histories. `RESYNCD_SIMULATIONS` sets how many, and `RESYNCD_SIMULATION_SEED` which: without it, they are the same
//! ones each time, so that a check that has nothing to do with them does not fail because of them. What fails is recorded
//! beside this file and tried first from then on, until a scenario replaces the record.

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

use super::history::{Act, History, MOST_PARTS, Outcome, change, habits, history, pass, settings};
use super::network::Fate;
use super::source::RESOURCES;
use super::world::simulate;

/// How many histories a property is tried with, unless the environment says otherwise.
const HISTORIES: u32 = 32;

/// `cost`: how many times as long as the others the histories of a property take; it is tried with as much fewer of them.
fn config(cost: u32) -> ProptestConfig {
    let asked = |name| std::env::var(name).ok();
    let cases = asked("RESYNCD_SIMULATIONS").map_or(HISTORIES, |cases| cases.parse().unwrap());
    let cases = cases.div_ceil(cost);
    let seed = asked("RESYNCD_SIMULATION_SEED").map_or(0, |seed| seed.parse().unwrap());
    ProptestConfig {
        cases,
        // In milliseconds: a history takes some.
        max_shrink_time: 60_000,
        max_shrink_iters: u32::MAX,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
            "proptest-regressions",
        ))),
        ..ProptestConfig::default()
    }
}

/// What the Source does by itself, with a network that delivers everything in order.
fn undisturbed() -> impl Strategy<Value = Act> {
    let set = || 0..2_usize;
    prop_oneof![
        8 => change(),
        8 => set().prop_map(|set| Act::Publish(set, Fate::Delivered(0))),
        10 => pass(),
        1 => set().prop_map(Act::WriteChangeLists),
        1 => set().prop_map(Act::RollOver),
        1 => set().prop_map(Act::WriteResourceList),
    ]
}

/// How many polls of a gap fit into the pauses that double from two seconds to the poll interval.
const POLLS_OF_A_GAP: u64 = 11;

fn count(history: &History, counts: impl Fn(&Act) -> bool) -> u64 {
    history.acts.iter().filter(|act| counts(act)).count() as u64
}

fn polls(history: &History, outcome: &Outcome) -> u64 {
    let interval = history.settings.poll_interval.as_millis();
    outcome.moment / u64::try_from(interval).unwrap() + 1
}

/// The most documents that a history may cost: some for each poll, and polls for each gap, hint, fault and crash.
fn most_documents(history: &History, outcome: &Outcome) -> u64 {
    let requests = outcome.requests;
    let faults = count(history, |act| {
        matches!(
            act,
            Act::Documents(_) | Act::Fail(..) | Act::Offer(..) | Act::Order(_) | Act::Framework(..)
        )
    });
    let lists = count(history, |act| matches!(act, Act::RollOver(_)));
    let causes = requests.gaps + requests.hints + requests.crashes + faults + 2;
    let sets = history.habits.sets as u64;
    // Of both dumps, their packages and the copies of their manifests.
    let of_dumps = 2 + 2 * (MOST_PARTS as u64 + lists + 1);
    let of_a_poll = 5 + lists + 2 * MOST_PARTS as u64 + of_dumps;
    // A document that is not available is tried twice.
    2 * (polls(history, outcome) + causes * POLLS_OF_A_GAP) * sets * of_a_poll
}

/// The most downloads: some for each change, and for each time that something may be announced once more; and after each
/// poll, six tries for each that is not available.
fn most_contents(history: &History, outcome: &Outcome) -> u64 {
    let lists = count(history, |act| {
        matches!(
            act,
            Act::WriteResourceList(_) | Act::WriteResourceDump(_) | Act::Divide(_)
        )
    });
    let again = (lists + 1) * RESOURCES as u64;
    let outages = polls(history, outcome) + outcome.requests.crashes;
    6 * (outcome.changes as u64 + again) * (1 + outcome.requests.crashes)
        + outages * 6 * RESOURCES as u64
}

proptest! {
    #![proptest_config(config(1))]

    /// Whatever happens: all promises are kept on the way, and in the end the mirror is what the Source is.
    #[test]
    fn any_history_ends_in_sync(history in history(60)) {
        let outcome = history.run();
        let requests = outcome.requests;
        prop_assert!(requests.documents <= most_documents(&history, &outcome), "{requests:?}");
        prop_assert!(requests.contents <= most_contents(&history, &outcome), "{requests:?}");
    }

    /// Without loss, and in order: once the first catch-up is over, notifications announce everything, and no Change List is
    /// fetched.
    #[test]
    fn without_loss_or_reorder_no_change_list_is_fetched(
        habits in habits(),
        settings in settings(Just(86_400)),
        acts in prop::collection::vec(undisturbed(), 0..60),
        delay in 1..4000_u64,
    ) {
        let habits = super::source::Habits {
            offered_first: super::source::Offered::Everything,
            faulty_first: None,
            ..habits
        };
        simulate(habits, settings, async |world| {
            world.pass(5000).await;
            let caught_up = world.requests();
            let acts: Vec<Act> = acts
                .into_iter()
                .map(|act| match act {
                    Act::Publish(set, _) => Act::Publish(set, Fate::Delivered(delay)),
                    other => other,
                })
                .collect();
            world.run(&acts).await;
            for set in 0..2 {
                world.act(&Act::Publish(set, Fate::Delivered(delay)));
            }
            world.pass(30_000).await;
            let requests = world.requests();
            assert_eq!(requests.change_lists, caught_up.change_lists);
            assert_eq!(requests.gaps, 0);
            world.settle(true, 2 * 86_400_000).await;
        });
    }
}

proptest! {
    #![proptest_config(config(4))]

    /// A history that is run again is the same, request by request and commit by commit.
    #[test]
    fn nothing_is_left_to_chance(history in history(60)) {
        let (first, second) = (history.run(), history.run());
        prop_assert_eq!(first.trace, second.trace, "{:?}, {:?}", first, second);
    }

    /// What a history costs grows with its length, not faster: to run it ten times, one after the other, costs less than
    /// thrice as much as five times.
    #[test]
    fn costs_grow_with_the_length_of_a_history(history in history(12)) {
        let cost = |times| {
            let acts = vec![history.acts.clone(); times].concat();
            let history = History { acts, ..history.clone() };
            let outcome = history.run();
            (outcome.requests, polls(&history, &outcome))
        };
        let ((half, polls_of_half), (whole, polls_of_whole)) = (cost(5), cost(10));
        prop_assert!(whole.documents <= half.documents * 3 + 200, "{half:?}, {whole:?}");
        // What is not available is tried again after each poll.
        let again = polls_of_whole.saturating_sub(polls_of_half) * 6 * RESOURCES as u64;
        prop_assert!(whole.contents <= half.contents * 3 + 200 + again, "{half:?}, {whole:?}");
    }
}
