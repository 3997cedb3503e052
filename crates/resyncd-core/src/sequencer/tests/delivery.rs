//! Properties: any order, loss and repetition of a chain of consecutive notifications.

use proptest::prelude::*;

use super::super::*;
use super::world::{World, assert_sound};

/// What the network does to a chain of consecutive notifications.
#[derive(Clone, Debug)]
enum Act {
    Deliver(usize),
    Pass(u64),
    Settle,
    List(i64),
    Restart,
}

fn acts(length: usize) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..length).prop_map(Act::Deliver),
        2 => (0_u64..8).prop_map(Act::Pass),
        2 => Just(Act::Settle),
        1 => (90..200_i64).prop_map(Act::List),
        1 => Just(Act::Restart),
    ];
    proptest::collection::vec(act, 0..80)
}

/// A chain that begins at 100, by the lengths of its intervals.
fn chain(lengths: &[i64]) -> Vec<(i64, i64)> {
    let mut from = 100;
    lengths
        .iter()
        .map(|length| {
            let link = (from, from + length);
            from += length;
            link
        })
        .collect()
}

proptest! {
    /// Whatever is lost, repeated or reordered: a delivered notification is covered, a lost one is recorded as a gap as soon as
    /// a later one has been decided, coverage never shrinks, and a Change List that covers everything closes every gap.
    #[test]
    fn any_delivery_converges_or_is_recorded_as_a_gap(
        lengths in proptest::collection::vec(1_i64..6, 1..24),
        limit in 0_usize..8,
        acts in acts(24),
    ) {
        let links = chain(&lengths);
        let end = links.last().unwrap().1;
        let mut world = World::new(limit);
        world.run("base:100");
        let mut decided: Vec<Interval> = Vec::new();
        let mut next_id = 0;
        for act in acts {
            let before = world.sequencer.coverage().clone();
            match act {
                Act::Deliver(link) => {
                    let Some(&(from, until)) = links.get(link) else { continue };
                    let interval = world.span(from, until);
                    next_id += 1;
                    let verdict = world.deliver(next_id, Some(interval.from()), Some(interval.until()));
                    prop_assert!(!matches!(verdict, Verdict::CoversNothing(_)));
                    if verdict != Verdict::Hold { decided.push(interval); }
                }
                Act::Pass(seconds) => world.now = world.now.plus(Duration::from_secs(seconds)),
                Act::Settle => {
                    let held = world.inbox.clone();
                    world.settle();
                    decided.extend(held.iter().filter(|held| !world.inbox.contains(held)).map(|held| held.1));
                    prop_assert!(world.sequencer.held() <= limit, "memory is bounded");
                }
                Act::List(until) => {
                    let interval = world.span(90, until.min(end).max(90));
                    world.sequencer.cover_list(world.now, interval);
                }
                Act::Restart => world.event("restart"),
            }
            assert_sound(&world.sequencer);
            for known in before.intervals() {
                prop_assert!(world.sequencer.coverage().missing(*known).is_empty(), "coverage never shrinks");
            }
            for interval in &decided {
                prop_assert!(world.sequencer.coverage().missing(*interval).is_empty(), "a decided notification is covered");
                let recorded: Coverage = world.sequencer.gaps().iter().map(|gap| gap.interval).collect();
                for missing in world.sequencer.coverage().missing(Interval::before(interval.from())) {
                    prop_assert!(recorded.missing(missing).is_empty(), "what was lost before it is recorded as a gap");
                }
            }
            prop_assert_eq!(world.sequencer.held(), world.inbox.len());
        }
        world.run("+6");
        prop_assert_eq!(world.sequencer.held(), 0);
        let all = world.span(90, end);
        world.sequencer.cover_list(world.now, all);
        world.settle();
        prop_assert!(world.sequencer.gaps().is_empty());
        prop_assert_eq!(world.sequencer.coverage().unbroken_until(), Some(world.moment(end)));
    }

    /// Without loss, and with delays shorter than the reorder window, no gap opens and every notification is applied in order.
    #[test]
    fn delay_within_the_reorder_window_opens_no_gap(
        links in proptest::collection::vec((1_i64..6, 0_u64..3, 0_u64..5000), 1..24),
    ) {
        let lengths: Vec<i64> = links.iter().map(|link| link.0).collect();
        let chain = chain(&lengths);
        let mut sent = 0;
        let mut arrivals: Vec<(u64, usize)> = links.iter().enumerate().map(|(n, link)| {
            sent += link.1 * 1000;
            (sent + link.2, n)
        }).collect();
        arrivals.sort_unstable();
        let mut world = World::new(1024);
        world.run("base:100");
        for (at, n) in arrivals {
            world.now = world.start.plus(Duration::from_millis(at));
            world.settle();
            let interval = world.span(chain[n].0, chain[n].1);
            world.deliver(i64::try_from(n).unwrap(), Some(interval.from()), Some(interval.until()));
            world.settle();
        }
        prop_assert!(!world.log.iter().any(|line| line.starts_with("gap")), "{:?}", world.log);
        let ingested: Vec<String> = world.log.iter().filter(|line| line.ends_with("ingest")).cloned().collect();
        let in_order: Vec<String> = (0..chain.len()).map(|n| format!("{n}:ingest")).collect();
        prop_assert_eq!(ingested, in_order);
        prop_assert_eq!(world.sequencer.coverage().unbroken_until(), Some(world.moment(chain.last().unwrap().1)));
    }
}
