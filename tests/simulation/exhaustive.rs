//! Every history of five notifications: each delivered, lost, doubled or swapped with the one after it; the process ended
//! at no step, or at any one; with a Change List that is up to date, and with one that lags until the end.

use std::time::Duration;

use resyncd::sync::Limits;

use super::network::Fate;
use super::source::{Boundary, ChangeLists, Habits};
use super::world::{Settings, World};

const NOTIFICATIONS: usize = 5;
/// Milliseconds from one notification to the next.
const PACE: u64 = 1000;
const FATES: [Fate; 4] = [
    Fate::Delivered(20),
    Fate::Lost,
    Fate::Doubled(20, 400),
    // It comes after the next one.
    Fate::Delivered(PACE + 500),
];

struct Exhaustion {
    lists_lag: bool,
    histories: u64,
}

impl Exhaustion {
    /// Goes on with the notification of that number in every way. `is_ended`: the process was ended once already.
    fn notify(&mut self, world: &World, number: usize, is_ended: bool) {
        if number == NOTIFICATIONS {
            self.rest(world, is_ended);
            return;
        }
        let mut world = world.clone();
        // Some change one resource again and again, some several, and one deletes what the first has created.
        for resource in [3, number % 3] {
            let delete = resource == 3 && number == 2;
            world.source.change(world.moment, resource, delete);
        }
        if !self.lists_lag {
            world.source.write_change_lists(0);
        }
        for fate in FATES {
            let mut next = world.clone();
            next.publish(0, false, fate);
            let before = next.clone();
            next.pass(PACE);
            self.notify(&next, number + 1, is_ended);
            for step in self.steps(&before, &next, is_ended) {
                let mut ended = before.clone();
                ended.crash_at = Some(step);
                ended.pass(PACE);
                self.notify(&ended, number + 1, true);
            }
        }
    }

    /// Nothing more is published: the network heals, and everything comes to rest.
    fn rest(&mut self, world: &World, is_ended: bool) {
        let rest = |world: &mut World| {
            world.pass(7000);
            world.heal(false, 1_000_000);
        };
        let mut next = world.clone();
        rest(&mut next);
        self.histories += 1;
        for step in self.steps(world, &next, is_ended) {
            let mut ended = world.clone();
            ended.crash_at = Some(step);
            rest(&mut ended);
            self.histories += 1;
        }
    }

    /// The steps between two moments at which the process may be ended.
    fn steps(&self, before: &World, after: &World, is_ended: bool) -> std::ops::Range<u64> {
        if is_ended {
            0..0
        } else {
            before.steps..after.steps
        }
    }
}

fn check(lists_lag: bool) {
    let habits = Habits {
        sets: 1,
        whole_seconds: false,
        boundary: Boundary::Exact,
        hashes: true,
        overlap: 0,
        change_lists: ChangeLists::Open,
        newest_first: false,
        lists_say_from: true,
        clock_ahead: 0,
    };
    let settings = Settings {
        limits: Limits {
            reorder_window: Duration::from_secs(5),
            held_notifications: 1024,
        },
        poll_interval: Duration::from_secs(900),
        download: 100,
    };
    let mut world = World::new(habits, settings);
    world.pass(5000);
    let mut exhaustion = Exhaustion {
        lists_lag,
        histories: 0,
    };
    exhaustion.notify(&world, 0, false);
    let all: u64 = 4_u64.pow(5);
    assert!(
        exhaustion.histories > 40 * all,
        "the process ends too seldom"
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
