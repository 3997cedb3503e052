//! Stories of one or two sets: what their documents state, what the executor does, and what is left to do then.

use std::collections::BTreeMap;

use resourcesync::{ContentInfo, SourceTime};

use super::*;
use crate::statement::Applied;
use crate::statement::tests::{apply_text, content, time};

mod histories;
mod rows;

/// What the mirror has of a resource, and what became of it.
#[derive(Debug, Default)]
struct Resource {
    statements: Vec<Statement>,
    revision: Revision,
    file: Option<ContentInfo>,
    is_doubted: bool,
    answer: Option<(Answer, Revision)>,
    fetched: Revision,
    is_verified: bool,
    /// The time of what the file is.
    file_at: Option<SourceTime>,
    behind: Option<Option<SourceTime>>,
    is_wanted: bool,
    has_failed: bool,
}

impl Resource {
    fn record(&self) -> Record<'_> {
        Record {
            file: self.file.as_ref().map(|file| RecordedFile {
                length: file.length,
                hashes: &file.hashes,
                is_doubted: self.is_doubted,
            }),
            may_have_file: self.is_doubted,
            is_requested: false,
            at: self.file.as_ref().and(self.file_at),
            is_verified: self.is_verified,
            answer: self.answer,
            fetched: self.fetched,
        }
    }

    /// Whether a list of that time would have to name it, if it still belongs to the set.
    fn is_to_be_named(&self, set: i64, list: Option<SourceTime>) -> bool {
        self.statements.iter().any(|Statement { entry, .. }| {
            let is_newer_claim = entry.voice == Voice::Hub && entry.at >= list;
            entry.set == SetKey(set) && !is_newer_claim
        })
    }

    /// Whether the file is what the Source serves.
    fn is_same(&self, served: &ContentInfo) -> bool {
        !self.is_doubted && self.file.as_ref() == Some(served)
    }

    /// The Source was asked whether it serves the resource, when the statements up to that revision were known, and serves these bytes.
    fn note_served(&mut self, served: &ContentInfo, known: Revision) {
        if self.is_same(served) {
            self.answer = Some((Answer::Served, known));
            self.fetched = known;
        } else {
            self.answer = Some((Answer::Changed, known));
        }
    }

    /// The Source has served these bytes, when the statements up to that revision were known. `verifies`: they are those that were stated.
    fn publish(&mut self, bytes: ContentInfo, known: Revision, verifies: bool) {
        if verifies || !self.is_same(&bytes) {
            self.is_verified = verifies;
        }
        self.file = Some(bytes);
        self.is_doubted = false;
        self.answer = Some((Answer::Served, known));
        self.fetched = known;
        let existing = self.statements.iter().filter(|s| s.exists());
        self.file_at = existing.filter_map(|s| s.entry.at).max();
    }

    fn remove(&mut self) {
        self.file = None;
        self.is_doubted = false;
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Fetch { verifies: bool, answers: bool },
    Ask,
    Remove,
}

/// A task in progress: what is done, and the statements that it is done for.
#[derive(Clone, Debug)]
struct Task {
    name: String,
    act: Act,
    revision: Revision,
}

/// The name of a resource, and the marks of its entry.
fn split_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric());
    text.split_at(end.unwrap_or(text.len()))
}

struct World {
    resources: BTreeMap<String, Resource>,
    sets: BTreeMap<i64, SetFacts>,
}

impl World {
    fn new() -> Self {
        let followed = SetFacts {
            is_followed: true,
            ..SetFacts::default()
        };
        Self {
            resources: BTreeMap::new(),
            sets: (1..=3).map(|set| (set, followed)).collect(),
        }
    }

    fn set(&mut self, set: i64) -> &mut SetFacts {
        self.sets.get_mut(&set).unwrap()
    }

    /// An entry of a set: of that resource, as of [`entry`](crate::statement::tests::entry).
    fn say(&mut self, set: i64, name: &str, text: &str) {
        let resource = self.resources.entry(name.to_owned()).or_default();
        let applied = apply_text(&mut resource.statements, set, text, &mut resource.revision);
        self.settle(name);
        let resource = self.resources.get_mut(name).unwrap();
        if let (Applied::Older(Some(at)), Some(Some(behind))) = (applied, &mut resource.behind)
            && Some(at) > resource.file_at
        {
            *behind = at.min(*behind);
        }
    }

    /// Changes as `created a@10#x`: the kind, the name of the resource, and the rest of the entry.
    fn announce(&mut self, set: i64, changes: &[&str]) {
        for change in changes {
            let (kind, rest) = change.split_once(' ').unwrap();
            let (name, marks) = split_name(rest);
            self.say(set, name, &format!("{kind}{marks}"));
        }
    }

    /// A Resource List of that time with these entries, as `a@5#x`.
    fn list(&mut self, set: i64, at: i64, entries: &[&str]) {
        for entry in entries {
            let (name, marks) = split_name(entry);
            self.say(set, name, &format!("listed{marks}^{at}"));
        }
        let list = time(at);
        let is_listed = |name: &str| entries.iter().any(|entry| split_name(entry).0 == name);
        let resources = self.resources.iter();
        let absent = resources.filter(|(name, r)| r.is_to_be_named(set, list) && !is_listed(name));
        let absent: Vec<String> = absent.map(|(name, _)| name.clone()).collect();
        for name in absent {
            self.say(set, &name, &format!("absent^{at}"));
        }
        self.set(set).unbroken = list;
        self.set(set).list_at = list;
        self.settle_all();
    }

    fn end_set(&mut self, set: i64) {
        self.set(set).is_followed = false;
        self.settle_all();
    }

    /// A Change List of the Source covers every change until then.
    fn covered(&mut self, set: i64, until: i64) {
        self.set(set).read = time(until).map(Interval::before);
        self.settle_all();
    }

    fn decision(&self, name: &str) -> Decision<'_> {
        let resource = &self.resources[name];
        decide(
            &resource.statements,
            |set| self.sets[&set.0],
            &resource.record(),
            false,
        )
    }

    /// Whatever has happened: it is decided again.
    fn settle(&mut self, name: &str) {
        let decision = self.decision(name);
        let is_wanted = decision.desired != Desired::Settled;
        let behind = is_wanted.then_some(decision.behind);
        let resource = self.resources.get_mut(name).unwrap();
        resource.is_wanted = is_wanted;
        resource.behind = match (resource.behind, behind) {
            (Some(since), Some(behind)) if is_wanted => Some(since.min(behind)),
            (since, behind) if is_wanted => since.or(behind),
            _ => None,
        };
        resource.has_failed &= is_wanted;
    }

    fn settle_all(&mut self) {
        let names: Vec<String> = self.resources.keys().cloned().collect();
        names.iter().for_each(|name| self.settle(name));
    }

    fn due(&self) -> Vec<Task> {
        let due = self
            .resources
            .iter()
            .filter(|(_, r)| r.is_wanted && !r.has_failed);
        let tasks = due.filter_map(|(name, resource)| {
            let act = match self.decision(name).desired {
                Desired::Settled => return None,
                Desired::Fetch {
                    stated,
                    verifies,
                    absence,
                } => Act::Fetch {
                    verifies: verifies && stated.entry.content.is_verifiable(),
                    answers: absence == Absence::Answers,
                },
                Desired::Ask { .. } => Act::Ask,
                Desired::Remove { .. } => Act::Remove,
            };
            Some(Task {
                name: name.clone(),
                act,
                revision: resource.revision,
            })
        });
        tasks.collect()
    }

    /// What is due, as what readers of the feed would see of it; of what is asked for that depends on the answer.
    fn names(&self) -> Vec<String> {
        let due = self.due().into_iter().map(|Task { name, act, .. }| {
            let kind = match act {
                Act::Remove => "deleted",
                Act::Ask => "ask",
                Act::Fetch { .. } if self.resources[&name].file.is_some() => "updated",
                Act::Fetch { .. } => "created",
            };
            format!("{kind} {name}")
        });
        let mut names: Vec<String> = due.collect();
        names.sort();
        names
    }

    /// The Source serves what is fetched or asked for; `bytes`: what is another than the mirror has.
    fn served(&mut self, task: &Task, bytes: Option<&str>) {
        let resource = self.resources.get_mut(&task.name).unwrap();
        let served = match bytes {
            Some(bytes) => content(bytes),
            None => resource.file.clone().unwrap(),
        };
        match task.act {
            Act::Fetch { verifies, .. } => resource.publish(served, task.revision, verifies),
            Act::Ask => resource.note_served(&served, task.revision),
            Act::Remove => panic!("it is not asked for: {task:?}"),
        }
        self.settle(&task.name);
    }

    /// The Source has none. What was only asked for is removed in the same step.
    fn absent(&mut self, task: &Task) {
        let resource = self.resources.get_mut(&task.name).unwrap();
        resource.answer = Some((Answer::Absent, task.revision));
        resource.has_failed = matches!(task.act, Act::Fetch { answers: false, .. });
        if task.act == Act::Ask {
            resource.remove();
        }
        self.settle(&task.name);
    }

    fn removed(&mut self, task: &Task) {
        self.resources.get_mut(&task.name).unwrap().remove();
        self.settle(&task.name);
    }

    /// Everything that is due is done, and what follows from that; the Source serves these bytes, or none.
    fn work(&mut self, bytes: &str) {
        for _ in 0..3 {
            for task in self.due() {
                match task.act {
                    Act::Remove => self.removed(&task),
                    _ if bytes.is_empty() => self.absent(&task),
                    Act::Ask | Act::Fetch { .. } => self.served(&task, Some(bytes)),
                }
            }
        }
    }

    /// After a kill, what was to be done may have been done.
    fn crash(&mut self) {
        for resource in self.resources.values_mut() {
            resource.is_doubted |= resource.is_wanted;
        }
        self.settle_all();
    }

    /// The content of the file.
    fn live(&self, name: &str) -> Option<ContentInfo> {
        self.resources.get(name)?.file.clone()
    }

    fn behind(&self, name: &str) -> Option<Option<SourceTime>> {
        self.resources[name].behind
    }

    fn wants(&self, name: &str) -> bool {
        self.resources[name].is_wanted
    }

    fn has_failed(&self, name: &str) -> bool {
        self.resources[name].has_failed
    }
}

fn of_two_sets() -> World {
    let mut world = World::new();
    for set in [1, 2] {
        world.list(set, 10, &["a@5"]);
    }
    world.work("1");
    assert!(world.due().is_empty());
    world
}

#[test]
fn change_that_a_deletion_of_another_set_replaced_is_requested_again() {
    let mut world = of_two_sets();
    world.announce(2, &["updated a@20"]);
    world.announce(1, &["deleted a@21"]);
    assert_eq!(world.behind("a"), Some(time(20)));
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.served(&task, Some("2"));
    assert_eq!(world.behind("a"), Some(time(20)));
    assert_eq!(world.names(), ["updated a"]);
    world.work("2");
    assert!(world.due().is_empty());
    assert_eq!(world.live("a"), Some(content("2")));
}

#[test]
fn change_of_another_set_that_a_list_ends() {
    let mut world = of_two_sets();
    world.announce(2, &["updated a@20"]);
    world.announce(1, &["deleted a@21"]);
    world.list(2, 40, &["a@5"]);
    assert_eq!(world.names(), ["updated a"], "it is not applied");
    world.work("2");
    assert!(world.due().is_empty());
}

#[test]
fn change_of_another_set_ends_a_pending_deletion() {
    let mut world = of_two_sets();
    world.announce(1, &["deleted a@21"]);
    world.announce(2, &["updated a@20"]);
    assert_eq!(world.names(), ["updated a"]);
    world.work("2");
    assert!(world.due().is_empty());
    assert_eq!(world.live("a"), Some(content("2")));
}

#[test]
fn deletion_in_both_sets_removes_the_resource() {
    let mut world = of_two_sets();
    for set in [1, 2] {
        world.announce(set, &["deleted a@20"]);
    }
    assert_eq!(world.names(), ["deleted a"]);
    world.work("");
    assert_eq!(world.live("a"), None);
}

#[test]
fn resource_that_is_the_same_is_not_requested_again() {
    let mut world = of_two_sets();
    world.announce(1, &["deleted a@20"]);
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.served(&task, None);
    assert!(world.due().is_empty());
    world.announce(1, &["deleted a@20"]);
    assert!(world.due().is_empty(), "asked once");
}

#[test]
fn resource_that_moves_to_another_set_stays() {
    let mut world = World::new();
    world.list(1, 10, &["a@5"]);
    world.list(2, 10, &[]);
    world.work("1");
    world.announce(1, &["deleted a@20"]);
    world.announce(2, &["created a@20"]);
    assert_eq!(world.names(), ["updated a"]);
    world.work("1");
    assert!(world.due().is_empty());
    world.announce(2, &["deleted a@30"]);
    assert_eq!(world.names(), ["deleted a"]);
}

fn deleted_by_one_set() -> World {
    let mut world = World::new();
    world.list(1, 10, &["a@5"]);
    world.list(2, 10, &[]);
    world.work("1");
    world.announce(1, &["deleted a@20"]);
    world.work("");
    assert_eq!(world.live("a"), None);
    world
}

#[test]
fn older_change_of_a_set_that_is_behind_undoes_a_deletion_of_another_set() {
    let mut world = deleted_by_one_set();
    world.announce(2, &["created a@15"]);
    assert_eq!(world.names(), ["created a"]);
    world.announce(1, &["deleted a@20"]);
    assert_eq!(world.names(), ["created a"]);
    world.work("2");
    assert_eq!(world.live("a"), Some(content("2")));
    world.announce(1, &["deleted a@20"]);
    assert!(world.due().is_empty());
}

#[test]
fn entry_of_an_older_list_of_another_set_undoes_a_deletion() {
    let mut world = deleted_by_one_set();
    world.list(2, 12, &["a@11"]);
    assert_eq!(world.names(), ["created a"]);
}

/// It was behind when it has stated the creation.
#[test]
fn set_that_catches_up_undoes_a_deletion_of_another_set() {
    let mut world = deleted_by_one_set();
    world.announce(2, &["created a@15"]);
    assert_eq!(world.names(), ["created a"]);
    world.set(2).unbroken = time(30);
    world.settle_all();
    assert_eq!(world.names(), ["created a"], "the Source was not asked");
}

#[test]
fn set_that_is_behind_states_a_deletion_as_well() {
    for time in [18, 20] {
        let mut world = deleted_by_one_set();
        world.announce(2, &["created a@15", &format!("deleted a@{time}")]);
        assert!(world.due().is_empty(), "{time}");
        world.list(2, 30, &[]);
        assert!(world.due().is_empty());
    }
}

#[test]
fn resource_that_is_gone_is_not_requested_for_an_older_change_of_another_set_again() {
    let mut world = deleted_by_one_set();
    world.announce(2, &["created a@15"]);
    let task = world.due().remove(0);
    world.absent(&task);
    world.announce(2, &["created a@15"]);
    assert!(world.due().is_empty() && !world.wants("a"));
    world.list(2, 30, &[]);
    assert!(world.due().is_empty());
}

#[test]
fn file_in_doubt_of_a_resource_that_is_gone_is_removed() {
    let mut world = deleted_by_one_set();
    world.announce(2, &["created a@15"]);
    world.crash();
    let task = world.due().remove(0);
    world.absent(&task);
    assert_eq!(world.names(), ["deleted a"]);
    world.work("");
    assert!(world.due().is_empty());
}

#[test]
fn resource_that_is_gone_is_missed_only_if_its_list_is_newer_than_the_deletion() {
    for (time, failed) in [(12, false), (20, false), (30, true)] {
        let mut world = deleted_by_one_set();
        world.list(2, time, &["a@11"]);
        let task = world.due().remove(0);
        world.absent(&task);
        assert_eq!(world.wants("a"), failed, "{time}");
    }
}

#[test]
fn older_change_of_a_set_that_has_stated_a_deletion_as_well_undoes_nothing() {
    let mut world = deleted_by_one_set();
    for change in ["deleted a@20", "created a@15"] {
        world.announce(2, &[change]);
        assert!(world.due().is_empty());
    }
}

/// The deletion in both sets, and in the second one the creation after it.
#[test]
fn creation_before_the_deletion_of_its_own_set_undoes_no_deletion_of_another_set() {
    let mut world = World::new();
    world.announce(1, &["created a@10", "deleted a@20"]);
    world.announce(2, &["deleted a@20", "created a@10"]);
    assert!(world.due().is_empty());
}

#[test]
fn deletion_by_one_set_does_not_end_what_a_third_one_has_stated() {
    let mut world = deleted_by_one_set();
    world.list(3, 10, &[]);
    world.announce(2, &["created a@15"]);
    world.announce(3, &["created a@16"]);
    world.announce(2, &["deleted a@18"]);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn set_that_is_behind_a_deletion_shares_what_another_set_creates_again() {
    let mut world = deleted_by_one_set();
    world.announce(1, &["created a@25"]);
    world.announce(2, &["created a@15"]);
    world.work("2");
    world.announce(1, &["deleted a@30"]);
    assert_eq!(world.names(), ["ask a"], "it is shared");
}

#[test]
fn older_change_undoes_no_deletion_of_a_set_that_is_not_followed_any_more() {
    let mut world = deleted_by_one_set();
    world.end_set(1);
    world.announce(2, &["created a@15"]);
    // Nobody who is followed says that it is gone, so it is requested.
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn older_change_of_the_set_that_has_deleted_a_resource_undoes_nothing() {
    let mut world = deleted_by_one_set();
    world.announce(2, &["deleted a@20"]);
    world.announce(1, &["created a@15"]);
    assert!(world.due().is_empty());
}

#[test]
fn deletion_that_is_read_again_does_not_end_what_a_newer_list_has_stated() {
    let mut world = World::new();
    world.list(1, 10, &["a@5"]);
    world.work("1");
    world.announce(1, &["deleted a@20"]);
    world.work("");
    world.list(1, 30, &["a@11"]);
    world.announce(1, &["deleted a@20"]);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn older_changes_of_another_set_do_not_end_a_newer_deletion() {
    let mut world = of_two_sets();
    world.list(2, 15, &[]);
    world.announce(1, &["updated a@20"]);
    world.work("2");
    world.list(1, 30, &[]);
    assert_eq!(world.names(), ["deleted a"]);
    world.announce(2, &["updated a@17", "deleted a@18"]);
    assert_eq!(world.names(), ["deleted a"]);
    world.work("");
    assert_eq!(world.live("a"), None);
}

#[test]
fn older_deletion_of_another_set_does_not_end_a_newer_one() {
    let mut world = of_two_sets();
    world.announce(1, &["updated a@20"]);
    world.work("2");
    world.announce(1, &["deleted a@30"]);
    assert_eq!(world.names(), ["ask a"]);
    world.announce(2, &["deleted a@15"]);
    assert_eq!(world.names(), ["deleted a"]);
    world.work("");
    assert_eq!(world.live("a"), None);
}

#[test]
fn resource_leaves_a_set_that_was_read_late() {
    let mut world = World::new();
    world.list(1, 1, &[]);
    world.list(2, 10, &["a@5"]);
    world.work("1");
    world.announce(1, &["updated a@3", "deleted a@4"]);
    assert!(world.due().is_empty());
    world.announce(2, &["deleted a@20"]);
    assert_eq!(world.due()[0].act, Act::Remove);
}

#[test]
fn resource_that_only_a_late_set_has_stays() {
    let mut world = World::new();
    world.list(1, 1, &[]);
    world.list(2, 10, &["a@5"]);
    world.work("1");
    world.announce(1, &["updated a@3"]);
    world.announce(2, &["deleted a@20"]);
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.served(&task, None);
    assert!(world.due().is_empty());
    world.announce(1, &["deleted a@4"]);
    // Nobody says any longer that it exists: it goes at once, and not with the next list.
    assert_eq!(world.due()[0].act, Act::Remove);
}

fn in_progress(change: &str) -> (World, Task) {
    let mut world = World::new();
    world.list(1, 10, &["a#first"]);
    world.work("first");
    world.announce(1, &[change]);
    let task = world.due().remove(0);
    world.list(1, 20, &["a#first"]);
    assert!(world.due().is_empty());
    (world, task)
}

#[test]
fn file_removed_by_a_superseded_task_is_fetched_again() {
    let (mut world, task) = in_progress("deleted a@15");
    world.removed(&task);
    assert_eq!(world.names(), ["created a"]);
    world.work("first");
    assert!(world.due().is_empty());
}

#[test]
fn bytes_published_by_a_superseded_task_are_replaced() {
    let (mut world, task) = in_progress("updated a@15#second");
    world.served(&task, Some("second"));
    assert_eq!(world.names(), ["updated a"]);
    world.work("first");
    assert!(world.due().is_empty());
}

#[test]
fn superseded_task_without_effect_is_not_undone() {
    let (mut world, task) = in_progress("updated a@15#second");
    world.served(&task, Some("first"));
    assert!(world.due().is_empty());
}

#[test]
fn file_published_by_a_superseded_task_is_removed_again() {
    let mut world = World::new();
    world.announce(1, &["created a@10"]);
    world.work("first");
    world.announce(1, &["deleted a@15"]);
    world.work("");
    world.announce(1, &["created a@15"]);
    let task = world.due().remove(0);
    world.announce(1, &["deleted a@15"]);
    assert!(world.due().is_empty());
    world.served(&task, Some("second"));
    assert_eq!(world.names(), ["deleted a"]);
}

#[test]
fn restored_resource_that_the_source_does_not_have_is_a_failure() {
    let (mut world, task) = in_progress("deleted a@15");
    world.removed(&task);
    let task = world.due().remove(0);
    world.absent(&task);
    // The list of 20 states that it exists: it is reported as failed until the next list, and not as deleted.
    assert!(world.has_failed("a"));
    world.list(1, 30, &[]);
    assert!(!world.wants("a"));
}

#[test]
fn latest_change_counts() {
    let mut world = World::new();
    world.announce(1, &["created a@10", "updated a@12", "updated a@11"]);
    assert_eq!(world.resources["a"].statements[0].entry.at, time(12));
    world.announce(1, &["deleted a@13"]);
    assert!(world.due().is_empty(), "the mirror has none");
    world.announce(1, &["created a@13"]);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn resource_created_again_during_its_deletion_is_fetched() {
    let mut world = World::new();
    world.announce(1, &["created a@10"]);
    world.work("1");
    world.announce(1, &["deleted a@11"]);
    let task = world.due().remove(0);
    world.announce(1, &["created a@12"]);
    world.removed(&task);
    assert_eq!(world.names(), ["created a"]);
    world.work("22");
    world.list(1, 20, &[]);
    assert_eq!(world.names(), ["deleted a"]);
}

#[test]
fn resource_joins_another_set_without_a_download() {
    let mut world = World::new();
    world.announce(1, &["created a@10"]);
    world.work("1");
    world.announce(2, &["created a@10"]);
    assert!(world.due().is_empty());
    world.announce(2, &["updated a@11"]);
    world.work("12");
    world.announce(1, &["updated a@11"]);
    assert!(world.due().is_empty());
    world.announce(1, &["deleted a@12"]);
    // Two sets have it, and only one states its deletion: the Source is asked.
    assert_eq!(world.names(), ["ask a"]);
}

#[test]
fn result_of_an_older_task_leaves_the_newer_one() {
    let mut world = World::new();
    world.announce(1, &["created a@10"]);
    let old = world.due().remove(0);
    world.announce(1, &["updated a@11"]);
    world.served(&old, Some("old"));
    assert_eq!(world.names(), ["updated a"]);
}

#[test]
fn absent_is_deleted_unless_newer() {
    let mut world = World::new();
    world.list(1, 10, &["a", "b", "c"]);
    world.work("1");
    world.announce(1, &["updated b@25"]);
    world.work("2");
    world.announce(1, &["created d@15", "created e@25"]);
    world.list(1, 20, &["a"]);
    // Of `d`, which the mirror never had, nothing is left to do.
    assert_eq!(world.names(), ["created e", "deleted c"]);
    world.work("3");
    world.list(1, 30, &["a"]);
    assert_eq!(world.names(), ["deleted b", "deleted e"]);
}

#[test]
fn absent_resource_of_another_set_only_leaves() {
    let mut world = World::new();
    world.list(1, 10, &["a", "b"]);
    world.list(2, 10, &["a"]);
    world.work("12");
    world.list(1, 20, &["b"]);
    assert!(world.due().is_empty());
    world.list(2, 20, &[]);
    assert_eq!(world.names(), ["deleted a"]);
}

#[test]
fn listed_resource_is_not_deleted_by_an_older_change() {
    let mut world = World::new();
    world.list(1, 10, &["a"]);
    world.work("1");
    world.announce(1, &["deleted a@15"]);
    assert_eq!(world.names(), ["deleted a"]);
    world.list(1, 20, &["a"]);
    assert!(world.due().is_empty());
    world.list(1, 30, &[]);
    assert_eq!(world.names(), ["deleted a"]);
    world.list(1, 40, &["a"]);
    assert!(world.due().is_empty());
}

#[test]
fn resource_deleted_after_the_snapshot_stays_deleted() {
    let mut world = World::new();
    world.list(1, 10, &["a"]);
    world.work("1");
    world.announce(1, &["deleted a@25"]);
    world.work("");
    world.list(1, 20, &["a"]);
    assert!(world.due().is_empty());
    world.list(1, 30, &["a"]);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn newer_one_of_two_entries_counts() {
    for entries in [["a@1#old~1", "a@2#new~2"], ["a@2#new~2", "a@1#old~1"]] {
        let mut world = World::new();
        for time in [10, 20, 30] {
            world.list(1, time, &entries);
            if time == 10 {
                assert_eq!(
                    world.resources["a"].statements[0].entry.content,
                    content("new")
                );
                world.work("new");
            }
            assert!(
                world.due().is_empty(),
                "{time} {entries:?} {:?}",
                world.resources["a"]
            );
        }
    }
}

#[test]
fn change_that_a_deletion_had_replaced_is_requested_again_if_a_list_has_the_resource() {
    let mut world = World::new();
    world.list(1, 10, &["a@5#1"]);
    world.work("1");
    world.announce(1, &["updated a@20#2", "deleted a@21"]);
    world.list(1, 30, &["a"]);
    assert_eq!(world.names(), ["updated a"]);
}

#[test]
fn resource_that_was_gone_when_the_list_was_made_is_no_failure() {
    let mut world = World::new();
    world.list(1, 100, &["a"]);
    world.work("1");
    for (time, remains) in [(50, false), (150, true)] {
        let name = format!("gone{time}");
        world.announce(1, &[&format!("created {name}@{time}?")]);
        let task = world.due().remove(0);
        world.absent(&task);
        assert_eq!(world.wants(&name), remains, "{time}");
    }
}

fn with_resource() -> World {
    let mut world = World::new();
    world.list(1, 10, &["a@5"]);
    world.work("1");
    world.set(1).unbroken = time(40);
    world
}

#[test]
fn deletion_before_what_a_hub_has_stated_is_asked_for() {
    for is_served in [false, true] {
        let mut world = with_resource();
        world.announce(1, &["updated a@20!"]);
        world.work("2");
        assert!(world.due().is_empty());
        world.announce(1, &["deleted a@15"]);
        let task = world.due().remove(0);
        if is_served {
            world.served(&task, Some("3"));
            assert!(world.due().is_empty(), "it was created again");
            world.covered(1, 21);
        } else {
            world.absent(&task);
        }
        assert_eq!(world.names(), ["deleted a"], "{is_served}");
    }
}

#[test]
fn update_before_the_time_of_a_hub_is_fetched_and_does_not_lower_the_claim() {
    for at in [15, 20] {
        let mut world = with_resource();
        world.announce(1, &["updated a@20!"]);
        world.work("2");
        world.announce(1, &[&format!("updated a@{at}#3")]);
        let task = world.due().remove(0);
        if at == 15 {
            assert!(matches!(
                &task.act,
                Act::Fetch {
                    verifies: false,
                    ..
                }
            ));
            assert_eq!(world.behind("a"), Some(time(40)), "{at}");
        }
    }
}

/// What a hub states may be ahead of what the Source serves.
#[test]
fn update_that_the_source_confirms_is_fetched_again_unless_the_mirror_is_proven_to_have_it() {
    for (confirmed, is_fetched) in [("updated a@20", true), ("updated a@20#2", false)] {
        let mut world = with_resource();
        world.announce(1, &["updated a@20!"]);
        world.work("2");
        world.announce(1, &[confirmed]);
        assert_eq!(!world.due().is_empty(), is_fetched, "{confirmed}");
    }
}

#[test]
fn made_up_resource_is_forgotten() {
    let mut world = with_resource();
    world.announce(1, &["created b@20!"]);
    let task = world.due().remove(0);
    world.absent(&task);
    assert!(!world.wants("b"));
}

#[test]
fn deletion_that_only_a_hub_states_is_asked_for() {
    let mut world = with_resource();
    world.announce(1, &["deleted a@20!"]);
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.served(&task, None);
    assert!(world.due().is_empty() && world.live("a").is_some());
    world.announce(1, &["deleted a@20!"]);
    assert!(world.due().is_empty(), "asked once");
    world.announce(1, &["deleted a@21!"]);
    let task = world.due().remove(0);
    world.absent(&task);
    assert!(world.due().is_empty() && world.live("a").is_none());
    world.list(1, 30, &["a@5"]);
    // The list of the Source names it: it is asked for.
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn source_confirms_what_a_hub_has_stated() {
    let mut world = World::new();
    world.announce(1, &["created a@10#one!"]);
    assert!(matches!(
        &world.due()[0].act,
        Act::Fetch { verifies: true, .. }
    ));
    world.announce(1, &["created a@10#one"]);
    assert!(matches!(
        &world.due()[0].act,
        Act::Fetch { verifies: true, .. }
    ));
    world.announce(1, &["created a@10#one!"]);
    assert!(matches!(
        &world.due()[0].act,
        Act::Fetch { verifies: true, .. }
    ));
}

#[test]
fn forged_digest_does_not_hide_a_change() {
    let mut world = with_resource();
    world.announce(1, &["updated a@20#1!"]); // the digest of what the mirror has
    assert_eq!(
        world.names(),
        ["updated a"],
        "the Source is asked all the same"
    );
}

#[test]
fn deletion_that_the_change_list_does_not_have_is_undone() {
    let mut world = with_resource();
    world.announce(1, &["deleted a@20!"]);
    let task = world.due().remove(0);
    world.absent(&task); // not available for a moment
    assert_eq!(world.live("a"), None);
    world.covered(1, 30);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn deletion_before_an_update_that_the_hub_makes_up_is_applied() {
    let mut world = with_resource();
    world.announce(1, &["updated a@20!"]);
    let task = world.due().remove(0);
    world.absent(&task);
    world.announce(1, &["deleted a@15"]);
    world.covered(1, 30);
    assert_eq!(world.names(), ["deleted a"]);
}

#[test]
fn claim_is_held_back_to_the_oldest_change_that_is_not_applied() {
    let mut world = World::new();
    world.list(1, 10, &[]);
    world.announce(1, &["updated a@31", "updated a@33"]);
    assert_eq!(world.behind("a"), Some(time(31)));
    world.work("3");
    assert_eq!(world.behind("a"), None);
    world.announce(1, &["updated a@-1"]);
}

#[test]
fn older_change_that_is_announced_late_lowers_the_claim() {
    let mut world = World::new();
    world.list(1, 10, &[]);
    world.announce(1, &["updated b@33"]);
    world.work("3");
    world.announce(1, &["updated b@38", "updated b@36"]);
    assert_eq!(world.behind("b"), Some(time(36)));
    world.announce(1, &["updated b@30"]);
    assert_eq!(world.behind("b"), Some(time(36)), "older than what is here");
}

/// What the Source serves may be a version that no document has stated yet: the digest that is stated does not count.
#[test]
fn what_is_served_in_place_of_what_was_deleted_is_fetched_as_it_is() {
    let mut world = World::new();
    for set in [1, 2] {
        world.list(set, 10, &["a@5#1"]);
    }
    world.work("1");
    world.announce(1, &["deleted a@20"]);
    let task = world.due().remove(0);
    world.served(&task, Some("2"));
    let task = world.due().remove(0);
    let as_served = Act::Fetch {
        verifies: false,
        answers: false,
    };
    assert_eq!(task.act, as_served);
    world.served(&task, Some("2"));
    assert!(world.due().is_empty());
    world.announce(2, &["updated a@21#2"]);
    assert!(world.due().is_empty(), "it is here");
    world.announce(2, &["updated a@22#3"]);
    let as_stated = Act::Fetch {
        verifies: true,
        answers: false,
    };
    assert_eq!(world.due()[0].act, as_stated);
}

#[test]
fn file_in_doubt_is_removed_if_the_source_does_not_serve_what_was_deleted() {
    let mut world = of_two_sets();
    world.announce(1, &["deleted a@20"]);
    world.crash();
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.absent(&task);
    assert!(world.due().is_empty() && world.live("a").is_none());
}

#[test]
fn file_in_doubt_is_fetched_again_if_the_source_serves_what_was_deleted() {
    let mut world = of_two_sets();
    world.announce(1, &["deleted a@20"]);
    world.crash();
    let task = world.due().remove(0);
    assert_eq!(task.act, Act::Ask);
    world.served(&task, None);
    assert_eq!(world.names(), ["updated a"]);
    world.work("1");
    assert!(world.due().is_empty());
}

#[test]
fn rejected_deletion_contradicts_no_other_set() {
    let mut world = World::new();
    world.list(1, 10, &["a@5#1"]);
    world.work("1");
    world.announce(1, &["deleted a@20"]);
    world.resources.get_mut("a").unwrap().statements[0].is_rejected = true;
    world.settle("a");
    assert!(world.due().is_empty());
    world.list(2, 15, &["a@5#1"]);
    assert!(world.due().is_empty(), "it is here");
    world.announce(2, &["updated a@18"]);
    assert_eq!(world.names(), ["updated a"], "the Source is not asked");
    world.announce(1, &["deleted a@21"]);
    assert_eq!(world.names(), ["ask a"], "it is another deletion");
}

fn linked() -> World {
    let mut world = World::new();
    world.list(1, 10, &[]);
    world.announce(1, &["created a@12#1&"]);
    world.work("1");
    assert!(world.due().is_empty() && world.live("a").is_some());
    world
}

#[test]
fn deletion_by_its_own_set_voids_a_link() {
    let mut world = linked();
    world.announce(1, &["deleted a@11"]);
    assert!(world.due().is_empty(), "the link is newer");
    world.announce(1, &["deleted a@12"]);
    assert_eq!(world.names(), ["deleted a"]);
    world.work("");
    world.announce(1, &["created a@12&"]);
    assert!(world.due().is_empty());
    world.announce(1, &["created a@15&"]);
    assert_eq!(world.names(), ["created a"]);
}

#[test]
fn deletion_by_another_set_voids_no_link() {
    let mut world = linked();
    world.announce(2, &["created a@11#1", "deleted a@12"]);
    assert_eq!(world.names(), ["ask a"]);
    world.work("1");
    assert!(world.due().is_empty() && world.live("a").is_some());
}

#[test]
fn resource_is_gone_with_the_last_link_to_it() {
    for others in [None, Some("created a@11#1&"), Some("updated a@11#1")] {
        let mut world = linked();
        if let Some(other) = others {
            world.announce(2, &[other]);
            world.work("1");
        }
        world.announce(1, &["deleted a&"]);
        if others.is_some() {
            assert!(world.due().is_empty(), "{others:?}");
            continue;
        }
        assert_eq!(world.names(), ["deleted a"]);
        assert_eq!(world.behind("a"), Some(time(10)), "as claimed");
        world.work("");
        world.announce(1, &["created a@12&"]);
        assert_eq!(world.names(), ["created a"], "it is linked to again");
    }
}
