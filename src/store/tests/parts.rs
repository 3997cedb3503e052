//! A Resource List in parts, of which unchanged ones are skipped: in the end the mirror has what the parts name, whatever moved
//! between them, was announced meanwhile, or was interrupted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use resyncd_core::Validators;
use url::Url;

use super::*;

const RESOURCES: usize = 6;
const PARTS: usize = 3;
const FILTER: &str = "all";

#[derive(Clone, Debug)]
enum Step {
    /// The part names these now; `None`: the index does not name it any more.
    Publish(usize, Option<BTreeSet<usize>>),
    /// A notification announces a deletion, or a creation.
    Announce(usize, bool),
    /// The due tasks are completed.
    Work,
    /// The list is read; the reading is interrupted after that many writes.
    Read(Option<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = || prop::collection::btree_set(0..RESOURCES, 0..4);
    let step = prop_oneof![
        4 => (0..PARTS, names()).prop_map(|(part, names)| Step::Publish(part, Some(names))),
        1 => (0..PARTS).prop_map(|part| Step::Publish(part, None)),
        2 => (0..RESOURCES, any::<bool>()).prop_map(|(resource, deleted)| Step::Announce(resource, deleted)),
        1 => Just(Step::Work),
        3 => Just(Step::Read(None)),
        2 => (0..12_usize).prop_map(|writes| Step::Read(Some(writes))),
    ];
    prop::collection::vec(step, 1..14)
}

/// What the Source serves: the version of each part, and what it names.
type Parts = BTreeMap<usize, (u8, BTreeSet<usize>)>;

fn part_uri(part: usize) -> Url {
    Url::parse(&format!("https://example.org/part-{part}.xml")).unwrap()
}

/// The end of a part that nothing dates.
fn part_end(world: &World) -> PartEnd {
    PartEnd {
        filter: Some(FILTER.to_owned()),
        evidence: PartEvidence {
            announced: None,
            asked_at: world.now,
        },
        bad_entries: 0,
        page: PageEnd::default(),
        document: None,
    }
}

fn name(resource: usize) -> String {
    format!("r{resource}")
}

/// Reads the list as the engine does; returns whether it was read completely.
async fn read(world: &World, parts: &Parts, time: i64, trusts: bool, writes: &mut usize) -> bool {
    let (store, set) = (&world.store, world.set);
    let mut goes_on = || {
        let left = *writes;
        *writes = left.saturating_sub(1);
        left > 0
    };
    let index = Url::parse("https://example.org/index.xml").unwrap();
    store
        .begin_parts(set, &index, trusts.then_some(FILTER))
        .await
        .unwrap();
    store.begin_list(set).await.unwrap();
    let list = world.reading(set, time);
    for (&part, (version, names)) in parts {
        if !goes_on() {
            return false;
        }
        let uri = part_uri(part);
        let known = store.part(set, &uri).await.unwrap();
        let document = store.document(set, &uri).await.unwrap();
        let is_same = document.is_some_and(|document| document.digest[0] == *version);
        if let Some(known) = known.filter(|known| known.known.is_complete && is_same) {
            let unchanged = UnchangedPart {
                id: known.id,
                evidence: None,
            };
            let marking = store.mark_parts_unchanged(vec![unchanged], &list.named);
            marking.await.unwrap();
            continue;
        }
        let end = PartEnd {
            document: Some(DocumentRecord {
                uri: uri.to_string(),
                validators: Validators::default(),
                digest: [*version; 32],
            }),
            ..part_end(world)
        };
        let mut step = PartStep {
            uri,
            begins: true,
            end: None,
            named: NamedSoFar::default(),
        };
        let named = names.iter().map(|&resource| Some(resource));
        for resource in named.chain([None]) {
            if !goes_on() {
                return false;
            }
            let entries = resource.map(|resource| created(&name(resource), -1));
            step.end = resource.is_none().then(|| end.clone());
            let listed = store.ingest_part(&list, world.now, Vec::from_iter(entries), step.clone());
            listed.done().await.unwrap();
            step.begins = false;
        }
    }
    let mut search = AbsentSearch::new(true, None);
    while store
        .delete_absent(&list, world.now, &mut search, |_| true)
        .await
        .unwrap()
        .is_some()
    {}
    store.delete_unnamed_parts(set).await.unwrap();
    let end = DocumentEnd {
        progress: Some((coverage(time), Vec::new())),
        listed: Some(at(time)),
        ..end()
    };
    let batch = ChangeBatch {
        origin: Origin::ResourceList,
        begins: false,
        ..world.batch(set, Vec::new(), Some(end))
    };
    store.ingest(batch).await.unwrap();
    true
}

async fn live(world: &World) -> BTreeSet<usize> {
    let mut live = BTreeSet::new();
    for resource in 0..RESOURCES {
        let view = world.store.resource(&uri(&name(resource))).await.unwrap();
        if view.is_some_and(|view| !view.deleted) {
            live.insert(resource);
        }
    }
    live
}

async fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let world = World::new().await;
    let mut parts = Parts::new();
    let (mut version, mut time) = (0, 0);
    // After any steps, a last reading is complete.
    for step in steps.into_iter().chain([Step::Read(None)]) {
        time += 10;
        match step {
            Step::Publish(part, names) => {
                version += 1;
                match names {
                    Some(names) if parts.get(&part).is_none_or(|(_, before)| *before != names) => {
                        parts.insert(part, (version, names));
                    }
                    Some(_) => {}
                    None => drop(parts.remove(&part)),
                }
            }
            Step::Announce(resource, true) => {
                world.announce(vec![deleted(&name(resource), time)]).await;
            }
            Step::Announce(resource, false) => {
                world.announce(vec![created(&name(resource), time)]).await;
            }
            Step::Work => world.work("1").await,
            Step::Read(writes) => {
                let mut writes = writes.unwrap_or(usize::MAX);
                if !read(&world, &parts, time, true, &mut writes).await {
                    continue;
                }
                world.work("1").await;
                let listed = parts
                    .values()
                    .flat_map(|(_, names)| names)
                    .copied()
                    .collect();
                prop_assert_eq!(live(&world).await, listed);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn mirror_has_what_the_parts_name(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(steps))?;
    }
}

/// A part was read that does not name a resource any more, and the reading was interrupted: the resource, announced again, does
/// not belong to that part.
#[tokio::test]
async fn unchanged_part_does_not_name_a_resource_that_it_did_not_name() {
    let only = |resource| Some(BTreeSet::from([resource]));
    let steps = vec![
        Step::Publish(0, only(1)),
        Step::Publish(1, only(2)),
        Step::Read(None),
        Step::Publish(0, only(3)),
        Step::Read(Some(3)),
        Step::Announce(1, false),
    ];
    check(steps).await.unwrap();
}

/// The part is not the same proof as before: its resource may come again with the same entry.
#[tokio::test]
async fn part_is_read_again_if_a_resource_was_deleted_while_it_was_read() {
    let world = World::new().await;
    let (store, set) = (&world.store, world.set);
    store.begin_list(set).await.unwrap();
    let list = world.reading(set, 10);
    let mut step = PartStep {
        uri: part_uri(0),
        begins: true,
        end: None,
        named: NamedSoFar::default(),
    };
    for (name, is_last) in [("a", false), ("b", true)] {
        step.end = is_last.then(|| part_end(&world));
        let entries = vec![created(name, 5)];
        let listed = store.ingest_part(&list, world.now, entries, step.clone());
        listed.done().await.unwrap();
        step.begins = false;
        world.work("1").await;
        if !is_last {
            world.announce(vec![deleted(name, 20)]).await;
            world.work("1").await;
        }
    }
    let part = store.part(set, &part_uri(0)).await.unwrap().unwrap();
    assert!(part.names_any && !part.known.is_complete);
}

/// Two parts name a resource, with different times; the one with the later time drops it.
#[tokio::test]
async fn part_with_the_older_entry_of_a_resource_names_it_as_well() {
    let world = World::new().await;
    let (store, set) = (&world.store, world.set);
    let index = Url::parse("https://example.org/index.xml").unwrap();
    let entry = |name: &str, lastmod: i64| Change {
        lastmod: Some(at(lastmod)),
        ..created(name, lastmod)
    };
    let first = [(0, vec![entry("a", 5)]), (1, vec![entry("a", 4)])];
    let then = [(0, vec![entry("b", 6)])];
    for (time, parts) in [(10, &first[..]), (20, &then[..])] {
        let trusted = (time == 20).then_some(FILTER);
        store.begin_parts(set, &index, trusted).await.unwrap();
        store.begin_list(set).await.unwrap();
        let list = world.reading(set, time);
        for (part, entries) in parts {
            let step = PartStep {
                uri: part_uri(*part),
                begins: true,
                end: Some(part_end(&world)),
                named: NamedSoFar::default(),
            };
            let listed = store.ingest_part(&list, world.now, entries.clone(), step);
            listed.done().await.unwrap();
        }
        if time == 20 {
            let part = store.part(set, &part_uri(1)).await.unwrap().unwrap();
            let unchanged = UnchangedPart {
                id: part.id,
                evidence: None,
            };
            let marking = store.mark_parts_unchanged(vec![unchanged], &list.named);
            marking.await.unwrap();
            assert!(!store.has_absent_resources(&list).await.unwrap());
        }
        let _ = world.work("1").await;
    }
}
