//! Whatever happens, in whatever order: the sums are the sums of what there is, the feed tells all of it, and nothing that is
//! under way when the last word comes outlasts it.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::store::Adoption;

/// Names and contents are few, so that what happens meets.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CONTENTS: [&str; 3] = ["x", "yy", "zzz"];

#[derive(Clone, Debug)]
enum Step {
    /// A notification of a set.
    Tell(usize, Vec<(usize, ChangeKind, usize)>),
    /// A Resource List of a set names these.
    List(usize, BTreeMap<usize, usize>),
    /// The applier takes what is due.
    Take,
    /// What was taken comes to its end.
    End(How),
    Approve,
    Retry,
    Mend(usize, ChangeKind, usize),
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

/// What the Source, the mirror and the applier have.
struct Mix {
    world: World,
    /// One or two.
    sets: Vec<SetId>,
    /// By the URI, what the Source told last.
    source: HashMap<ResourceUri, &'static str>,
    taken: HashMap<ResourceId, Task>,
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
            taken: HashMap::new(),
            clock: 10,
        }
    }

    fn set(&self, number: usize) -> SetId {
        self.sets[number % self.sets.len()]
    }

    fn note(&mut self, step: &Step) {
        let told: Vec<(usize, usize)> = match step {
            Step::Tell(_, changes) => changes.iter().map(|it| (it.0, it.2)).collect(),
            Step::List(_, named) => named.iter().map(|(&name, &it)| (name, it)).collect(),
            Step::Mend(name, _, content) | Step::Adopt(name, content) => vec![(*name, *content)],
            _ => return,
        };
        let told = told.into_iter();
        self.source
            .extend(told.map(|(name, content)| (uri(NAMES[name]), CONTENTS[content])));
    }

    async fn take(mut self, step: Step) -> Self {
        self.clock += 1;
        let now = self.clock;
        self.note(&step);
        match step {
            Step::Tell(set, changes) => {
                let changes = changes.into_iter().map(|(name, kind, content)| {
                    let told = change(NAMES[name], kind, now);
                    match kind {
                        ChangeKind::Deleted => told,
                        _ => with_content(told, CONTENTS[content]),
                    }
                });
                self.world.tell_set(self.set(set), changes.collect()).await;
            }
            Step::List(set, named) => {
                let entry = |(name, content): (usize, usize)| {
                    with_content(created(NAMES[name], -1), CONTENTS[content])
                };
                let entries = named.into_iter().map(entry).collect();
                self.world.list(self.set(set), now, entries).await;
            }
            Step::Take => {
                let under_way = self.taken.keys().copied().collect();
                let due = self.world.due_without(under_way).await;
                self.taken
                    .extend(due.into_iter().map(|task| (task.resource, task)));
            }
            Step::End(how) => {
                let taken = std::mem::take(&mut self.taken).into_values();
                let source = &self.source;
                let conclusions = taken.map(|task| conclusion(task, how, source)).collect();
                self.world.complete(conclusions).await;
            }
            Step::Approve => {
                self.world.store.approve_deletions(SOURCE).await.unwrap();
            }
            Step::Retry => {
                for &set in &self.sets {
                    let (store, now) = (&self.world.store, self.world.now);
                    store.retry_failed(set, SOURCE, now).await.unwrap();
                }
            }
            Step::Mend(name, kind, content) => {
                let told = with_content(change(NAMES[name], kind, now), CONTENTS[content]);
                let changes = vec![(Some(self.world.set), told)];
                let (store, now) = (&self.world.store, self.world.now);
                store.repair(SOURCE, now, changes).await.unwrap();
            }
            Step::Adopt(name, content) => {
                let change = with_content(created(NAMES[name], now), CONTENTS[content]);
                let adoption = Adoption {
                    path: (change.paths)(&change.uri).plain.unwrap(),
                    length: CONTENTS[content].len() as u64,
                    hashes: sha256(CONTENTS[content]),
                    set: Some(self.world.set),
                    change,
                };
                let (store, now) = (&self.world.store, self.world.now);
                store.adopt(SOURCE, now, vec![adoption]).await.unwrap();
            }
            Step::Restart => self.taken.clear(),
        }
        self
    }

    /// Carries out what there is to be done.
    async fn work_off(mut self) -> Self {
        for _ in 0..9 {
            for step in [Step::End(How::Done), Step::Retry, Step::Take] {
                self = self.take(step).await;
            }
            if self.taken.is_empty() {
                return self;
            }
        }
        panic!("{:?} come to no end", self.taken);
    }

    /// The sums, as they are kept and as they should be.
    async fn check_sums(&self) {
        for &set in &self.sets {
            let counted = self.world.store.read(move |sql| {
                Ok(sql.query_row(
                    "SELECT COUNT(*), COALESCE(SUM(length), 0) FROM member JOIN resource ON resource.id = resource_id
                     WHERE member.set_id = ?1 AND applied_at IS NOT NULL AND deleted = 0",
                    [set.0],
                    |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
                )?)
            });
            let kept = self.world.store.read(move |sql| {
                let sums = "SELECT resources, bytes FROM source_set WHERE id = ?1";
                Ok(sql.query_row(sums, [set.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
            });
            assert_eq!(kept.await.unwrap(), counted.await.unwrap(), "{set:?}");
        }
    }

    /// What the mirror has, as the database says: names and contents.
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

    /// The same, as the feed tells.
    async fn told(&self) -> BTreeMap<String, u64> {
        let mut told = BTreeMap::new();
        for line in self.world.store.feed(0, 1000).await.unwrap() {
            match line.change.as_str() {
                "deleted" => assert!(told.remove(&line.uri).is_some(), "{line:?}"),
                _ => drop(told.insert(line.uri, line.length.unwrap())),
            }
        }
        told
    }
}

fn conclusion(task: Task, how: How, source: &HashMap<ResourceUri, &'static str>) -> TaskResult {
    match (how, task.kind) {
        (How::Again, _) => failed(task, Some(DateTime::UNIX_EPOCH)),
        (How::GivenUp, _) => failed(task, None),
        (_, ChangeKind::Deleted) => TaskResult::Removed {
            kept: matches!(how, How::Kept),
            task,
        },
        // What was told is what came: the digests were checked.
        _ => {
            let is_told = |content: &&str| sha256(content) == task.hashes;
            let told = CONTENTS.into_iter().find(is_told);
            let content = told.unwrap_or_else(|| source[&task.uri]);
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
        4 => (0..2_usize, prop::collection::vec(change, 1..4)).prop_map(|(set, changes)| Step::Tell(set, changes)),
        3 => (0..2_usize, named).prop_map(|(set, named)| Step::List(set, named)),
        5 => Just(Step::Take),
        5 => how.prop_map(Step::End),
        1 => Just(Step::Approve),
        1 => Just(Step::Retry),
        1 => (name.clone(), kind(), content.clone()).prop_map(|(name, kind, content)| Step::Mend(name, kind, content)),
        1 => (name, content).prop_map(|(name, content)| Step::Adopt(name, content)),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_sums_and_feed_tell_what_there_is(
        sets in 1..=2_usize,
        steps in prop::collection::vec(step(), 1..40),
        last in prop::collection::btree_map(0..NAMES.len(), 0..CONTENTS.len(), 0..=NAMES.len())
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut mix = Mix::new(sets).await;
            for step in steps {
                mix = mix.take(step).await;
                mix.check_sums().await;
                assert_eq!(mix.told().await, mix.has().await);
            }
            // The last word, while what was taken is still under way. What is pending and nothing dates outlasts a list: it takes
            // another word, and where two sets tell of one resource, another of each.
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
            assert_eq!(mix.told().await, mix.has().await);
            mix.check_sums().await;
            for &set in &mix.sets {
                let numbers = mix.world.store.set_statistics(set).await.unwrap();
                assert_eq!((numbers.pending, numbers.failed, numbers.held_deletions), (0, 0, 0));
                assert!(numbers.baseline_done);
            }
        });
    }
}
