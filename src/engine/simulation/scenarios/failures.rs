//! Resources that the Source refuses or lacks, over days.

use std::time::Duration;

use super::super::daemon::NAME;
use super::change_sets::{SITEMAP, document, draft_settings};
use super::*;
use crate::clock;
use crate::status::SetStatus;

/// The first resource.
const RESOURCE: &str = "resource/0";
const DAY: u64 = 24 * HOUR;

/// Polls are as far apart as they may be in a history of days.
fn patient_settings() -> Settings {
    Settings {
        poll_interval: Duration::from_secs(3600),
        ..settings()
    }
}

/// Changes the first resource, and answers requests for it with a status from then on.
async fn change_and_refuse(world: &mut World, status: u16) {
    world.pass(5000).await;
    world.write_status(RESOURCE, status);
    world.act(&Act::Change(0));
    world.act(&Act::WriteChangeLists(0));
    poll_now(world).await;
}

/// How often the first resource was requested since this was asked last.
fn requests(world: &World) -> usize {
    let requested = world.take_requested().into_iter();
    requested.filter(|path| path == RESOURCE).count()
}

/// Polls once a minute, for so many minutes.
async fn poll_for(world: &mut World, minutes: u64) {
    for _ in 0..minutes {
        world.act(&poll());
        world.pass(60_000).await;
    }
}

async fn set(world: &World) -> SetStatus {
    world.status().await.remove(0)
}

#[test]
fn what_the_source_lacks_is_requested_with_pauses_that_grow_whatever_the_polls() {
    for status in [404, 403] {
        simulate(habits(ChangeLists::Open), settings(), async |world| {
            change_and_refuse(world, status).await;
            poll_for(world, 60).await;
            let first_hour = requests(world);
            assert!((6..=16).contains(&first_hour), "{status}: {first_hour}");
            assert_eq!(set(world).await.failed, 1);
            poll_for(world, 60).await;
            let second_hour = requests(world);
            assert!(second_hour <= 2, "{status}: {second_hour}");
            // A newer statement is a reason to ask at once, and so is a person.
            world.act(&Act::Change(0));
            world.act(&Act::WriteChangeLists(0));
            poll_now(world).await;
            assert!(requests(world) >= 2);
            poll_for(world, 60).await;
            requests(world);
            let now = clock::now().wall;
            let retried = world.store().retry_given_up(NAME, now, || true).await;
            assert_eq!(retried.unwrap(), 1);
            world.pass(5000).await;
            assert!(requests(world) >= 2);
            world.unwrite(RESOURCE);
            poll_for(world, 10).await;
            assert_eq!((version(world, 0), set(world).await.failed), (Some(3), 0));
        });
    }
}

/// Lists and Change Lists that state the same again and again are no news.
#[test]
fn what_the_source_refuses_for_a_week_is_unavailable_until_it_serves_it() {
    for status in [404, 410, 403] {
        for is_served in [true, false] {
            let settings = patient_settings();
            simulate(habits(ChangeLists::Open), settings, async |world| {
                change_and_refuse(world, status).await;
                let stuck = claim(world).await;
                for day in 1..=9 {
                    world.act(&Act::WriteResourceList(0));
                    world.act(&Act::Change(1));
                    world.act(&Act::WriteChangeLists(0));
                    world.pass(DAY).await;
                    let set = set(world).await;
                    if day < 7 {
                        assert_eq!((set.failed, set.unavailable), (1, 0), "{status}, {day}");
                        assert_eq!(set.attention.len(), 1);
                        assert_eq!(claim(world).await, stuck);
                    }
                }
                let day = requests(world);
                let found = set(world).await;
                assert_eq!((found.failed, found.unavailable), (0, 1), "{status}, {day}");
                assert_eq!(found.state, "in-sync");
                assert!(found.attention.is_empty() && found.errors.is_empty());
                let claimed = claim(world).await;
                assert!(claimed > stuck);
                world.pass(4 * DAY).await;
                let in_four_days = requests(world);
                assert!((3..=5).contains(&in_four_days), "{status}: {in_four_days}");
                assert_eq!(set(world).await.state, "in-sync");
                world.unwrite(RESOURCE);
                if !is_served {
                    world.act(&Act::Change(0));
                    world.act(&Act::WriteChangeLists(0));
                    poll_now(world).await;
                } else {
                    world.pass(DAY + HOUR).await;
                }
                let set = set(world).await;
                assert_eq!((set.failed, set.unavailable), (0, 0));
                assert_eq!(version(world, 0), Some(if is_served { 2 } else { 3 }));
                assert!(claim(world).await >= claimed);
            });
        }
    }
}

/// The site has nothing but a sitemap.
#[test]
fn what_robots_txt_disallows_is_unavailable_until_it_allows_it() {
    const ROBOTS: &str = "robots.txt";
    let settings = Settings {
        configure: draft_settings().configure,
        ..patient_settings()
    };
    simulate(habits(ChangeLists::Absent), settings, async |world| {
        let listed = world.listed();
        let (_, entries) = listed.split_once("/>").unwrap();
        world.write(SITEMAP, document("", entries));
        world.write(ROBOTS, "User-agent: *\nDisallow: /resource/0\n");
        poll_now(world).await;
        for days in [0, 4] {
            world.take_requested();
            world.pass(days * DAY).await;
            let found = set(world).await;
            assert_eq!((found.failed, found.unavailable), (0, 1));
            assert_eq!((&*found.state, found.attention.len()), ("in-sync", 0));
            assert_eq!(versions(world), [None, Some(1), Some(1)]);
            let requested = world.take_requested().into_iter();
            let read = requested.filter(|path| path == ROBOTS).count() as u64;
            assert!((days.saturating_sub(1)..=days).contains(&read), "{read}");
        }
        world.write(ROBOTS, "User-agent: *\nDisallow: /other\n");
        world.pass(DAY + HOUR).await;
        let found = set(world).await;
        assert_eq!((found.failed, found.unavailable), (0, 0));
        assert_eq!(versions(world), [Some(1), Some(1), Some(1)]);
    });
}
