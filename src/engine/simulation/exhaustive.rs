//! Every short history: each notification delivered, lost, doubled or swapped with the one after it; the process ended at no
//! step of the store, or at any one; with a Change List that is up to date, and with one that lags until the end.
//! `RESYNCD_SIMULATED_NOTIFICATIONS` sets how many notifications; without it there are few, and the process ends at every sixth step
//! only, beginning at another one in each history.

use super::history::Act;
use super::network::Fate;
use super::source::{ChangeLists, Fault, Habits, Offered, PartForm, SimulatedDocument};
use super::world::{Settings, World, simulate};

/// How many notifications, unless the environment says otherwise.
const NOTIFICATIONS: u32 = 2;
/// How far apart the steps are at which the process ends, unless the environment says how many notifications there are.
const STRIDE: usize = 6;
/// Milliseconds from one notification to the next.
const PACE: u64 = 1000;
const FATES: [Fate; 4] = [
    Fate::Delivered(20),
    Fate::Lost,
    Fate::Doubled(20, 400),
    // It arrives after the next one.
    Fate::Delivered(PACE + 500),
];

/// How many steps of the store a history takes until it comes to rest; `crash_at`: the process ends at that one.
async fn run(world: &mut World, acts: &[Act], crash_at: Option<u64>) -> u64 {
    if let Some(step) = crash_at {
        world.act(&Act::Crash(step));
    }
    let before = world.steps();
    world.run(acts).await;
    world.pass(7000).await;
    let steps = world.steps() - before;
    world.settle(false, 1_000_000).await;
    steps
}

/// The notifications, each with a fate by its number.
fn acts(notifications: u32, mut fates: usize, lists_lag: bool) -> Vec<Act> {
    let mut acts = Vec::new();
    for number in 0..notifications {
        // Some change one resource again and again, some several, and one deletes what the first has created.
        for resource in [3, number as usize % 3] {
            acts.push(if resource == 3 && number == 2 {
                Act::Delete(resource)
            } else {
                Act::Change(resource)
            });
        }
        if !lists_lag {
            acts.push(Act::WriteChangeLists(0));
        }
        acts.push(Act::Pass(10));
        acts.push(Act::Publish(0, FATES[fates % FATES.len()]));
        fates /= FATES.len();
        acts.push(Act::Pass(PACE));
    }
    acts
}

/// How many notifications the environment asks for.
fn asked() -> Option<u32> {
    let asked = std::env::var("RESYNCD_SIMULATED_NOTIFICATIONS").ok();
    asked.map(|asked| asked.parse().unwrap())
}

/// The steps, of so many, at which the process ends in the history of that number.
fn ends(steps: u64, history: usize) -> impl Iterator<Item = u64> {
    let stride = if asked().is_some() { 1 } else { STRIDE };
    (0..steps).skip(history % stride).step_by(stride)
}

fn check(lists_lag: bool) {
    let notifications = asked().unwrap_or(NOTIFICATIONS);
    let settings = Settings {
        download: 100,
        ..Settings::default()
    };
    let mut all_steps = 0;
    for fates in 0..FATES.len().pow(notifications) {
        let acts = acts(notifications, fates, lists_lag);
        let history = |crash_at| {
            simulate(Habits::default(), settings, async |world| {
                world.pass(5000).await;
                run(world, &acts, crash_at).await
            })
        };
        let steps = history(None);
        for step in ends(steps, fates) {
            history(Some(step));
        }
        all_steps += steps;
    }
    let all = FATES.len().pow(notifications) as u64;
    assert!(
        all_steps > 12 * all,
        "the process ends too seldom: {all_steps}"
    );
}

#[test]
fn every_short_history_ends_in_sync() {
    check(false);
}

#[test]
fn every_short_history_ends_in_sync_with_lists_that_lag() {
    check(true);
}

/// The process ends at some step from its first one to the end of the baseline, of every kind.
#[test]
fn every_beginning_ends_in_sync() {
    let whole = Habits {
        sets: 2,
        change_lists: ChangeLists::Index,
        ..Habits::default()
    };
    let in_parts = Habits {
        parts: 3,
        part_form: PartForm::Dated,
        change_lists: ChangeLists::Replaced,
        ..Habits::default()
    };
    let late = Habits {
        offered_first: Offered::ChangeListsOnly,
        ..Habits::default()
    };
    let failing = Habits {
        parts: 2,
        faulty_first: Some((SimulatedDocument::Part(1), Fault::Gone)),
        ..Habits::default()
    };
    let in_pages = Habits {
        parts: 3,
        part_form: PartForm::Pages,
        ..Habits::default()
    };
    let all = [whole, in_parts, in_pages, late, failing];
    for (number, habits) in all.into_iter().enumerate() {
        let acts = [
            Act::Pass(100),
            Act::Change(2),
            Act::Delete(1),
            Act::Pass(10),
            Act::Publish(0, Fate::Delivered(20)),
            Act::Pass(3000),
            Act::Offer(0, Offered::Everything),
            Act::Fail(0, SimulatedDocument::Part(1), None),
            Act::Pass(30_000),
        ];
        let history = |crash_at| {
            simulate(habits.clone(), Settings::default(), async |world| {
                run(world, &acts, crash_at).await
            })
        };
        let steps = history(None);
        assert!(steps > 30, "the process ends too seldom");
        for step in ends(steps, number) {
            history(Some(step));
        }
    }
}
