//! Random steps in random order: the totals are those of the stored resources and tasks, the feed lists all of them, and no task that is
//! in progress when the last change is announced replaces its result.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::store::Adoption;

/// Names and contents are few, so that steps interact.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CONTENTS: [&str; 3] = ["x", "yy", "zzz"];

#[derive(Clone, Debug)]
enum Step {
    /// A notification of a set.
    Announce(usize, Vec<(usize, ChangeKind, usize)>),
    /// A Resource List of a set names these.
    List(usize, BTreeMap<usize, usize>),
    /// The executor reads the due tasks.
    Start,
    /// The tasks in progress end.
    End(How),
    Approve,
    Retry,
    Repair(usize, ChangeKind, usize),
    Adopt(usize, usize),
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Kept,
    Again,
    GivenUp,
}

/// The state of the Source, the mirror and the executor.
struct Mix {
    world: World,
    /// One or two.
    sets: Vec<SetId>,
    /// The content that the Source announced last, by URI.
    source: HashMap<ResourceUri, &'static str>,
    in_progress: HashMap<ResourceId, Task>,
    clock: i64,
}

impl Mix {
    async fn new(sets: usize) -> Self {
        let world = World::new().await;
        let mut sets: Vec<SetId> = vec![world.set; sets];
        if let Some(other) = sets.get_mut(1) {
            *other = begin(&world.store, "other.xml").await;
        }
        Self {
            world,
            sets,
            source: HashMap::new(),
            in_progress: HashMap::new(),
            clock: 10,
        }
    }

    fn set(&self, number: usize) -> SetId {
        self.sets[number % self.sets.len()]
    }

    fn note(&mut self, step: &Step) {
        let announced: Vec<(usize, usize)> = match step {
            Step::Announce(_, changes) => changes.iter().map(|it| (it.0, it.2)).collect(),
            Step::List(_, named) => named.iter().map(|(&name, &it)| (name, it)).collect(),
            Step::Repair(name, _, content) | Step::Adopt(name, content) => vec![(*name, *content)],
            _ => return,
        };
        let announced = announced.into_iter();
        self.source
            .extend(announced.map(|(name, content)| (uri(NAMES[name]), CONTENTS[content])));
    }

    async fn take(mut self, step: Step) -> Self {
        self.clock += 1;
        let now = self.clock;
        self.note(&step);
        match step {
            Step::Announce(set, changes) => {
                let changes = changes.into_iter().map(|(name, kind, content)| {
                    let announced = change(NAMES[name], kind, now);
                    match kind {
                        ChangeKind::Deleted => announced,
                        _ => with_content(announced, CONTENTS[content]),
                    }
                });
                self.world
                    .announce_in(self.set(set), changes.collect())
                    .await;
            }
            Step::List(set, named) => {
                let entry = |(name, content): (usize, usize)| {
                    with_content(created(NAMES[name], -1), CONTENTS[content])
                };
                let entries = named.into_iter().map(entry).collect();
                self.world.list(self.set(set), now, entries).await;
            }
            Step::Start => {
                let in_progress = self.in_progress.keys().copied().collect();
                let due = self.world.due_without(in_progress).await;
                self.in_progress
                    .extend(due.into_iter().map(|task| (task.resource, task)));
            }
            Step::End(how) => {
                let tasks = std::mem::take(&mut self.in_progress).into_values();
                let source = &self.source;
                let results = tasks.map(|task| result(task, how, source)).collect();
                self.world.complete(results).await;
            }
            Step::Approve => {
                self.world.store.approve_deletions(SOURCE).await.unwrap();
            }
            Step::Retry => {
                for &set in &self.sets {
                    let (store, now) = (&self.world.store, self.world.now);
                    store.retry_failed(set, SOURCE, now, None).await.unwrap();
                }
            }
            Step::Repair(name, kind, content) => {
                let announced = with_content(change(NAMES[name], kind, now), CONTENTS[content]);
                let changes = vec![(Some(self.world.set), announced)];
                let (store, now) = (&self.world.store, self.world.now);
                store.repair(SOURCE, now, changes).await.unwrap();
            }
            Step::Adopt(name, content) => {
                let change = with_content(created(NAMES[name], now), CONTENTS[content]);
                let adoption = Adoption {
                    path: plain_path(&change.uri).unwrap().to_string(),
                    length: CONTENTS[content].len() as u64,
                    hashes: sha256(CONTENTS[content]),
                    set: Some(self.world.set),
                    change,
                };
                let (store, now) = (&self.world.store, self.world.now);
                store.adopt(SOURCE, now, vec![adoption]).await.unwrap();
            }
            Step::Restart => self.in_progress.clear(),
        }
        self
    }

    /// Executes all tasks.
    async fn work_off(mut self) -> Self {
        for _ in 0..9 {
            for step in [Step::End(How::Done), Step::Retry, Step::Start] {
                self = self.take(step).await;
            }
            if self.in_progress.is_empty() {
                return self;
            }
        }
        panic!("{:?} do not end", self.in_progress);
    }

    /// Compares the stored totals with the resources.
    async fn check_totals(&self) {
        for &set in &self.sets {
            let counted = self.world.store.read(move |sql| {
                Ok(sql.query_row(
                    "SELECT COUNT(*), CAST(COALESCE(SUM(length), 0) AS BIGINT) FROM member JOIN resource ON resource.id = resource_id
                     WHERE member.set_id = ?1 AND applied_at IS NOT NULL AND deleted = 0",
                    [set.0],
                    |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
                )?)
            });
            let stored = self.world.store.read(move |sql| {
                let totals = "SELECT resources, bytes FROM source_set WHERE id = ?1";
                Ok(sql.query_row(totals, [set.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
            });
            assert_eq!(stored.await.unwrap(), counted.await.unwrap(), "{set:?}");
        }
    }

    /// The live resources of the database: URIs and lengths.
    async fn has(&self) -> BTreeMap<String, u64> {
        let mut has = BTreeMap::new();
        for name in NAMES {
            if let Some(view) = self.world.store.resource(&uri(name)).await.unwrap()
                && !view.deleted
            {
                has.insert(uri(name).to_string(), view.length.unwrap());
            }
        }
        has
    }

    /// The same according to the feed.
    async fn fed(&self) -> BTreeMap<String, u64> {
        let mut live = BTreeMap::new();
        for line in self.world.store.feed(0, 1000).await.unwrap() {
            match line.change.as_str() {
                "deleted" => assert!(live.remove(&line.uri).is_some(), "{line:?}"),
                _ => drop(live.insert(line.uri, line.length.unwrap())),
            }
        }
        live
    }
}

fn result(task: Task, how: How, source: &HashMap<ResourceUri, &'static str>) -> TaskResult {
    match (how, task.kind) {
        (How::Again, _) => failed(task, Some(DateTime::UNIX_EPOCH)),
        (How::GivenUp, _) => failed(task, None),
        (_, ChangeKind::Deleted) => TaskResult::Removed {
            file_stays: matches!(how, How::Kept),
            task,
        },
        // The content has the announced digest: it was verified.
        _ => {
            let is_announced = |content: &&str| sha256(content) == task.content.hashes;
            let announced = CONTENTS.into_iter().find(is_announced);
            let content = announced.unwrap_or_else(|| source[&task.uri]);
            published(task, content)
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let content = 0..CONTENTS.len();
    let kind = || {
        prop_oneof![
            Just(ChangeKind::Created),
            Just(ChangeKind::Updated),
            Just(ChangeKind::Deleted)
        ]
    };
    let change = (name.clone(), kind(), content.clone());
    let named = prop::collection::btree_map(name.clone(), content.clone(), 0..=NAMES.len());
    let how = prop_oneof![
        4 => Just(How::Done),
        1 => Just(How::Kept),
        1 => Just(How::Again),
        1 => Just(How::GivenUp)
    ];
    prop_oneof![
        4 => (0..2_usize, prop::collection::vec(change, 1..4)).prop_map(|(set, changes)| Step::Announce(set, changes)),
        3 => (0..2_usize, named).prop_map(|(set, named)| Step::List(set, named)),
        5 => Just(Step::Start),
        5 => how.prop_map(Step::End),
        1 => Just(Step::Approve),
        1 => Just(Step::Retry),
        1 => (name.clone(), kind(), content.clone()).prop_map(|(name, kind, content)| Step::Repair(name, kind, content)),
        1 => (name, content).prop_map(|(name, content)| Step::Adopt(name, content)),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn totals_and_feed_agree_with_the_mirror_after_any_steps(
        sets in 1..=2_usize,
        steps in prop::collection::vec(step(), 1..40),
        last in prop::collection::btree_map(0..NAMES.len(), 0..CONTENTS.len(), 0..=NAMES.len())
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut mix = Mix::new(sets).await;
            for step in steps {
                mix = mix.take(step).await;
                mix.check_totals().await;
                assert_eq!(mix.fed().await, mix.has().await);
            }
            // The last statement, while tasks are still in progress. A pending task without a time remains after a list: a
            // second list is needed and, where two sets announce one resource, one of each.
            for _ in 0..=sets {
                for set in 0..sets {
                    mix = mix.take(Step::List(set, last.clone())).await;
                }
                mix = mix.work_off().await;
            }
            let last = last.iter().map(|(&name, &content)| {
                (uri(NAMES[name]).to_string(), CONTENTS[content].len() as u64)
            });
            assert_eq!(mix.has().await, last.collect::<BTreeMap<_, _>>());
            assert_eq!(mix.fed().await, mix.has().await);
            mix.check_totals().await;
            for &set in &mix.sets {
                let statistics = mix.world.store.set_statistics(set).await.unwrap();
                assert_eq!((statistics.pending, statistics.failed, statistics.held_deletions), (0, 0, 0));
                assert!(statistics.baseline_done);
            }
        });
    }
}
