//! The verdicts of the sequencer, as scripts of events and the log that they produce.

mod delivery;
mod world;

use resourcesync::ChangeKind;
use world::World;

use super::*;

const UPDATED: Option<ChangeKind> = Some(ChangeKind::Updated);

#[track_caller]
fn check(script: &str, log: &str, state: &str) {
    check_with(1024, script, log, state);
}

#[track_caller]
fn check_with(held_notifications: usize, script: &str, log: &str, state: &str) {
    let mut world = World::new(held_notifications);
    world.run(script);
    assert_eq!(world.log.join(" "), log, "verdicts of {script}");
    assert_eq!(world.state(), state, "state after {script}");
}

#[test]
fn next_notification_in_order_is_applied() {
    check(
        "base:100 1:100-110 2:110-120",
        "1:ingest 2:ingest",
        "front 120",
    );
}

#[test]
fn covered_notification_is_known() {
    check(
        "base:100 1:100-110 2:100-110 3:50-100 4:90-105 5:0-10",
        "1:ingest 2:known 3:known 4:known 5:known",
        "front 110",
    );
}

#[test]
fn partly_covered_notification_is_applied() {
    check(
        "base:100 1:90-105 2:100-110 3:104-112",
        "1:ingest 2:ingest 3:ingest",
        "front 112",
    );
}

#[test]
fn early_notification_waits_for_the_one_before_it() {
    check("base:100 1:110-120", "1:hold", "front 100, held 1");
    check(
        "base:100 1:110-120 +4 2:100-110",
        "1:hold 2:ingest 1:ingest",
        "front 120",
    );
    check(
        "base:100 1:110-120 +4 2:100-112",
        "1:hold 2:ingest 1:ingest",
        "front 120",
    );
    check(
        "base:100 1:110-120 +4 2:100-130",
        "1:hold 2:ingest 1:known",
        "front 130",
    );
}

#[test]
fn twenty_notifications_in_reverse_order_are_applied_in_order() {
    let at = |n: i64| (100 + 10 * n, 110 + 10 * n);
    let script: Vec<String> = (0..20)
        .rev()
        .map(|n| format!("{n}:{}-{}", at(n).0, at(n).1))
        .collect();
    let held: Vec<String> = (1..20).rev().map(|n| format!("{n}:hold")).collect();
    let applied: Vec<String> = (0..20).map(|n| format!("{n}:ingest")).collect();
    check(
        &format!("base:100 {}", script.join(" ")),
        &format!("{} {}", held.join(" "), applied.join(" ")),
        "front 300",
    );
}

#[test]
fn gap_opens_when_the_reorder_window_ends() {
    let open = "front 120, gap 100-110 missing-notification";
    let log = "1:hold gap:100-110:missing-notification 1:ingest";
    check("base:100 1:110-120 +5", log, open);
    // It has the time of its detection, and does not open twice.
    check("base:100 1:110-120 +5 +60", log, open);
    // A notification that is held behind the overdue one stays held.
    check(
        "base:100 1:110-120 +3 2:130-140 +2",
        "1:hold 2:hold gap:100-110:missing-notification 1:ingest",
        "front 120, gap 100-110 missing-notification, held 1",
    );
    check(
        "base:100 1:130-140 +3 2:110-120 +2",
        "1:hold 2:hold gap:100-110:missing-notification 2:ingest 1:ingest",
        "front 140, gap 100-110 missing-notification, gap 120-130 missing-notification",
    );
}

#[test]
fn gap_stays_recorded_until_a_change_list_covers_it() {
    let lost = "base:100 source:100-105 1:110-120 +5";
    let log = "1:hold gap:100-110:missing-notification 1:ingest";
    check(lost, log, "front 120, gap 105-110 missing-notification");
    check(
        &format!("{lost} list:100-108"),
        log,
        "front 120, gap 108-110 missing-notification",
    );
    check(&format!("{lost} list:100-110"), log, "front 120");
    check(&format!("{lost} list:100-150"), log, "front 150");
    // A Change List that covers it at once leaves no gap.
    check("base:100 source:100-110 1:110-120 +5", log, "front 120");
    check(
        "base:100 source:100-120 1:110-120 +5",
        "1:hold gap:100-110:missing-notification 1:known",
        "front 120",
    );
    check(
        "base:100 source:100-115 1:110-120 +5",
        "1:hold gap:100-110:missing-notification 1:ingest",
        "front 120",
    );
}

#[test]
fn gap_is_closed_by_a_late_notification() {
    let lost = "base:100 1:110-120 +5";
    let log = "1:hold gap:100-110:missing-notification 1:ingest 2:ingest";
    check(&format!("{lost} 2:100-110"), log, "front 120");
    check(
        &format!("{lost} 2:102-104"),
        log,
        "front 120, gap 100-102 missing-notification, gap 104-110 missing-notification",
    );
    check(&format!("{lost} 2:90-130"), log, "front 130");
}

#[test]
fn gap_is_closed_by_a_resource_list_not_older_than_its_end() {
    let lost = "base:100 1:110-120 +5";
    let log = "1:hold gap:100-110:missing-notification 1:ingest";
    check(
        &format!("{lost} base:99"),
        log,
        "front 120, gap 100-110 missing-notification",
    );
    check(
        &format!("{lost} base:105"),
        log,
        "front 120, gap 105-110 missing-notification",
    );
    check(&format!("{lost} base:110"), log, "front 120");
    check(&format!("{lost} base:115"), log, "front 120");
    check(&format!("{lost} base:130"), log, "front 130");
}

#[test]
fn too_many_held_notifications_open_a_gap_at_once() {
    check_with(
        2,
        "base:100 1:110-120 2:120-130 3:130-140",
        "1:hold 2:hold 3:hold gap:100-110:too-many-held 1:ingest 2:ingest 3:ingest",
        "front 140, gap 100-110 too-many-held",
    );
    check_with(
        2,
        "base:100 3:150-160 2:130-140 1:110-120",
        "3:hold 2:hold 1:hold gap:100-110:too-many-held 1:ingest 2:ingest 3:ingest",
        "front 160, gap 100-110 too-many-held, gap 120-130 too-many-held, gap 140-150 too-many-held",
    );
    // Duplicates count as well.
    check_with(
        1,
        "base:100 1:110-120 2:110-120",
        "1:hold 2:hold gap:100-110:too-many-held 1:ingest 2:known",
        "front 120, gap 100-110 too-many-held",
    );
}

#[test]
fn with_a_limit_of_zero_each_early_notification_opens_a_gap() {
    check_with(
        0,
        "base:100 1:100-110 2:120-130 3:130-140 4:110-120",
        "1:ingest 2:hold gap:110-120:too-many-held 2:ingest 3:ingest 4:ingest",
        "front 140",
    );
}

#[test]
fn repeated_open_gap_before_held_notifications_are_applied_opens_no_second_gap() {
    let mut world = World::new(0);
    world.run("base:100");
    world.event("1:110-120");
    assert!(world.sequencer.open_gap(world.now).is_some());
    assert_eq!(world.sequencer.open_gap(world.now), None);
    assert_eq!(world.sequencer.next_deadline(), None);
    world.event("2:130-140");
    let second = world.sequencer.open_gap(world.now).unwrap();
    assert_eq!(world.format(second.interval), "100-110");
    assert_eq!(world.sequencer.gaps().len(), 2);
    assert_eq!(world.sequencer.open_gap(world.now), None);
    world.settle();
    assert_eq!(
        world.state(),
        "front 140, gap 100-110 too-many-held, gap 120-130 too-many-held"
    );
}

#[test]
fn duplicates_of_a_held_notification_are_known_when_it_is_applied() {
    check(
        "base:100 1:110-120 2:110-120 3:100-110 4:110-120",
        "1:hold 2:hold 3:ingest 1:ingest 2:known 4:known",
        "front 120",
    );
    // A duplicate does not extend the wait of the first one.
    check(
        "base:100 1:110-120 +4 2:110-120 1:110-120 +1",
        "1:hold 2:hold 1:hold gap:100-110:missing-notification 1:ingest 2:known",
        "front 120, gap 100-110 missing-notification",
    );
}

#[test]
fn empty_interval_is_applied_and_covers_nothing() {
    let log = "1:ingest";
    for before_or_at in ["0-0", "99-99", "100-100"] {
        check(&format!("base:100 1:{before_or_at}"), log, "front 100");
    }
    check(
        "base:100 1:105-105 2:100-110",
        "1:hold 2:ingest 1:ingest",
        "front 110",
    );
    check(
        "base:100 1:110-110 2:100-110",
        "1:hold 2:ingest 1:ingest",
        "front 110",
    );
    // It proves that something before it is missing, but does not cover its own moment.
    check(
        "base:100 1:110-110 +5",
        "1:hold gap:100-110:missing-notification 1:ingest",
        "front 100, gap 100-110 missing-notification",
    );
    check(
        "base:100 1:110-110 +5 2:100-105 3:105-120",
        "1:hold gap:100-110:missing-notification 1:ingest 2:ingest 3:ingest",
        "front 120",
    );
    check(
        "base:100 1:110-110 +5 2:120-130 +5",
        "1:hold gap:100-110:missing-notification 1:ingest 2:hold gap:100-120:missing-notification 2:ingest",
        "front 130, gap 100-110 missing-notification, gap 110-120 missing-notification",
    );
}

#[test]
fn notifications_within_one_second_are_all_applied_in_any_order() {
    for script in [
        "1:100-110 2:110-110 3:110-120",
        "1:100-110 3:110-120 2:110-110",
    ] {
        let mut world = World::new(1024);
        world.run(&format!("base:100 {script}"));
        assert!(
            world.log.contains(&"2:ingest".to_owned()),
            "{script}: {:?}",
            world.log
        );
    }
}

#[test]
fn hints_cover_nothing() {
    for (interval, reason) in [
        ("?-?", "no-interval"),
        ("100-?", "no-interval"),
        ("?-110", "no-interval"),
        ("110-100", "backwards-interval"),
        ("100-now+601", "future-interval"),
        ("now+601-now+700", "future-interval"),
    ] {
        check(
            &format!("base:100 1:{interval}"),
            &format!("1:{reason}"),
            "front 100",
        );
    }
    check("1:100-110", "1:no-baseline", "front none");
    check("list:0-110", "", "front none");
    let mut world = World::new(1024);
    world.run("base:100 1:100-now+599");
    assert_eq!(world.log, ["1:ingest"], "a clock may be a little ahead");
}

#[test]
fn documents_from_the_future_cover_nothing_beyond_our_time() {
    check(
        "base:100 list:100-now+601 1:100-110",
        "1:ingest",
        "front 110",
    );
    let mut world = World::new(1024);
    world.run("base:now+601 1:now+1-now+2");
    assert_eq!(
        world.log,
        ["1:hold"],
        "what follows our own time is still news"
    );
}

#[test]
fn change_list_that_starts_late_leaves_a_gap() {
    check(
        "base:100 list:150-160",
        "",
        "front 160, gap 100-150 change-list-starts-late",
    );
    check("base:100 list:100-100", "", "front 100");
    check(
        "base:100 list:150-150",
        "",
        "front 100, gap 100-150 change-list-starts-late",
    );
    check("base:100 list:150-150 1:100-160", "1:ingest", "front 160");
    check(
        "base:100 list:150-150 1:150-160 +5",
        "1:hold gap:100-150:missing-notification 1:ingest",
        "front 160, gap 100-150 change-list-starts-late",
    );
    check("base:100 list:100-160", "", "front 160");
    check(
        "base:100 1:110-120 list:115-118 +5",
        "1:hold 1:ingest",
        "front 120, gap 100-110 change-list-starts-late",
    );
}

#[test]
fn restart_continues_from_the_stored_state() {
    check(
        "base:100 1:100-110 restart 2:110-120 1:100-110",
        "1:ingest 2:ingest 1:known",
        "front 120",
    );
    check(
        "base:100 1:110-120 2:120-130 restart 3:100-110",
        "1:hold 2:hold 1:hold 2:hold 3:ingest 1:ingest 2:ingest",
        "front 130",
    );
    // The wait begins anew: how long the process was down is unknown.
    check(
        "base:100 1:110-120 +4 restart +4",
        "1:hold 1:hold",
        "front 100, held 1",
    );
    check(
        "base:100 1:110-120 +5 restart 2:130-140 +5 3:120-130 4:100-110",
        "1:hold gap:100-110:missing-notification 1:ingest 2:hold gap:120-130:missing-notification 2:ingest 3:ingest 4:ingest",
        "front 140",
    );
}

/// A restart between the opening of a gap and the application of the held notifications: the gap is recorded once.
#[test]
fn restart_with_an_open_gap_does_not_record_it_twice() {
    let mut world = World::new(1024);
    world.run("base:100 1:110-120");
    world.event("+5");
    assert!(world.sequencer.open_gap(world.now).is_some());
    world.event("restart");
    world.run("2:130-140 +5");
    assert_eq!(
        world.state(),
        "front 140, gap 100-110 missing-notification, gap 120-130 missing-notification"
    );
}

#[test]
fn only_changes_in_missing_intervals_are_news() {
    let mut world = World::new(1024);
    world.run("base:100 1:100-110 2:120-130 +5");
    let verdict = world.deliver(3, Some(world.moment(105)), Some(world.moment(125)));
    let Verdict::Ingest(filter) = verdict else {
        panic!("{verdict:?}");
    };
    // Boundaries belong to both sides; a change that is dated outside its own document is included.
    for (second, news) in [
        (104, true),
        (105, false),
        (109, false),
        (110, true),
        (115, true),
        (120, true),
        (121, false),
        (125, false),
        (126, true),
    ] {
        assert_eq!(
            filter.includes(UPDATED, Some(world.moment(second))),
            news,
            "{second}"
        );
    }
    assert!(filter.includes(UPDATED, None));
    assert!(filter.includes(Some(ChangeKind::Deleted), None));
    let filter = world
        .sequencer
        .news_of_list(Some(world.span(90, 130)), None);
    for (second, news) in [(99, false), (100, true), (130, true)] {
        assert_eq!(
            filter.includes(UPDATED, Some(world.moment(second))),
            news,
            "no document has been read beyond 100 yet: {second}"
        );
    }
    assert!(NewsFilter::everything().includes(UPDATED, Some(world.moment(1))));
}

/// A list that was closed at 110 may state changes of that second that no other document states.
#[test]
fn closed_change_list_is_fully_covered_once_documents_were_read_beyond_its_end() {
    let mut world = World::new(1024);
    let (closed, inner) = (world.span(100, 110), world.span(100, 109));
    world.run("base:100 1:100-110");
    assert!(!world.sequencer.is_fully_covered(closed));
    world.run("2:110-120 list:100-105");
    assert!(!world.sequencer.is_fully_covered(closed));
    world.run("list:100-110");
    assert!(!world.sequencer.is_fully_covered(closed));
    assert!(world.sequencer.is_fully_covered(inner));
    world.run("list:100-111");
    assert!(world.sequencer.is_fully_covered(closed));
    world.run("restart");
    assert!(
        world.sequencer.is_fully_covered(closed),
        "a restart loses nothing"
    );
    world.run("3:130-140 +5");
    assert!(
        !world.sequencer.is_fully_covered(world.span(110, 120)),
        "a gap begins at its end"
    );
    assert!(!world.sequencer.is_fully_covered(world.span(115, 125)));
}

/// Only a notification covers what is between the two lists: documents state nothing of it.
#[test]
fn documents_are_read_from_the_end_of_the_last_hole() {
    let mut world = World::new(1024);
    world.run("base:100 list:100-110 1:110-120 list:120-130");
    assert_eq!(world.sequencer.read(), Some(world.span(120, 130)));
    world.run("list:90-105");
    assert_eq!(world.sequencer.read(), Some(world.span(120, 130)));
    world.run("restart list:112-125");
    assert_eq!(world.sequencer.read(), Some(world.span(112, 130)));
    world.run("base:115");
    let all = Interval::before(world.moment(130));
    assert_eq!(world.sequencer.read(), Some(all));
}

/// With times of whole seconds, a Change List ends with the first change of a second, and a notification whose verdict is
/// `Known` states the second one.
#[test]
fn next_change_list_includes_changes_from_the_end_of_the_last_one() {
    let mut world = World::new(1024);
    world.run("base:100 list:100-120 1:115-120 2:120-130");
    assert_eq!(world.log, ["1:known", "2:ingest"]);
    let again = world
        .sequencer
        .news_of_list(Some(world.span(100, 130)), None);
    assert!(again.includes(UPDATED, Some(world.moment(120))));
    assert!(!again.includes(UPDATED, Some(world.moment(119))));
}

/// An undated deletion might remove what a later document has stated.
#[test]
fn undated_deletion_counts_unless_later_documents_cover_its_document() {
    let deleted = Some(ChangeKind::Deleted);
    for (base, is_news) in [("base:105", true), ("base:110", true), ("base:111", false)] {
        let mut world = World::new(1024);
        world.run(base);
        let verdict = world.deliver(1, Some(world.moment(100)), Some(world.moment(110)));
        let filter = match verdict {
            Verdict::Ingest(filter) | Verdict::Known(filter) => filter,
            other => panic!("{base}: {other:?}"),
        };
        assert_eq!(filter.includes(deleted, None), is_news, "{base}");
        assert_eq!(filter.is_document_overtaken(), !is_news, "{base}");
        assert!(filter.includes(UPDATED, None), "{base}");
        assert!(filter.includes(None, None), "{base}");
    }
}

/// With times of whole seconds, a change at the very end of a known notification may belong to the gap that begins there.
#[test]
fn known_notification_may_state_news_of_its_last_moment_before_a_gap() {
    let mut world = World::new(1024);
    world.run("base:110 1:120-130 +6");
    assert_eq!(world.sequencer.gaps().len(), 1);
    let verdict = world.deliver(2, Some(world.moment(100)), Some(world.moment(110)));
    let Verdict::Known(filter) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(filter.includes(UPDATED, Some(world.moment(110))));
    assert!(!filter.includes(UPDATED, Some(world.moment(109))));
}
