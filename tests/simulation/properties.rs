//! Random histories. `RESYNCD_SIMULATIONS` says how many; what fails is kept beside this file and tried first ever after.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::history::{Act, History, change, habits, history, pass, settings};
use super::network::Fate;
use super::source::RESOURCES;
use super::world::{Requests, World};

/// How many histories each property is tried with, unless the environment says otherwise.
const HISTORIES: u32 = 256;

fn config() -> ProptestConfig {
    let asked = std::env::var("RESYNCD_SIMULATIONS").ok();
    ProptestConfig {
        cases: asked.map_or(HISTORIES, |asked| asked.parse().unwrap()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
            "proptest-regressions",
        ))),
        ..ProptestConfig::default()
    }
}

/// What the Source does by itself, with a network that brings everything in order.
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

/// How many looks at a gap fit into the pauses that double from two seconds to the poll interval.
const LOOKS: u64 = 11;

/// The most documents that a history may cost: some for each poll, and polls for each gap, hint and ending of the process.
fn most_documents(history: &History, world: &World) -> u64 {
    let Requests {
        gaps,
        hints,
        crashes,
        ..
    } = world.requests;
    let polls =
        world.moment / u64::try_from(history.settings.poll_interval.as_millis()).unwrap() + 1;
    let outages = history
        .acts
        .iter()
        .filter(|act| matches!(act, Act::Documents(_)))
        .count();
    let lists = history
        .acts
        .iter()
        .filter(|act| matches!(act, Act::RollOver(_)))
        .count();
    let causes = gaps + hints + crashes + u64::try_from(outages).unwrap() + 1;
    let sets = u64::try_from(history.habits.sets).unwrap();
    (polls + causes * LOOKS) * sets * (4 + u64::try_from(lists).unwrap())
}

/// The most downloads: some for each change, and for each time that something may be told once more.
fn most_contents(history: &History, world: &World) -> u64 {
    let changes = u64::try_from(world.source.changes.len()).unwrap();
    let lists = history
        .acts
        .iter()
        .filter(|act| matches!(act, Act::WriteResourceList(_)))
        .count();
    let again = u64::try_from(lists * RESOURCES).unwrap() + 1;
    6 * (changes + again) * (1 + world.requests.crashes) + world.requests.polls * 6
}

proptest! {
    #![proptest_config(config())]

    /// Whatever happens: all promises are kept on the way, and in the end the mirror is where the Source is.
    #[test]
    fn any_history_ends_in_sync(history in history(60)) {
        let world = history.live();
        prop_assert!(world.requests.documents <= most_documents(&history, &world), "{:?}", world.requests);
        prop_assert!(world.requests.contents <= most_contents(&history, &world), "{:?}", world.requests);
    }

    /// Without loss, and in order: once the first catch-up is over, notifications tell everything, and no Change List is
    /// fetched.
    #[test]
    fn without_loss_or_reorder_no_change_list_is_fetched(
        habits in habits(),
        settings in settings(Just(86_400)),
        acts in prop::collection::vec(undisturbed(), 0..60),
        delay in 1..4000_u64,
    ) {
        let mut world = World::new(habits, settings);
        world.pass(5000);
        let caught_up = world.requests;
        for act in acts {
            match act {
                Act::Publish(set, _) => world.act(&Act::Publish(set, Fate::Delivered(delay))),
                other => world.act(&other),
            }
        }
        for set in 0..world.disk.sets.len() {
            world.act(&Act::Publish(set, Fate::Delivered(delay)));
        }
        world.pass(30_000);
        prop_assert_eq!(world.requests.change_lists, caught_up.change_lists);
        prop_assert_eq!(world.requests.gaps, 0);
        world.heal(true, 2 * 86_400_000);
    }

    /// What a history costs grows with its length, not faster: to live through it ten times, one after the other, costs
    /// less than thrice as much as five times.
    #[test]
    fn costs_grow_with_the_length_of_a_history(history in history(12)) {
        let cost = |times| {
            let acts = vec![history.acts.clone(); times].concat();
            History { acts, ..history.clone() }.live().requests
        };
        let (half, whole) = (cost(5), cost(10));
        prop_assert!(whole.documents <= half.documents * 3 + 200, "{half:?}, {whole:?}");
        // What can't be had is tried again after each poll.
        let polls = whole.polls.saturating_sub(half.polls);
        let again = polls * 6 * u64::try_from(RESOURCES).unwrap();
        prop_assert!(whole.contents <= half.contents * 3 + 200 + again, "{half:?}, {whole:?}");
    }
}
