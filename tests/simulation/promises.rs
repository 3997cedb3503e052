//! What is held to be true, after every transaction of every history.

use std::fmt::Write;

use resyncd::protocol::{ChangeKind, Interval, SourceTime};
use resyncd::sync::Coverage;

use super::disk::Origin;
use super::source::{Boundary, Change, Notification, RESOURCES, ResourceNo, SetNo};
use super::world::World;

/// What has been seen so far.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    /// The last claim of each set, while no new baseline is being made.
    claimed: Vec<Option<SourceTime>>,
    /// What did not arrive.
    lost: Vec<(SetNo, Interval)>,
}

impl Witness {
    pub(crate) fn new(sets: usize) -> Self {
        Self {
            claimed: vec![None; sets],
            lost: Vec::new(),
        }
    }

    pub(crate) fn lose(&mut self, notification: &Notification) {
        let (from, until) = notification.stated.unzip();
        let interval = from
            .zip(until)
            .and_then(|(from, until)| Interval::new(from, until));
        self.lost
            .extend(interval.map(|interval| (notification.set, interval)));
    }

    /// A Resource List is being read: claims begin anew. Where sets share resources, those of all of them.
    pub(crate) fn new_baseline(&mut self, _set: SetNo) {
        self.claimed.fill(None);
    }
}

impl World {
    pub(crate) fn keep_promises(&mut self) {
        for set in 0..self.disk.sets.len() {
            self.every_hole_is_on_record(set);
            self.what_is_lost_is_noticed(set);
            let claim = self.disk.synced_until(set);
            if let Some(claim) = claim {
                self.what_is_claimed_is_applied(set, claim);
            }
            self.no_claim_is_taken_back(set, claim);
        }
    }

    /// What lies below the front is known, or on record as missing; nothing is both.
    fn every_hole_is_on_record(&self, set: SetNo) {
        let row = &self.disk.sets[set];
        let recorded: Coverage = row.gaps.iter().map(|gap| gap.interval).collect();
        for hole in row.coverage.holes() {
            assert!(
                recorded.missing(hole).is_empty(),
                "{hole:?} is not on record: {}",
                self.told()
            );
        }
        for gap in &row.gaps {
            let missing = row.coverage.missing(gap.interval);
            assert_eq!(
                missing,
                [gap.interval],
                "a gap that is none: {}",
                self.told()
            );
        }
    }

    /// Once anything later is known, a notification that did not arrive is covered by something else, or on record.
    fn what_is_lost_is_noticed(&self, set: SetNo) {
        let row = &self.disk.sets[set];
        let noticed: Coverage = row.gaps.iter().map(|gap| gap.interval).collect();
        let lost = self.witness.lost.iter().filter(|lost| lost.0 == set);
        for &(_, interval) in lost.filter(|lost| row.coverage.front() >= Some(lost.1.until())) {
            for missing in row.coverage.missing(interval) {
                assert!(
                    noticed.missing(missing).is_empty(),
                    "nobody has noticed that {interval:?} is lost: {}",
                    self.told()
                );
            }
        }
    }

    /// A flood of early notifications becomes a gap, and not memory.
    pub(crate) fn memory_is_bounded(&self, set: SetNo) {
        let held = self.workers[set].sequencer.held();
        assert!(
            held <= self.settings.limits.held_notifications,
            "{held} are held: {}",
            self.told()
        );
    }

    fn what_is_claimed_is_applied(&self, set: SetNo, claim: SourceTime) {
        for resource in (0..RESOURCES).filter(|&resource| self.source.is_in(resource, set)) {
            let Some(change) = self.source.last_before(resource, claim) else {
                continue;
            };
            // What is gone from a set that it shares with another stays until it is gone from both.
            let is_shared = self.disk.sets.len() > 1 && self.source.is_in(resource, 1 - set);
            let may_stay = is_shared && change.kind == ChangeKind::Deleted;
            if may_stay || self.disk.is_left_to_others(set, resource) {
                continue;
            }
            // Told after a newer one that is pending, and of the same time as what is here: nobody knows which is which.
            let known = self.disk.resources[resource].known.as_ref();
            let is_tied = known.is_some_and(|known| known.changed_at == Some(change.at));
            if self.source.habits.newest_first && is_tied {
                continue;
            }
            let is_gone = !self.disk.files.contains_key(&resource) && self.was_to_go(change);
            assert!(
                self.applied(resource) >= change.version || is_gone,
                "set {set} claims to be in sync until {claim}, and {change:?} is not applied: {}",
                self.told()
            );
        }
    }

    /// The newest version of a resource that has reached the mirror.
    fn applied(&self, resource: ResourceNo) -> u32 {
        let file = self.disk.files.get(&resource).copied().unwrap_or_default();
        file.max(self.disk.resources[resource].told)
    }

    fn no_claim_is_taken_back(&mut self, set: SetNo, claim: Option<SourceTime>) {
        let is_listing = self
            .disk
            .tasks
            .values()
            .any(|task| task.origin == Origin::ResourceList);
        let habits = &self.source.habits;
        // Where a document tells of a moment that is not over, the rest is found out later. A list that does not say where
        // it begins tells of any time. And where sets share a resource, what one of them learns of it late holds back the
        // claim of the other.
        let is_exempt =
            habits.boundary != Boundary::Exact || !habits.lists_say_from || habits.sets > 1;
        if is_listing || is_exempt {
            return;
        }
        let before = self.witness.claimed[set];
        assert!(
            claim >= before,
            "synced_until went from {before:?} back to {claim:?}: {}",
            self.told()
        );
        self.witness.claimed[set] = claim;
    }

    /// A notification that has left the inbox: what it told is applied, a task, or superseded, and its interval is known.
    pub(crate) fn keep_acknowledged(&self, notification: &Notification, is_hint: bool) {
        let coverage = &self.disk.sets[notification.set].coverage;
        // What it tells of its very end is not within its interval: once later ones have come, it counts no more.
        let is_outside = |entry: &Change| {
            let stated = notification.stated;
            stated.is_some_and(|(_, until)| until <= entry.at && coverage.contains(entry.at))
        };
        let is_left = |entry: &Change| {
            self.disk
                .is_left_to_others(notification.set, entry.resource)
        };
        for entry in &notification.entries {
            assert!(
                is_outside(entry) || is_left(entry) || self.is_kept(entry),
                "{entry:?} is lost: {}",
                self.told()
            );
        }
        let Some((from, until)) = notification.stated.filter(|_| !is_hint) else {
            return;
        };
        let interval = Interval::new(from, until).unwrap();
        assert!(
            coverage.missing(interval).is_empty(),
            "{interval:?} is not covered: {}",
            self.told()
        );
    }

    fn is_kept(&self, entry: &Change) -> bool {
        let task = self.disk.tasks.get(&entry.resource);
        let told = task.map(|task| task.told).unwrap_or_default();
        // What was told of a moment that was not over may bring back what a Resource List has buried, until the next one.
        let is_exact = self.source.habits.boundary == Boundary::Exact;
        let is_coming = is_exact && task.is_some_and(|task| task.kind != ChangeKind::Deleted);
        let is_gone = !is_coming && !self.disk.files.contains_key(&entry.resource);
        self.applied(entry.resource).max(told) >= entry.version
            || (is_gone && self.was_to_go(entry))
    }

    /// Whether the resource was deleted by that change or later: then it is no fault that it is not there.
    fn was_to_go(&self, change: &Change) -> bool {
        self.source.changes.iter().rev().any(|later| {
            later.kind == ChangeKind::Deleted
                && later.resource == change.resource
                && later.version >= change.version
        })
    }

    /// How things stand, for the message of a failure.
    fn told(&self) -> String {
        let mut told = format!("at {} ms\n", self.moment);
        for change in &self.source.changes {
            let Change {
                resource,
                kind,
                at,
                version,
                unclaimed,
                ..
            } = change;
            let mark = if *unclaimed { " (unclaimed)" } else { "" };
            let _ = writeln!(told, "  {at} {resource} v{version} {kind:?}{mark}");
        }
        for (set, row) in self.disk.sets.iter().enumerate() {
            let _ = writeln!(told, "  set {set}: {:?}", row.baseline);
            for known in row.coverage.intervals() {
                let _ = writeln!(told, "    known {} - {}", known.from(), known.until());
            }
            for gap in &row.gaps {
                let _ = writeln!(
                    told,
                    "    gap {} - {}",
                    gap.interval.from(),
                    gap.interval.until()
                );
            }
        }
        for (resource, row) in self.disk.resources.iter().enumerate() {
            let (known, file) = (&row.known, self.disk.files.get(&resource));
            let known = known.as_ref().map(|known| {
                (
                    known.kind,
                    known.changed_at.map(|at| at.to_string()),
                    known.deleted,
                )
            });
            let _ = writeln!(
                told,
                "  {resource}: file {file:?}, told v{}, {known:?}",
                row.told
            );
        }
        for (resource, task) in &self.disk.tasks {
            let (at, kind, state) = (
                task.changed_at.map(|at| at.to_string()),
                task.kind,
                task.state,
            );
            let _ = writeln!(
                told,
                "  task {resource}: v{} {kind:?} {at:?} {state:?} by set {}",
                task.told, task.set
            );
        }
        told
    }

    /// When the Source has fallen silent and the network has healed, the mirror is where the Source is.
    pub(crate) fn converged(&self) {
        let differing = self.disk.difference(&self.source);
        assert!(
            differing.is_empty(),
            "{differing:?} differ: {}",
            self.told()
        );
        assert!(
            self.disk.tasks.is_empty(),
            "tasks can't be done: {}",
            self.told()
        );
        assert!(
            self.disk.inbox.is_empty(),
            "notifications wait for ever: {}",
            self.told()
        );
    }
}
