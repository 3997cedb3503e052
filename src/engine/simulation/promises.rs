//! What must hold after every commit of every history.
//!
//! Times of whole seconds leave some things undecided; what is not promised for their sake stands beside each promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::hash::Hash;
use std::sync::Arc;

use resourcesync::{ChangeKind, Interval, SourceTime};
use resyncd_core::Coverage;

use super::documents::Target;
use super::source::{Boundary, Change, Content, EXCLUDED, Notification, ResourceNo, SetNo};
use super::stage::Scene;
use crate::store::Origin;
use crate::store::tests::commit_hook::{ResourceSnapshot, SetSnapshot, Snapshot, TaskSnapshot};

/// What has been seen so far.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// The database after the last commit.
    before: Snapshot,
    /// The last claim of each set, while no new baseline is being made.
    claimed: BTreeMap<SetNo, Option<SourceTime>>,
    /// What did not arrive.
    lost: Vec<(SetNo, Interval)>,
    arriving: Option<Arc<Notification>>,
    /// How many have arrived.
    arrivals: u64,
    /// What is in the inbox; nothing for what can't be read.
    inbox: BTreeMap<i64, Option<Arc<Notification>>>,
    /// Whether one resource is excluded now.
    excludes: bool,
    /// Whether it ever was.
    excluded_once: bool,
    /// The resources that have been unavailable.
    unavailable: BTreeSet<ResourceNo>,
    /// Whether it was before the last start, and no Resource List was read since.
    includes_again: bool,
}

impl Witness {
    /// The daemon begins again. `excludes`: whether it excludes one resource from now on.
    pub(super) fn restarting(&mut self, excludes: bool) {
        self.includes_again |= self.excludes && !excludes;
        self.excludes = excludes;
        self.excluded_once |= excludes;
    }

    /// A notification is being delivered.
    pub(super) fn arriving(&mut self, notification: &Arc<Notification>) {
        self.arriving = Some(Arc::clone(notification));
        self.arrivals += 1;
    }

    /// How many deliveries are in the inbox, and how many have arrived.
    pub(super) fn deliveries(&self) -> (usize, u64) {
        (self.inbox.len(), self.arrivals)
    }

    /// The delivery has been answered.
    pub(super) fn arrived(&mut self) {
        self.arriving = None;
    }

    /// A notification does not arrive.
    pub(super) fn lose(&mut self, notification: &Notification) {
        if let Content::Changes {
            interval: Some((from, until)),
            ..
        } = notification.content
        {
            let interval = Interval::new(from, until);
            self.lost
                .extend(interval.map(|interval| (notification.set, interval)));
        }
    }
}

/// What the database states of a resource, by number.
struct View<'a> {
    database: &'a Snapshot,
    resources: BTreeMap<ResourceNo, &'a ResourceSnapshot>,
    tasks: BTreeMap<ResourceNo, &'a TaskSnapshot>,
    of_sets: BTreeMap<SetNo, BTreeSet<ResourceNo>>,
}

impl<'a> View<'a> {
    fn of(database: &'a Snapshot) -> Self {
        let resources = database.resources.iter();
        let tasks = database.tasks.iter();
        let sets = database.sets.iter();
        Self {
            database,
            resources: resources
                .map(|row| (Target::resource(&row.uri), row))
                .collect(),
            tasks: tasks.map(|row| (Target::resource(&row.uri), row)).collect(),
            of_sets: sets
                .map(|row| {
                    let resources = row.resources.iter().map(|uri| Target::resource(uri));
                    (Target::set(&row.capability_list), resources.collect())
                })
                .collect(),
        }
    }

    /// Whether a resource is gone from a set and stays because it belongs to another.
    fn is_left_to_others(&self, set: SetNo, resource: ResourceNo) -> bool {
        let has = |resources: &BTreeSet<ResourceNo>| resources.contains(&resource);
        !self.of_sets.get(&set).is_some_and(has) && self.of_sets.values().any(has)
    }
}

impl Scene {
    /// Checks all promises after a commit.
    pub(super) fn check(&mut self, database: &Snapshot) {
        if self.broken.is_none()
            && let Err(broken) = self.check_all(database)
        {
            let message = format!("{broken}: {}", self.describe(database));
            self.broken = Some(message);
        }
        let (tasks, inbox) = (database.tasks.len(), database.inbox.len());
        (self.moment, tasks, inbox).hash(&mut self.trace);
        self.witness.before = database.clone();
    }

    fn check_all(&mut self, database: &Snapshot) -> Result<(), String> {
        let view = View::of(database);
        // First, because it counts the notifications that prove nothing.
        self.what_was_acknowledged_is_stored(&view)?;
        let unavailable = view.tasks.iter();
        let unavailable = unavailable.filter(|(_, task)| task.state == "unavailable");
        let unavailable = unavailable.map(|(&resource, _)| resource);
        self.witness.unavailable.extend(unavailable);
        for row in &database.sets {
            let set = Target::set(&row.capability_list);
            self.note_gaps(row);
            every_hole_is_on_record(row)?;
            self.what_is_lost_is_noticed(set, row)?;
            if let Some(claim) = row.synced_until {
                self.what_is_claimed_is_applied(&view, set, claim)?;
            }
            self.no_claim_is_taken_back(database, set, row)?;
        }
        self.what_is_deleted_was_deleted(&view)
    }

    fn set_before(&self, row: &SetSnapshot) -> Option<&SetSnapshot> {
        let mut before = self.witness.before.sets.iter();
        before.find(|before| before.id == row.id)
    }

    fn note_gaps(&mut self, row: &SetSnapshot) {
        let before: Coverage = self
            .set_before(row)
            .into_iter()
            .flat_map(|before| before.gaps.iter().map(|gap| gap.interval))
            .collect();
        let opened = row.gaps.iter().filter(|gap| {
            let missing = before.missing(gap.interval);
            missing == [gap.interval]
        });
        self.requests.gaps += opened.count() as u64;
    }

    /// Once anything later is known, a notification that did not arrive is covered by something else, or recorded as a gap.
    fn what_is_lost_is_noticed(&self, set: SetNo, row: &SetSnapshot) -> Result<(), String> {
        let noticed: Coverage = row.gaps.iter().map(|gap| gap.interval).collect();
        let front = row.coverage.front();
        let lost = self.witness.lost.iter().filter(|lost| lost.0 == set);
        for &(_, interval) in lost.filter(|lost| front >= Some(lost.1.until())) {
            for missing in row.coverage.missing(interval) {
                if !noticed.missing(missing).is_empty() {
                    return Err(format!("nothing has noticed that {interval:?} is lost"));
                }
            }
        }
        Ok(())
    }

    /// Whether the database may state nothing of a resource that it does not want.
    fn is_unwanted(&self, resource: ResourceNo) -> bool {
        resource == EXCLUDED && self.witness.excluded_once
    }

    /// What a set claims to have, the mirror has.
    fn what_is_claimed_is_applied(
        &self,
        view: &View<'_>,
        set: SetNo,
        claim: SourceTime,
    ) -> Result<(), String> {
        let habits = &self.source.habits;
        // Not promised: a change without a time is found out only by a Resource List, which may be an older one.
        if habits.undated {
            return Ok(());
        }
        for resource in self
            .source
            .resources()
            .filter(|&resource| self.source.is_in(resource, set))
        {
            let Some(change) = self.source.last_before(resource, claim) else {
                continue;
            };
            // Not promised: what is gone from a set that shares it with another stays until it is gone from both.
            let asks = habits.sets > 1 && self.source.is_in(resource, 1 - set);
            let may_stay = asks && self.was_to_go(change);
            if may_stay || self.is_unwanted(resource) || view.is_left_to_others(set, resource) {
                continue;
            }
            // Not promised: announced after a newer change that is pending, and of the same time as what is here, it may be
            // the earlier one or the later one.
            let known = view.resources.get(&resource);
            let is_tied = known.is_some_and(|known| known.changed_at == Some(change.at));
            let may_be_tied = habits.newest_first || !self.is_exact();
            if may_be_tied && is_tied {
                continue;
            }
            // Not promised: what the Source has refused or lacked for a week is counted only, also once there is a newer change.
            if self.witness.unavailable.contains(&resource) {
                continue;
            }
            let is_gone = !self.files.contains_key(&resource) && self.was_to_go(change);
            if self.applied(view, resource) < change.version && !is_gone {
                return Err(format!(
                    "set {set} claims to be in sync until {claim}, and {change:?} is not applied"
                ));
            }
        }
        Ok(())
    }

    /// The newest version of a resource that has reached the mirror.
    fn applied(&self, view: &View<'_>, resource: ResourceNo) -> u32 {
        let file = self.files.get(&resource).copied().unwrap_or_default();
        let known = view.resources.get(&resource);
        let known = known.filter(|known| known.is_applied);
        let stated = known.map(|row| {
            self.source
                .version_stated(resource, row.deleted, row.changed_at, &row.hashes)
        });
        file.max(stated.unwrap_or_default())
    }

    fn no_claim_is_taken_back(
        &mut self,
        database: &Snapshot,
        set: SetNo,
        row: &SetSnapshot,
    ) -> Result<(), String> {
        let generation = self.set_before(row).map(|before| before.generation);
        if generation != Some(row.generation) {
            // A Resource List is being read: claims begin anew. Where sets share resources, those of all of them.
            self.witness.claimed.clear();
            self.witness.includes_again = false;
        }
        let is_listing = database.tasks.iter().any(|task| task.origin.is_listing());
        let habits = &self.source.habits;
        // Not promised: where a document lists changes of a moment that is not over, the rest is found out later. A document
        // that does not state where it begins lists changes of any time. A change that is listed late shows that the claim was
        // wrong. And where sets share a resource, what one of them learns of it late holds back the claim of the other. What was not
        // wanted may have changed before what was claimed without it. Where a list states the newest change first, that has replaced what
        // a hub has stated of an earlier one, also a trusted one of a deletion, when the list states the earlier one.
        let is_exempt = !self.is_exact()
            || habits.newest_first
            || self.witness.includes_again
            || self.source.lists_late()
            || !habits.lists_say_from
            || self.requests.hints > 0
            || habits.sets > 1;
        if is_listing || is_exempt {
            return Ok(());
        }
        let claim = row.synced_until;
        let before = self.witness.claimed.insert(set, claim).flatten();
        // Not promised: a change that is announced after a Resource List was read that does not name its resource any more, because
        // it was deleted since, looks like one that is listed late. The Source's answer shows that it is over.
        let mut holding = database.tasks.iter().filter(|task| task.since == claim);
        let is_over = holding.any(|task| self.is_over(task));
        if claim < before && !is_over {
            return Err(format!(
                "synced_until went from {before:?} back to {claim:?}"
            ));
        }
        Ok(())
    }

    /// Whether a task is an update of a notification that the Source has followed by a deletion, and the mirror has no file.
    fn is_over(&self, task: &TaskSnapshot) -> bool {
        let resource = Target::resource(&task.uri);
        let version = self
            .source
            .version_stated(resource, false, task.changed_at, &task.hashes);
        task.origin == Origin::Notification
            && task.kind != ChangeKind::Deleted
            && !self.files.contains_key(&resource)
            && self.source.was_deleted_since(resource, version)
    }

    /// A resource that is deleted in the mirror was deleted at the Source after the version that the mirror had.
    fn what_is_deleted_was_deleted(&self, view: &View<'_>) -> Result<(), String> {
        // Not promised: of a change without a time, nothing shows whether a Resource List is older.
        if self.source.habits.undated {
            return Ok(());
        }
        let before = View::of(&self.witness.before);
        for (&resource, row) in view.resources.iter().filter(|(_, row)| row.deleted) {
            let Some(had) = before.resources.get(&resource) else {
                continue;
            };
            if had.deleted || !had.is_applied {
                continue;
            }
            // Not by its digest: that may be of a later version than the announced one, fetched ahead. Not promised: the order
            // of what happened within one moment.
            let version = had.changed_at.and_then(|at| {
                let before = self.source.last_before(resource, at);
                before.map(|change| change.version)
            });
            let version = version.unwrap_or_default();
            // Not promised: that it stays for the sake of another set whose documents have not named it yet.
            let is_named = before.of_sets.iter().any(|(&set, resources)| {
                self.source.is_in(resource, set) && resources.contains(&resource)
            });
            if !is_named && self.source.has_left_since(resource, version) {
                continue;
            }
            if !self.source.was_deleted_since(resource, version) {
                return Err(format!("{} is deleted without proof", row.uri));
            }
        }
        Ok(())
    }

    /// A notification stays in the inbox until what it announced is applied, a task, or superseded, and its interval is known.
    fn what_was_acknowledged_is_stored(&mut self, view: &View<'_>) -> Result<(), String> {
        let there: BTreeSet<i64> = view.database.inbox.iter().map(|&(id, _)| id).collect();
        let known: BTreeSet<i64> = self.witness.inbox.keys().copied().collect();
        for &new in there.difference(&known) {
            let notification = self.witness.arriving.clone();
            self.witness.inbox.insert(new, notification);
        }
        for &done in known.difference(&there) {
            if let Some(Some(notification)) = self.witness.inbox.remove(&done) {
                self.check_concluded(view, &notification)?;
            }
        }
        Ok(())
    }

    fn check_concluded(
        &mut self,
        view: &View<'_>,
        notification: &Notification,
    ) -> Result<(), String> {
        let Content::Changes { interval, entries } = &notification.content else {
            return Ok(());
        };
        let is_undated = self.source.habits.undated;
        let set = notification.set;
        let row = view
            .database
            .sets
            .iter()
            .find(|row| Target::set(&row.capability_list) == set);
        let Some(row) = row else {
            return Err(format!("set {set} is gone"));
        };
        let had_coverage = self
            .set_before(row)
            .is_some_and(|before| before.coverage.front().is_some());
        for entry in entries {
            // Not promised: what it lists of its very end is not within its interval. Once later documents have covered that,
            // it counts no more.
            let is_outside = interval
                .is_some_and(|(_, until)| until <= entry.at && row.coverage.contains(entry.at));
            if !is_outside
                && !is_undated
                && !view.is_left_to_others(set, entry.resource)
                && !self.is_unwanted(entry.resource)
                && !self.is_stored(view, entry)
            {
                return Err(format!("{entry:?} is lost"));
            }
        }
        let Some((from, until)) = interval.filter(|_| had_coverage) else {
            self.requests.hints += 1;
            return Ok(());
        };
        let interval = Interval::new(from, until).unwrap();
        if !row.coverage.missing(interval).is_empty() {
            return Err(format!("{interval:?} is not covered"));
        }
        Ok(())
    }

    fn is_stored(&self, view: &View<'_>, entry: &Change) -> bool {
        let resource = entry.resource;
        let task = view.tasks.get(&resource);
        let is_deletion = |task: &&TaskSnapshot| task.kind == ChangeKind::Deleted;
        // What only a hub states is a request for what the Source serves, whatever change it is of.
        if task.is_some_and(|task| task.unconfirmed && !is_deletion(task)) {
            return true;
        }
        let pending = task.map(|task| {
            let deleted = is_deletion(task);
            self.source
                .version_stated(resource, deleted, task.changed_at, &task.hashes)
        });
        // Not promised: what was announced of a moment that was not over may restore what a Resource List has deleted, until
        // the next one.
        let is_coming = self.is_exact() && task.is_some_and(|task| !is_deletion(task));
        // Nor that a deletion which only a hub states replaces the request for what the mirror does not have: it is answered first.
        let is_coming = is_coming && self.trusts_hub;
        let is_gone = !is_coming && !self.files.contains_key(&resource);
        self.applied(view, resource)
            .max(pending.unwrap_or_default())
            >= entry.version
            || (is_gone && (entry.kind == ChangeKind::Deleted || self.was_to_go(entry)))
    }

    /// Whether the resource was deleted by that change or later: then it may be missing.
    fn was_to_go(&self, change: &Change) -> bool {
        self.source
            .was_deleted_since(change.resource, change.version)
    }

    /// The resources of which the mirror and the Source differ.
    pub(super) fn differing(&self) -> Vec<ResourceNo> {
        self.source
            .resources()
            .filter(|&resource| !(resource == EXCLUDED && self.witness.excludes))
            .filter(|resource| self.files.get(resource).copied() != self.source.content(*resource))
            .collect()
    }

    /// The state of the Source, the database and the mirror, for the message of a failure.
    pub(super) fn describe(&self, database: &Snapshot) -> String {
        let mut text = format!("at {} ms\n", self.moment);
        for change in &self.source.changes {
            let Change {
                resource,
                kind,
                at,
                version,
                unclaimed,
                sets,
                ..
            } = change;
            let mark = if *unclaimed { " (unclaimed)" } else { "" };
            let _ = writeln!(
                text,
                "  {at} {resource} v{version} {kind:?} in {sets:?}{mark}"
            );
        }
        let shown = |time: Option<SourceTime>| time.map(|time| time.to_string());
        for row in &database.sets {
            let claim = shown(row.synced_until);
            let _ = writeln!(
                text,
                "  {}: {:?}, claims {claim:?}, resources {:?}",
                row.capability_list, row.baseline, row.resources
            );
            for known in row.coverage.intervals() {
                let _ = writeln!(text, "    known {} - {}", known.from(), known.until());
            }
            for gap in &row.gaps {
                let (from, until) = (gap.interval.from(), gap.interval.until());
                let _ = writeln!(text, "    gap {from} - {until}");
            }
        }
        for row in &database.resources {
            let resource = Target::resource(&row.uri);
            let version = row.hashes.first().map(|hash| {
                self.source
                    .version_stated(resource, false, None, std::slice::from_ref(hash))
            });
            let _ = writeln!(
                text,
                "  {resource}: file {:?}, v{version:?} of {:?}, deleted {}, applied {}",
                self.files.get(&resource),
                shown(row.changed_at),
                row.deleted,
                row.is_applied
            );
        }
        for task in &database.tasks {
            let _ = writeln!(
                text,
                "  task {}: {:?} {:?} since {:?} {} by set {:?} of {}",
                task.uri,
                task.kind,
                shown(task.changed_at),
                shown(task.since),
                task.state,
                task.set,
                task.origin.code()
            );
        }
        let _ = writeln!(text, "  inbox {:?}", database.inbox);
        let _ = writeln!(
            text,
            "  faults {:?}, boundary {:?}",
            self.faults,
            self.source.habits.boundary == Boundary::Exact
        );
        text
    }
}

/// What lies below the front is known, or recorded as missing; nothing is both.
fn every_hole_is_on_record(row: &SetSnapshot) -> Result<(), String> {
    let recorded: Coverage = row.gaps.iter().map(|gap| gap.interval).collect();
    for hole in row.coverage.holes() {
        if !recorded.missing(hole).is_empty() {
            return Err(format!("{hole:?} is not on record"));
        }
    }
    for gap in &row.gaps {
        if row.coverage.missing(gap.interval) != [gap.interval] {
            return Err(format!("{gap:?} is no gap"));
        }
    }
    Ok(())
}
