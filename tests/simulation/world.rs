//! The world: one clock, and everything that happens by it, in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::DateTime;
use resyncd::clock::{self, Now};
use resyncd::sync::Limits;

use super::applier::Downloads;
use super::destination::Worker;
use super::disk::Disk;
use super::network::{Fate, Network};
use super::promises::Witness;
use super::source::{Habits, SetNo, Source};

/// Why the Destination's work stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The process has ended: what is not committed is gone.
    Crash,
    /// A document could not be had.
    Unreachable,
}

/// The Destination's configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) poll_interval: Duration,
    /// How long a download takes, in milliseconds.
    pub(crate) download: u64,
}

/// What the Destination has asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) change_lists: u64,
    pub(crate) documents: u64,
    pub(crate) contents: u64,
    pub(crate) polls: u64,
    pub(crate) gaps: u64,
    pub(crate) hints: u64,
    pub(crate) crashes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Milliseconds since the world began.
    pub(crate) moment: u64,
    base: Now,
    pub(crate) source: Source,
    pub(crate) network: Network,
    pub(crate) disk: Disk,
    pub(crate) settings: Settings,
    pub(crate) workers: Vec<Worker>,
    pub(crate) downloads: Downloads,
    pub(crate) documents_down: bool,
    pub(crate) contents_down: bool,
    /// How many steps the Destination has taken; it is ended before the one of that number.
    pub(crate) steps: u64,
    pub(crate) crash_at: Option<u64>,
    pub(crate) requests: Requests,
    pub(crate) witness: Witness,
}

/// 2026-01-01, where the Source's time zero is, too.
const EPOCH_SECONDS: i64 = 1_767_225_600;
/// When the Source begins, so that there is time before it.
const BEGINNING: u64 = 100_000;

impl World {
    pub(crate) fn new(habits: Habits, settings: Settings) -> Self {
        let sets = habits.sets;
        let base = Now {
            wall: DateTime::from_timestamp(EPOCH_SECONDS, 0).unwrap(),
            mono: clock::now().mono,
        };
        let mut world = Self {
            moment: BEGINNING,
            base,
            source: Source::new(habits, BEGINNING),
            network: Network::default(),
            disk: Disk::new(sets),
            settings,
            workers: Vec::new(),
            downloads: Downloads::default(),
            documents_down: false,
            contents_down: false,
            steps: 0,
            crash_at: None,
            requests: Requests::default(),
            witness: Witness::new(sets),
        };
        world.start();
        world
    }

    pub(crate) fn now(&self) -> Now {
        self.base.plus(Duration::from_millis(self.moment))
    }

    fn moment_of(&self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.base.mono).as_millis()).unwrap()
    }

    /// The Destination begins with what it had committed.
    pub(crate) fn start(&mut self) {
        self.workers = (0..self.disk.sets.len())
            .map(|set| Worker::new(self.now(), self.settings, &self.disk, set))
            .collect();
        self.downloads = Downloads::default();
    }

    /// The Destination's process ends, wherever it is, and begins again.
    pub(crate) fn crash(&mut self) {
        self.requests.crashes += 1;
        self.crash_at = None;
        self.start();
    }

    /// One step of the Destination: before it, the process may end.
    pub(crate) fn step(&mut self) -> Result<(), Halt> {
        if self.crash_at == Some(self.steps) {
            return Err(Halt::Crash);
        }
        self.steps += 1;
        Ok(())
    }

    /// One transaction. It happens or it does not, and the process may end on either side of it.
    pub(crate) fn transact(&mut self, change: impl FnOnce(&mut Disk)) -> Result<(), Halt> {
        self.step()?;
        change(&mut self.disk);
        self.keep_promises();
        self.step()
    }

    /// The Source publishes a notification.
    pub(crate) fn publish(&mut self, set: SetNo, bare: bool, fate: Fate) {
        let notification = Arc::new(self.source.notification(self.moment, set, bare));
        if matches!(fate, Fate::Lost | Fate::Coalesced(_)) {
            self.witness.lose(&notification);
        }
        self.network.send(self.moment, &notification, fate);
    }

    /// Lets so many milliseconds pass; everything that is due by then happens in its turn.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.moment + millis;
        let mut busy = 0;
        loop {
            self.work();
            let next = self.next_event();
            if next > end {
                break;
            }
            busy = if next <= self.moment { busy + 1 } else { 0 };
            assert!(busy < 10_000, "the Destination works without end");
            self.moment = self.moment.max(next);
        }
        self.moment = end;
    }

    fn next_event(&self) -> u64 {
        let workers = self.workers.iter().map(|worker| {
            if worker.is_awake {
                return self.moment;
            }
            let waits = worker.sequencer.next_deadline();
            let waits = waits.filter(|_| worker.can_follow(&self.disk));
            let due = worker.schedule.next_deadline();
            self.moment_of(waits.map_or(due, |waits| waits.min(due)))
        });
        let others = [self.network.next_arrival(), self.next_download()];
        let all = workers.chain(others.into_iter().flatten());
        all.min().unwrap_or(u64::MAX)
    }

    /// Everything that is due at this moment.
    fn work(&mut self) {
        if self.receive_all() == Err(Halt::Crash) {
            self.crash();
        }
        for set in 0..self.workers.len() {
            if self.work_on(set) == Err(Halt::Crash) {
                self.crash();
            } else {
                self.memory_is_bounded(set);
            }
        }
        if self.work_downloads() == Err(Halt::Crash) {
            self.crash();
        }
    }

    /// Takes deliveries in. What is not on disk when the process ends was never acknowledged, and the hub has given up.
    fn receive_all(&mut self) -> Result<(), Halt> {
        while let Some(notification) = self.network.arrive(self.moment) {
            let set = notification.set;
            self.transact(|disk| disk.receive(notification))?;
            self.workers[set].is_awake = true;
        }
        Ok(())
    }
}
