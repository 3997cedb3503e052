use proptest::prelude::*;
use resourcesync::Algorithm;

use super::*;

fn at(seconds: i64) -> Option<SourceTime> {
    (seconds >= 0).then(|| SourceTime::from_micros(seconds * 1_000_000))
}

/// An announced, known or pending state, as `created@20#a+5~19`: its kind, time, content (the bytes that are hashed), length and
/// lastmod. What is left out is not stated.
#[derive(Clone, Debug)]
struct State {
    kind: Option<ChangeKind>,
    changed_at: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    content: ContentInfo,
}

impl State {
    fn parse(text: &str) -> Self {
        let part = |mark: char| {
            let rest = &text[text.find(mark)? + 1..];
            Some(&rest[..rest.find(['@', '#', '+', '~']).unwrap_or(rest.len())])
        };
        let seconds = |mark: char| part(mark).and_then(|time| at(time.parse().unwrap()));
        let kind = &text[..text.find(['@', '#', '+', '~']).unwrap_or(text.len())];
        Self {
            kind: (kind != "listed").then(|| ChangeKind::parse(kind).unwrap()),
            changed_at: seconds('@'),
            lastmod: seconds('~'),
            content: ContentInfo {
                length: part('+').map(|length| length.parse().unwrap()),
                media_type: None,
                hashes: part('#')
                    .map(|bytes| Digest::of(Algorithm::Sha256, bytes.as_bytes()))
                    .into_iter()
                    .collect(),
            },
        }
    }

    fn announced(&self) -> Announced<'_> {
        Announced {
            kind: self.kind.unwrap_or(ChangeKind::Created),
            changed_at: self.changed_at,
            lastmod: self.lastmod,
            content: &self.content,
            overtaken: false,
            unconfirmed: false,
        }
    }

    fn known(&self) -> LocalState {
        LocalState {
            kind: self.kind,
            changed_at: self.changed_at,
            lastmod: self.lastmod,
            length: self.content.length,
            hashes: self.content.hashes.clone(),
            deleted: self.kind == Some(ChangeKind::Deleted),
            is_doubted: false,
            unconfirmed: false,
            answered_until: None,
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            kind: self.kind.unwrap_or(ChangeKind::Created),
            changed_at: self.changed_at,
            unconfirmed: false,
            is_listed: self.kind.is_none(),
        }
    }
}

fn optional(text: &str) -> Option<State> {
    (text != "-").then(|| State::parse(text))
}

#[track_caller]
fn check(rows: &[(&str, &str, &str, Decision)]) {
    for &(announced, known, pending, expected) in rows {
        let known_state = optional(known).map(|state| state.known());
        let pending_state = optional(pending).map(|state| state.pending());
        let decision = plan_change(
            &State::parse(announced).announced(),
            known_state.as_ref(),
            pending_state.as_ref(),
        );
        assert_eq!(
            decision, expected,
            "announced {announced}, known {known}, pending {pending}"
        );
    }
}

/// As [`check`], for an entry of a list of the time 100.
#[track_caller]
fn check_listed(rows: &[(&str, &str, &str, Decision)]) {
    for &(announced, known, pending, expected) in rows {
        let known_state = optional(known).map(|state| state.known());
        let pending_state = optional(pending).map(|state| state.pending());
        let decision = plan_listed(
            &State::parse(announced).announced(),
            at(100).unwrap(),
            known_state.as_ref(),
            pending_state.as_ref(),
            true,
        );
        assert_eq!(
            decision, expected,
            "listed {announced}, known {known}, pending {pending}"
        );
    }
}

use Decision::{Done, Older, Task};

#[test]
fn older_change_is_ignored() {
    check(&[
        ("updated@19#b", "created@20#a", "-", Older),
        ("deleted@19", "created@20#a", "-", Older),
        ("created@19#b", "deleted@20", "-", Older),
        ("updated@19#b", "-", "created@20#a", Older),
        ("deleted@19", "-", "created@20#a", Older),
        ("created@19#b", "-", "deleted@20", Older),
        ("updated@25#b", "created@20#a", "updated@30#c", Older),
        ("updated@20#a", "created@20#a", "updated@30#c", Older),
    ]);
}

#[test]
fn newer_change_is_a_task() {
    check(&[
        ("created@20#a", "-", "-", Task),
        ("updated@20", "-", "-", Task),
        ("updated@21#b", "created@20#a", "-", Task),
        ("updated@21", "created@20", "-", Task),
        ("deleted@21", "created@20#a", "-", Task),
        ("updated@21#b", "-", "created@20#a", Task),
        ("deleted@21", "-", "created@20#a", Task),
        ("created@21#b", "-", "deleted@20", Task),
    ]);
}

#[test]
fn with_equal_times_the_later_entry_wins() {
    check(&[
        ("updated@20#b", "updated@20#a", "-", Task),
        ("updated@20+6", "updated@20+5", "-", Task),
        ("deleted@20", "updated@20#a", "-", Task),
        ("created@20#a", "deleted@20", "-", Task),
        ("updated@20#b", "-", "updated@20#a", Task),
        ("deleted@20", "-", "created@20#a", Task),
        ("updated@20", "created@20", "-", Task),
    ]);
}

#[test]
fn applied_change_is_not_fetched_again() {
    check(&[
        ("updated@20", "updated@20", "-", Done),
        ("updated@20#a", "updated@20#a", "-", Done),
        ("updated@20#a", "created@20#a", "-", Done),
        // The Source states no digest, but the mirror computed one.
        ("updated@20", "updated@20#a", "-", Done),
        ("updated@20", "listed@20", "-", Done),
        ("deleted@20", "deleted@20", "-", Done),
        ("updated#a", "updated@20#a", "-", Done),
        ("deleted", "deleted@20", "-", Done),
        // A pending task that is not newer is dropped.
        ("updated@20#a", "updated@20#a", "updated@19#b", Done),
        ("updated@20#a", "updated@20#a", "updated@20#b", Done),
    ]);
}

#[test]
fn same_content_at_a_newer_time_updates_the_time() {
    check(&[
        ("updated@21#a", "updated@20#a", "-", Task),
        ("deleted@21", "deleted@20", "-", Task),
        ("deleted@21", "deleted", "-", Task),
    ]);
}

/// Another set has stated the applied deletion.
#[test]
fn deletion_ends_a_pending_creation_that_is_older_than_the_applied_deletion() {
    check(&[
        ("deleted@18", "deleted@20", "created@15#a", Done),
        ("deleted@15", "deleted@20", "created@15#a", Done),
        ("deleted@14", "deleted@20", "created@15#a", Older),
        ("deleted@18", "deleted@20", "-", Older),
        ("created@18#b", "deleted@20", "created@15#a", Older),
        // A list that is newer than the deletion.
        ("deleted@18", "deleted@20", "listed@15#a", Older),
        ("deleted@20", "deleted@20", "listed@15#a", Older),
        ("deleted@21", "deleted@20", "listed@15#a", Task),
    ]);
}

#[test]
fn deleted_resource_may_be_created_again() {
    check(&[
        ("created@21#a", "deleted@20", "-", Task),
        ("updated@21#a", "deleted@20", "-", Task),
        ("created#a", "deleted@20", "-", Task),
        ("created@21#a", "deleted", "-", Task),
    ]);
}

#[test]
fn deletion_of_an_unknown_resource_is_stored() {
    check(&[
        ("deleted@20", "-", "-", Task),
        ("deleted", "-", "-", Task),
        ("created@19", "deleted@20", "-", Older),
    ]);
}

#[test]
fn change_without_a_time_is_applied_but_drops_no_pending_one_with_a_time() {
    check(&[
        ("updated", "updated@20", "-", Task),
        ("updated", "updated@20#a", "-", Task),
        ("updated#b", "updated@20#a", "-", Task),
        ("deleted", "updated@20#a", "-", Task),
        ("updated#b", "updated#a", "-", Task),
        ("updated", "updated", "-", Task),
        ("updated@20#b", "updated#a", "-", Task),
        ("updated@20#a", "updated#a", "-", Task),
        ("updated#b", "-", "updated@20#a", Task),
        ("updated@20#b", "-", "updated#a", Task),
        // Which of the two is newer is unknown.
        ("updated#a", "updated@20#a", "updated@30#b", Older),
        ("deleted", "deleted@20", "created@30#b", Older),
        ("updated@20#a", "updated@20#a", "updated#b", Older),
        ("deleted@20", "deleted@20", "created#b", Older),
        // Neither has a time: the one that arrives later wins.
        ("updated#a", "updated@20#a", "updated#b", Done),
    ]);
}

/// With equal times the later document wins, and a late document is not the later one.
#[test]
fn late_change_does_not_replace_one_of_the_same_time() {
    let check = |announced: &str, known: &str, pending: &str, expected: Decision| {
        let announced = State::parse(announced);
        let announced = Announced {
            overtaken: true,
            unconfirmed: false,
            ..announced.announced()
        };
        let known_state = optional(known).map(|state| state.known());
        let pending_state = optional(pending).map(|state| state.pending());
        let decision = plan_change(&announced, known_state.as_ref(), pending_state.as_ref());
        assert_eq!(decision, expected, "{known}, {pending}");
    };
    check("deleted@20", "created@20#a", "-", Older);
    check("updated@20#a", "updated@10#b", "updated@20#c", Older);
    check("updated@20#a", "updated@10#b", "updated@15#c", Task);
    check("updated@20#a", "updated@10#b", "-", Task);
    check("updated@20#a", "-", "-", Task);
    check("updated#a", "updated#b", "-", Task);
    // A list that was read since states the resource as it was later.
    check("updated#a", "listed@50#b", "-", Older);
    check("updated#a", "-", "listed@50#b", Older);
    check("updated#a", "updated#b", "listed@50#c", Older);
    check("updated#a", "listed@50#b", "updated#c", Task);
    check("updated#a", "updated#b", "deleted@20", Task);
    check("updated#a", "deleted@20", "-", Task);
    check("updated#a", "-", "-", Task);
    check("deleted", "listed@50#b", "-", Task);
}

#[test]
fn any_known_digest_that_differs_is_a_difference() {
    let md5 = Digest::of(Algorithm::Md5, b"a");
    let known = State::parse("updated@20#a").known();
    let plan = |hashes: &[Digest]| {
        let content = ContentInfo {
            hashes: hashes.to_vec(),
            ..ContentInfo::default()
        };
        plan_change(
            &Announced {
                kind: ChangeKind::Updated,
                changed_at: at(20),
                lastmod: None,
                content: &content,
                overtaken: false,
                unconfirmed: false,
            },
            Some(&known),
            None,
        )
    };
    let sha256 = |bytes: &[u8]| Digest::of(Algorithm::Sha256, bytes);
    assert_eq!(
        plan(std::slice::from_ref(&md5)),
        Done,
        "cannot be compared: time and kind decide"
    );
    assert_eq!(plan(&[md5.clone(), sha256(b"a")]), Done);
    assert_eq!(plan(&[md5, sha256(b"b")]), Task);
}

#[test]
fn listed_resource_is_fetched_unless_the_mirror_has_it() {
    check_listed(&[
        ("listed", "-", "-", Task),
        ("listed@50#a~50", "-", "-", Task),
        ("listed#b", "updated@50#a", "-", Task),
        ("listed#a", "updated@50#a", "-", Done),
        ("listed#a~60", "updated@50#a", "-", Done),
        ("listed", "updated@50#a", "-", Done),
        ("listed", "listed", "-", Done),
        ("listed+6", "updated@50+5", "-", Task),
        ("listed~50", "updated@50", "-", Done),
        ("listed~50", "listed~50", "-", Done),
        ("listed~51", "updated@50", "-", Task),
        ("listed~51", "listed", "-", Task),
    ]);
}

/// Such as of a file that was restored with its time, or of all times once their zone is corrected.
#[test]
fn earlier_modification_in_a_newer_list_is_a_change_unless_another_set_has_stated_the_later_one() {
    for (announced, known, own, shared) in [
        ("listed~49", "listed~50", Task, Done),
        ("listed@49~49", "listed@50~50", Task, Done),
        ("listed+5~49", "listed+5~50", Task, Done),
        ("listed#a~49", "listed#a~50", Done, Done),
        ("listed#b~49", "listed#a~50", Task, Task),
        ("listed~49", "updated@50", Task, Done),
        ("listed~50", "updated@50~40", Done, Done),
        ("listed~40", "updated@50~40", Done, Done),
        ("listed~45", "updated@50~40", Task, Done),
        // Its time was in the future: it is not stored.
        ("listed@900~900", "listed@900", Older, Older),
        ("listed", "listed~50", Done, Done),
        // A change after the list.
        ("listed~49", "updated@101~101", Older, Older),
    ] {
        let (announced, known) = (State::parse(announced), State::parse(known).known());
        for (is_own, expected) in [(true, own), (false, shared)] {
            let (listed, at) = (announced.announced(), at(100).unwrap());
            let decision = plan_listed(&listed, at, Some(&known), None, is_own);
            assert_eq!(decision, expected, "{announced:?} {known:?} {is_own}");
        }
    }
}

#[test]
fn change_after_the_list_is_not_replaced() {
    check_listed(&[
        ("listed#a", "updated@100#b", "-", Older),
        ("listed#a", "updated@101#b", "-", Older),
        ("listed#a", "deleted@101", "-", Older),
        ("listed#a", "deleted@99", "-", Task),
        ("listed#a", "deleted", "-", Task),
        ("listed#a", "-", "updated@100#b", Older),
        ("listed#a", "-", "deleted@101", Older),
        ("listed#a", "listed#b", "deleted@101", Older),
    ]);
}

#[test]
fn listed_resource_is_not_deleted_by_an_older_deletion() {
    check_listed(&[
        ("listed#a", "updated@50#a", "deleted@99", Done),
        ("listed", "updated@50#a", "deleted@99", Done),
        ("listed", "updated@50#a", "deleted", Done),
        ("listed#b", "updated@50#a", "deleted@99", Task),
        ("listed#a", "-", "deleted@99", Task),
    ]);
}

#[test]
fn pending_update_before_the_list_is_replaced_only_by_newer_content() {
    check_listed(&[
        ("listed#a", "updated@50#a", "updated@60#b", Done),
        ("listed#c", "updated@50#a", "updated@60#b", Task),
        ("listed~70", "updated@50", "updated@60", Task),
        ("listed~55", "updated@50", "updated@60", Older),
        ("listed", "updated@50#a", "updated@60#b", Older),
        ("listed", "updated@50", "updated@60", Older),
        ("listed#a", "updated@50#a", "updated#b", Older),
        ("listed", "updated@50", "updated", Older),
    ]);
}

#[test]
fn absence_deletes_a_resource_that_is_not_newer_than_the_list() {
    for (known, pending, deleted) in [
        ("-", "-", true),
        ("listed", "-", true),
        ("updated@99", "-", true),
        ("updated@100", "-", false),
        ("updated@101", "-", false),
        ("updated@50", "updated@99", true),
        ("updated@50", "updated@100", false),
        ("-", "created@101", false),
        ("updated@50", "deleted@99", true),
        ("updated@50", "deleted", true),
        ("updated@50", "updated", false),
        ("-", "created", false),
    ] {
        let known_state = optional(known).map(|state| state.known());
        let pending_state = optional(pending).map(|state| state.pending());
        let absent = plan_absent(
            at(100).unwrap(),
            known_state.as_ref(),
            pending_state.as_ref(),
        );
        assert_eq!(absent, deleted, "known {known}, pending {pending}");
    }
}

#[test]
fn change_of_a_day_may_be_later_than_a_list_of_that_day() {
    const MIDNIGHT: i64 = 86_400;
    let (morning, next_day) = (MIDNIGHT + 36_000, 2 * MIDNIGHT);
    for (known, list, absent, listed) in [
        ("created@86400", morning, false, Decision::Older),
        ("created@86400", next_day, true, Decision::Done),
        ("created@86401", morning, true, Decision::Done),
        ("listed@86400", morning, true, Decision::Done),
        ("deleted@86400", morning, false, Decision::Older),
        ("deleted@86400", next_day, true, Decision::Task),
    ] {
        let (state, list) = (State::parse(known), at(list).unwrap());
        let pending = state.kind.map(|kind| Pending {
            kind,
            changed_at: state.changed_at,
            unconfirmed: false,
            is_listed: false,
        });
        let known_state = state.known();
        let case = format!("{known}, a list of {list}");
        assert_eq!(
            plan_absent(list, Some(&known_state), None),
            absent,
            "{case}"
        );
        if pending.is_some() {
            assert_eq!(plan_absent(list, None, pending.as_ref()), absent, "{case}");
        }
        let announced = State::parse("listed@80000~80000");
        let decision = plan_listed(
            &announced.announced(),
            list,
            Some(&known_state),
            None,
            false,
        );
        assert_eq!(decision, listed, "{case}");
    }
}

#[test]
fn entry_dated_later_than_the_known_change_is_news_whatever_the_time_of_the_list() {
    for (announced, known, expected) in [
        ("listed@300~300", "listed@200~200", Decision::Task),
        ("listed@200~200", "listed@200~200", Decision::Older),
        ("listed@150~150", "listed@200~200", Decision::Older),
        ("listed", "listed@200~200", Decision::Older),
        ("listed@300~300", "deleted@200", Decision::Task),
        ("listed@150~150", "deleted@200", Decision::Older),
    ] {
        let (announced, known) = (State::parse(announced), State::parse(known).known());
        let decision = plan_listed(
            &announced.announced(),
            at(100).unwrap(),
            Some(&known),
            None,
            true,
        );
        assert_eq!(decision, expected, "{announced:?} {known:?}");
    }
}

#[test]
fn more_than_a_hundred_deletions_and_more_than_the_share_need_approval() {
    for (deletions, resources, share, expected) in [
        (100, 100, 0.1, false),
        (101, 101, 0.1, true),
        (101, 1010, 0.1, false),
        (102, 1010, 0.1, true),
        (1_000_000, 10_000_000, 0.1, false),
        (101, 101, 1.0, false),
        (101, 1_000_000, 0.0, true),
        (0, 0, 0.0, false),
    ] {
        assert_eq!(
            needs_approval(deletions, resources, 100, share),
            expected,
            "{deletions} of {resources}, {share}"
        );
    }
}

/// What the store has of one resource.
#[derive(Debug, Default)]
struct Mirror {
    known: Option<LocalState>,
    task: Option<State>,
}

impl Mirror {
    fn plan(&mut self, state: &State) {
        let pending = self.task.as_ref().map(State::pending);
        match plan_change(&state.announced(), self.known.as_ref(), pending.as_ref()) {
            Task => self.task = Some(state.clone()),
            Done => self.task = None,
            Older => {}
        }
    }

    fn apply(&mut self) {
        if let Some(task) = self.task.take() {
            self.known = Some(task.known());
        }
    }
}

proptest! {
    /// In whatever order the changes of a resource arrive, however often, and whenever they are applied: in the end the mirror
    /// has the state of the latest one.
    #[test]
    fn latest_change_wins(
        changes in proptest::collection::vec((0_u8..3, 0_u8..3, any::<bool>()), 1..6),
        arrivals in proptest::collection::vec((0_usize..6, any::<bool>()), 0..24),
        rest in Just((0_usize..6).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let states: Vec<State> = changes.iter().enumerate().map(|(n, &(kind, content, hashed))| {
            let kind = [ChangeKind::Created, ChangeKind::Updated, ChangeKind::Deleted][usize::from(kind)];
            let bytes = if hashed { vec![Digest::of(Algorithm::Sha256, &[content])] } else { Vec::new() };
            State {
                kind: Some(kind),
                changed_at: at(10 + i64::try_from(n).unwrap()),
                lastmod: None,
                content: ContentInfo {
                    hashes: if kind == ChangeKind::Deleted { Vec::new() } else { bytes },
                    ..ContentInfo::default()
                },
            }
        }).collect();
        let mut mirror = Mirror::default();
        // Each change arrives at least once.
        for (n, applied) in arrivals.into_iter().chain(rest.into_iter().map(|n| (n, false))) {
            if let Some(state) = states.get(n) {
                mirror.plan(state);
            }
            if applied {
                mirror.apply();
            }
        }
        mirror.apply();
        let latest = states.last().unwrap();
        let known = mirror.known.unwrap();
        prop_assert_eq!(known.changed_at, latest.changed_at);
        prop_assert_eq!(known.deleted, latest.kind == Some(ChangeKind::Deleted));
        prop_assert_eq!(known.hashes, latest.content.hashes.clone());
    }
}

#[test]
fn entry_of_a_covered_time_is_news_if_its_resource_is_known_as_older() {
    use LateChange::{Known, News, Same};
    // (announced, known, pending, time of the Resource List that names the resource, or -1, expected)
    for (announced, known, pending, listed_at, expected) in [
        // Nothing is known of the resource.
        ("created@20", "-", "-", -1, News),
        ("updated@20", "-", "-", 100, News),
        ("deleted@20", "-", "-", -1, Same),
        ("updated", "-", "-", -1, Known),
        ("updated@20", "-", "created@20", -1, Known),
        ("updated@20", "-", "created@30", -1, Known),
        ("updated@20", "-", "created@10", -1, News),
        ("updated@20", "-", "created", -1, Known),
        // It was read before.
        ("updated@20#a", "updated@20#a", "-", -1, Known),
        ("updated@20#b", "updated@30#a", "-", -1, Known),
        ("deleted@20", "updated@30", "-", -1, Known),
        ("created@20", "deleted@30", "-", -1, Known),
        // It appeared late.
        ("updated@20#b", "updated@10#a", "-", -1, News),
        ("updated@20", "updated@10#a", "-", -1, News),
        ("updated@20#a", "updated@10#a", "-", -1, Same),
        ("deleted@20", "updated@10", "-", -1, News),
        ("created@20", "deleted@10", "-", -1, News),
        ("deleted@20", "deleted@10", "-", -1, Same),
        ("updated@20#b", "updated@10#a", "updated@15#c", -1, News),
        ("updated@20#b", "updated@10#a", "deleted@30", -1, Known),
        // An older change is pending, and would be applied.
        ("deleted@20", "-", "updated@15", -1, News),
        ("deleted@20", "-", "deleted@15", -1, Same),
        ("deleted@20", "deleted@10", "updated@15", -1, News),
        ("deleted@20", "deleted@10", "deleted@15", -1, Same),
        ("deleted@18", "deleted@20", "created@15", -1, News),
        ("deleted@18", "deleted@20", "listed@15", -1, Known),
        ("deleted@18", "deleted@20", "-", -1, Known),
        ("updated@20#a", "updated@10#a", "updated@15#b", -1, News),
        ("updated@20#a", "updated@10#a", "deleted@15", -1, News),
        // A Resource List names it, and is newer than the entry.
        ("deleted@20", "listed@10~10#a", "-", 100, Known),
        ("updated@20#a", "listed@10~10#a", "-", 100, Same),
        ("updated@20", "listed@10~10#a", "-", 100, Known),
        ("updated@20~10#b", "listed@10~10#a", "-", 100, Known),
        ("updated@20~15#b", "listed@10~10#a", "-", 100, News),
        ("updated@20~15", "listed@10~10", "-", 100, News),
        ("updated@20#b", "listed@10~10#a", "-", 100, News),
        ("updated@20#b", "listed#a", "-", 100, Known),
        ("created@20", "deleted@10", "-", 100, News),
        // It names it, and is older: the list states what was before its own time.
        ("deleted@100", "listed@10~10#a", "-", 100, News),
        ("updated@100", "listed@10~10#a", "-", 100, News),
        ("deleted@120", "listed@10~10#a", "-", 100, News),
        ("updated@120", "listed@10~10#a", "-", 100, News),
        ("updated@120#b", "listed#a", "-", 100, News),
    ] {
        let known_state = optional(known).map(|state| state.known());
        let pending_state = optional(pending).map(|state| state.pending());
        let found = plan_late(
            &State::parse(announced).announced(),
            known_state.as_ref(),
            pending_state.as_ref(),
            at(listed_at),
        );
        let row = format!("announced {announced}, known {known}, pending {pending}, {listed_at}");
        assert_eq!(found, expected, "{row}");
    }
}

/// A file that may be another than the recorded one is like no description.
#[test]
fn what_is_in_doubt_is_never_up_to_date() {
    let known = LocalState {
        changed_at: at(20),
        length: Some(7),
        ..LocalState::default()
    };
    let content = ContentInfo {
        length: Some(7),
        ..ContentInfo::default()
    };
    let announced = Announced {
        kind: ChangeKind::Updated,
        changed_at: known.changed_at,
        lastmod: known.changed_at,
        content: &content,
        overtaken: false,
        unconfirmed: false,
    };
    for (is_doubted, expected) in [(false, Decision::Done), (true, Decision::Task)] {
        let known = LocalState {
            is_doubted,
            ..known.clone()
        };
        assert_eq!(plan_change(&announced, Some(&known), None), expected);
    }
}

/// What the Source states counts, and not what a hub has stated: at the same time, and where another time would hide an update.
#[test]
fn times_of_a_hub_hide_nothing_that_the_source_states() {
    let check = |kind, time, unconfirmed, expected: (LateChange, Decision)| {
        let content = ContentInfo {
            hashes: vec![Digest::of(Algorithm::Sha256, b"the Source's")],
            ..ContentInfo::default()
        };
        let announced = Announced {
            kind,
            changed_at: at(time),
            lastmod: None,
            content: &content,
            overtaken: true,
            unconfirmed,
        };
        let known = LocalState {
            kind: Some(ChangeKind::Updated),
            changed_at: at(20),
            hashes: vec![Digest::of(Algorithm::Sha256, b"the hub's")],
            unconfirmed: true,
            ..LocalState::default()
        };
        let late = plan_late(&announced, Some(&known), None, None);
        let planned = plan_change(&announced, Some(&known), None);
        assert_eq!((late, planned), expected, "{kind:?} {time} {unconfirmed}");
    };
    use ChangeKind::{Deleted, Updated};
    let (news, known) = (
        (LateChange::News, Decision::Task),
        (LateChange::Known, Decision::Older),
    );
    check(Updated, 20, false, news);
    check(Updated, 10, false, news);
    check(Updated, 20, true, known);
    check(Updated, 10, true, known);
    check(Deleted, 10, false, known);
    check(Deleted, 30, false, news);

    let content = ContentInfo::default();
    let pending = Pending {
        kind: Updated,
        changed_at: at(20),
        unconfirmed: true,
        is_listed: false,
    };
    for (time, unconfirmed, expected) in [
        (20, false, LateChange::News),
        (20, true, LateChange::Known),
        (10, false, LateChange::Known),
    ] {
        let announced = Announced {
            kind: Updated,
            changed_at: at(time),
            lastmod: None,
            content: &content,
            overtaken: true,
            unconfirmed,
        };
        let planned = plan_late(&announced, None, Some(&pending), None);
        assert_eq!(planned, expected, "{time} {unconfirmed}");
    }
}

/// What the Source states of times that a hub has stated before may be what its answer has shown.
#[test]
fn answer_of_the_source_may_be_newer_than_what_it_states_of_that_time() {
    // (announced, until when the Source was asked, whether its answer may be newer)
    for (announced, answered_until, expected) in [
        ("updated@20#b", 20, true),
        ("deleted@20", 20, true),
        ("updated@19", 20, true),
        ("deleted@19", 20, true),
        ("updated@21#b", 20, false),
        ("deleted@21", 20, false),
        ("updated#b", 20, false),
        ("deleted", 20, false),
        ("updated@20", -1, false),
        ("updated", -1, false),
    ] {
        for known in ["updated@20#a", "created@10", "deleted@20"] {
            for by_hub in [false, true] {
                let state = State::parse(announced);
                let announced = Announced {
                    unconfirmed: by_hub,
                    ..state.announced()
                };
                let known = LocalState {
                    answered_until: at(answered_until),
                    ..State::parse(known).known()
                };
                let found = known.may_be_newer(&announced);
                assert_eq!(found, expected, "{announced:?}, {known:?}");
            }
        }
    }
}
