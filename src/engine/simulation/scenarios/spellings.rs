//! One resource, however its URI is written: by http or https, and with its escapes in any form (RFC 3986, section 6.2.2).

use resyncd_core::ResourceUri;
use url::Url;

use super::super::documents::Target;
use super::super::source::digest;
use super::notifications::{announce, stated};
use super::resource_lists::{CAPABILITIES, LIST, md, standalone_settings, urlset, wait};
use super::*;

/// How the Source writes the URI of a resource.
type Spelling = fn(Target) -> Url;

/// By http, and by https with a letter that is escaped without need.
const SPELLINGS: [Spelling; 2] = [Target::url, Target::respelled];
const OLD: Spelling = SPELLINGS[0];
const NEW: Spelling = SPELLINGS[1];

/// The entries of resources as they are now.
fn entries(
    world: &World,
    spelling: Spelling,
    resources: &[ResourceNo],
    has_digests: bool,
) -> String {
    let entry = |&resource: &ResourceNo| {
        let (uri, at) = (
            spelling(Target::Resource(resource)),
            world.changed_at(resource),
        );
        let version = world.stage.scene().source.content(resource).unwrap();
        let hash = if has_digests {
            format!("<rs:md hash=\"{}\"/>", digest(resource, version))
        } else {
            String::new()
        };
        format!("<url><loc>{uri}</loc><lastmod>{at}</lastmod>{hash}</url>")
    };
    resources.iter().map(entry).collect()
}

/// A Resource List of now.
fn list(world: &World, spelling: Spelling, resources: &[ResourceNo]) -> String {
    let head = md("resourcelist", &[("at", world.now())]);
    urlset(&(head + &entries(world, spelling, resources, true)))
}

/// What is known of a resource, by any spelling: how its URI is written, and its path.
async fn looked_up(world: &World, resource: ResourceNo) -> (Url, String) {
    let mut found = Vec::new();
    for spelling in SPELLINGS {
        let uri = ResourceUri::try_from(spelling(Target::Resource(resource))).unwrap();
        let view = world.store().resource(&uri).await.unwrap().unwrap();
        found.push((view.uri.url().clone(), view.path.unwrap()));
    }
    assert_eq!(found[0], found[1]);
    found.remove(0)
}

/// Each resource is known once, in one spelling, and has the path of its URI.
async fn assert_spelled(world: &World, spelling: Spelling, resources: &[ResourceNo]) {
    for &resource in resources {
        let uri = spelling(Target::Resource(resource));
        let path = format!("source.example/resource/{resource}");
        assert_eq!(looked_up(world, resource).await, (uri, path));
    }
    let database = world.database().await;
    assert_eq!(database.resources.len(), resources.len());
    assert_eq!(database.tasks.len(), 0);
}

fn restart() -> Act {
    Act::Order(Order::Restart {
        filtering: Filtering::Nothing,
    })
}

/// A site moves to https: no file is fetched again, no deletion is held back, all paths are the same.
#[test]
fn site_that_moves_to_https_has_the_same_resources() {
    for restarts in [false, true] {
        simulate(habits(ChangeLists::Absent), settings(), async |world| {
            let all = [0, 1, 2];
            world.write(LIST, list(world, OLD, &all));
            world.pass(5000).await;
            assert_spelled(world, OLD, &all).await;
            let contents = world.requests().contents;
            for spelling in [NEW, OLD, NEW] {
                wait(world);
                world.write(LIST, list(world, spelling, &all));
                if restarts {
                    world.act(&restart());
                    world.pass(1000).await;
                }
                poll_now(world).await;
                assert_spelled(world, spelling, &all).await;
                assert_eq!(world.requests().contents, contents);
                assert_eq!(versions(world), [Some(1); 3]);
            }
            // What changes is requested as it is written now, and absence counts.
            world.act(&Act::Change(1));
            world.act(&Act::Delete(2));
            wait(world);
            world.write(LIST, list(world, NEW, &[0, 1]));
            poll_now(world).await;
            assert_eq!(versions(world), [Some(1), Some(2), None]);
            assert_eq!(world.requests().contents, contents + 1);
            let requested = world.stage.scene().last_content.take();
            assert_eq!(requested, Some(NEW(Target::Resource(1))));
        });
    }
}

/// The same of a sitemap, which states no digests and deletes nothing.
#[test]
fn sitemap_that_moves_to_https_has_the_same_resources() {
    for restarts in [false, true] {
        simulate(
            habits(ChangeLists::Absent),
            standalone_settings(),
            async |world| {
                let all = [0, 1, 2];
                world.write(CAPABILITIES, urlset(&entries(world, OLD, &all, false)));
                world.pass(5000).await;
                assert_spelled(world, OLD, &all).await;
                let contents = world.requests().contents;
                wait(world);
                world.act(&Act::Change(1));
                wait(world);
                if restarts {
                    world.act(&restart());
                }
                world.write(CAPABILITIES, urlset(&entries(world, NEW, &all, false)));
                world.pass(1000).await;
                poll_now(world).await;
                assert_spelled(world, NEW, &all).await;
                assert_eq!(versions(world), [Some(1), Some(2), Some(1)]);
                assert_eq!(world.requests().contents, contents + 1);
                let requested = world.stage.scene().last_content.take();
                assert_eq!(requested, Some(NEW(Target::Resource(1))));
            },
        );
    }
}

/// The lists have one spelling, and the changes another.
#[test]
fn changes_of_another_spelling_than_the_list_are_applied() {
    for change_lists in [ChangeLists::Open, ChangeLists::Index] {
        for newest_first in [false, true] {
            let habits = Habits {
                respells: true,
                newest_first,
                ..habits(change_lists)
            };
            simulate(habits, settings(), async |world| {
                world.pass(5000).await;
                assert_spelled(world, OLD, &[0, 1, 2]).await;
                world.act(&Act::Change(0));
                world.act(&Act::Recreate(1));
                world.act(&Act::Delete(2));
                wait(world);
                world.act(&Act::WriteChangeLists(0));
                poll_now(world).await;
                assert_eq!(versions(world), [Some(2), Some(3), None]);
                let contents = world.requests().contents;
                assert_eq!(looked_up(world, 0).await.0, NEW(Target::Resource(0)));
                assert_eq!(looked_up(world, 2).await.0, NEW(Target::Resource(2)));
                world.act(&restart());
                wait(world);
                world.act(&Act::WriteResourceList(0));
                world.act(&Act::WriteChangeLists(0));
                poll_now(world).await;
                assert_eq!(versions(world), [Some(2), Some(3), None]);
                assert_eq!(world.requests().contents, contents);
                assert_eq!(world.database().await.resources.len(), 3);
            });
        }
    }
}

/// A hub that may not speak for the Source has what the Source lists requested as the Source writes it.
#[test]
fn untrusted_spelling_is_not_requested() {
    simulate(habits(ChangeLists::Open), wary_settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Change(1));
        wait(world);
        for (kind, expected) in [(ChangeKind::Updated, 2), (ChangeKind::Deleted, 2)] {
            let at = match kind {
                ChangeKind::Updated => world.changed_at(1),
                _ => world.now(),
            };
            let mut entry = stated(1, kind, at);
            entry.loc = NEW(Target::Resource(1));
            wait(world);
            world.stage.scene().last_content = None;
            announce(world, &[entry]).await;
            world.pass(5000).await;
            let requested = world.stage.scene().last_content.take();
            assert_eq!(requested, Some(OLD(Target::Resource(1))), "{kind:?}");
            assert_eq!(version(world, 1), Some(expected));
            assert_eq!(looked_up(world, 1).await.0, OLD(Target::Resource(1)));
        }
        assert_eq!(world.database().await.resources.len(), 3);
    });
}
