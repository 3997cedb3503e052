//! The worker of a set: what the Capability List offers, when polls are due, gaps, retries, and errors of the database.

use chrono::{DateTime, TimeDelta};

use super::super::handwritten::uri;
use super::super::packages::archive;
use super::super::source::DumpOffer;
use super::resource_lists::{CAPABILITIES, LIST, md, standalone_settings, urlset};
use super::*;
use crate::clock;

/// Where the Source Description is.
const DESCRIPTION: &str = ".well-known/resourcesync";

/// Where the first Change List is.
const CHANGES: &str = "set0/changes1.xml";

/// The entry of a document.
fn pointer(path: &str, capability: &str) -> String {
    let uri = uri(path);
    format!("<url><loc>{uri}</loc><rs:md capability=\"{capability}\"/></url>")
}

/// A Capability List that offers a Resource List.
fn capability_list(others: &str) -> String {
    let head = md("capabilitylist", &[]) + others;
    urlset(&(head + &pointer(LIST, "resourcelist")))
}

fn restart() -> Act {
    Act::Order(Order::Restart {
        filtering: Filtering::Nothing,
    })
}

/// How many Change Lists a poll requests.
async fn change_lists_polled(world: &mut World) -> u64 {
    let before = world.requests().change_lists;
    poll_now(world).await;
    world.requests().change_lists - before
}

/// Of what a Capability List states, only the offers are stored: a process that begins reads it, changed or not.
#[test]
fn capability_list_is_read_once_after_each_start() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        let about = format!("<rs:ln rel=\"describedby\" href=\"{}\"/>", uri("about.xml"));
        world.write(CAPABILITIES, capability_list(&about));
        world.pass(5000).await;
        // Then nothing but the set itself leads to it.
        world.write_status(DESCRIPTION, 503);
        for _ in 0..2 {
            let set = world.status().await.remove(0);
            assert_eq!(set.describedby, ["http://source.example/about.xml"]);
            world.act(&restart());
            world.pass(5000).await;
        }
    });
}

/// Notifications that are lost again and again open gaps, which the Change List fills. That is no poll, and postpones none.
#[test]
fn gaps_that_are_filled_postpone_no_poll() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        for _ in 0..10 {
            world
                .run(&[
                    Act::Change(0),
                    Act::Pass(10),
                    Act::Publish(0, Fate::Lost),
                    Act::Pass(1000),
                    Act::Change(1),
                    Act::WriteChangeLists(0),
                    Act::Pass(10),
                    Act::Publish(0, AT_ONCE),
                    Act::Pass(200_000),
                ])
                .await;
            assert_eq!(gaps(world).await, 0);
        }
        let set = world.status().await.remove(0);
        let last = DateTime::parse_from_rfc3339(&set.last_poll_at.unwrap()).unwrap();
        let age = clock::now().wall - last.to_utc();
        assert!(
            age <= TimeDelta::seconds(900),
            "the last poll was {age} ago"
        );
    });
}

/// What was a Capability List does not become a set of a Sitemap: that is an error, and what was offered is followed on.
#[test]
fn capability_list_does_not_become_a_sitemap() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        let entry = format!("<url><loc>{}</loc></url>", uri("resource/0"));
        world.write(CAPABILITIES, urlset(&entry));
        world.act(&Act::Change(1));
        world.act(&Act::WriteChangeLists(0));
        poll_now(world).await;
        assert!(errors(world).await[0].is_some());
        assert_eq!(version(world, 1), Some(2));
    });
}

/// Damaged entries of a Capability List may offer what it offered before, and that is followed on; one that is not damaged ends it.
#[test]
fn damaged_capability_list_offers_what_it_offered_before() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        let damaged = "<url><loc>http://source.example/&unknown;</loc></url>";
        let list = capability_list("").replace("</urlset>", &format!("{damaged}</urlset>"));
        world.write(CAPABILITIES, list);
        for _ in 0..2 {
            world.act(&Act::Change(1));
            world.act(&Act::WriteChangeLists(0));
            assert_eq!(change_lists_polled(world).await, 1);
        }
        assert_eq!(version(world, 1), Some(3));
        world.write(CAPABILITIES, capability_list(""));
        assert_eq!(change_lists_polled(world).await, 0);
    });
}

/// The status states no deviations of a document that is offered no more.
#[test]
fn document_that_is_offered_no_more_leaves_the_status() {
    let habits = Habits {
        lists_say_from: false,
        ..habits(ChangeLists::Open)
    };
    simulate(habits, settings(), async |world| {
        let odd = async |world: &World| {
            let set = world.status().await.remove(0);
            let documents = set.oddities.into_iter().map(|oddity| oddity.document);
            documents.collect::<Vec<_>>()
        };
        world.pass(5000).await;
        let list = uri(CHANGES).to_string();
        assert!(odd(world).await.contains(&list));
        // What is offered on keeps its own.
        let untimed = world.now();
        let entries = format!(
            "<url><loc>{}</loc></url><url><loc>{}</loc></url><url><loc>{}</loc></url>",
            uri("resource/0"),
            uri("resource/1"),
            uri("resource/2")
        );
        let content = md("resourcelist", &[("at", untimed)]) + &entries;
        world.write(LIST, urlset(&content));
        poll_now(world).await;
        let kept = uri(LIST).to_string();
        assert!(odd(world).await.contains(&kept));
        world.write(CAPABILITIES, capability_list(""));
        poll_now(world).await;
        let left = odd(world).await;
        assert!(!left.contains(&list), "{left:?}");
        assert!(left.contains(&kept), "{left:?}");
    });
}

/// What a Sitemap names is stored when it changes: a process that begins follows it, also while the Sitemap can't be read.
#[test]
fn change_set_that_a_sitemap_names_is_stored() {
    simulate(
        habits(ChangeLists::Absent),
        standalone_settings(),
        async |world| {
            let link = |which: &str, path: &str| {
                let relation = "http://www.openarchives.org/rs/changeset";
                let uri = uri(path);
                format!("<xhtml:link href=\"{uri}\" rel=\"{which} {relation}\"/>")
            };
            let updated = |world: &World, resource: usize| {
                let (uri, at) = (
                    uri(&format!("resource/{resource}")),
                    world.changed_at(resource),
                );
                format!("<url><loc>{uri}</loc><lastmod rs:type=\"updated\">{at}</lastmod></url>")
            };
            let change_set = |content: &str| {
                urlset(content).replacen("<urlset", "<urlset rs:type=\"changeset\"", 1)
            };
            let entries: String = (0..3)
                .map(|resource| updated(world, resource).replace(" rs:type=\"updated\"", ""))
                .collect();
            let first = updated(world, 0);
            world.write("a.xml", change_set(&first));
            world.write(CAPABILITIES, urlset(&(link("current", "a.xml") + &entries)));
            world.pass(5000).await;
            world.act(&Act::Change(1));
            world.pass(1000).await;
            let second = link("prev", "a.xml") + &first + &updated(world, 1);
            world.write("b.xml", change_set(&second));
            world.write(CAPABILITIES, urlset(&(link("current", "b.xml") + &entries)));
            poll_now(world).await;
            assert_eq!(version(world, 1), Some(2));
            world.write_status(CAPABILITIES, 503);
            world.take_requested();
            world.act(&restart());
            world.pass(5000).await;
            let mut requested = world.take_requested();
            requested.retain(|path| path != CAPABILITIES);
            requested.dedup();
            assert_eq!(requested, ["b.xml"]);
        },
    );
}

/// The package that is being read has the bytes of what waits for a retry: it does not wait any longer.
#[test]
fn package_ends_the_wait_for_a_retry() {
    let habits = Habits {
        change_dump: DumpOffer::InPlace,
        ..habits(ChangeLists::Open)
    };
    simulate(habits, settings(), async |world| {
        world.pass(10_000).await;
        world.act(&Act::Contents(false));
        world.act(&Act::Change(0));
        world.pass(10).await;
        world.act(&Act::Publish(0, AT_ONCE));
        world.pass(20_000).await;
        assert_eq!(version(world, 0), Some(1));
        world.act(&Act::WriteChangeLists(0));
        let end = world.moment() + 5000;
        poll_now(world).await;
        assert_eq!(version(world, 0), Some(2));
        assert_eq!(world.moment(), end);
    });
}

/// A missed notification over a transport without intervals shows in nothing that follows: a poll looks for what it has stated, a minute
/// later.
#[test]
fn missed_notification_without_interval_causes_a_poll() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Change(0));
        world.act(&Act::WriteChangeLists(0));
        world.miss(0).await;
        world.pass(50_000).await;
        assert_eq!(version(world, 0), Some(1));
        world.pass(20_000).await;
        assert_eq!(version(world, 0), Some(2));
    });
}

/// An error of the database is shown as long as it lasts.
#[test]
fn database_error_is_shown_until_it_is_over() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        assert_eq!(errors(world).await, [None]);
        world.act(&Act::FailQuery(0));
        world.act(&poll());
        world.pass(100).await;
        assert!(errors(world).await[0].is_some());
        world.pass(10_000).await;
        assert_eq!(errors(world).await, [None]);
    });
}

/// A gap keeps its reason when the process ends.
#[test]
fn gap_keeps_its_reason() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        world.act(&Act::Change(0));
        world.pass(10).await;
        world.act(&Act::Publish(0, Fate::Lost));
        world.pass(1000).await;
        world.act(&Act::Change(1));
        world.pass(10).await;
        world.act(&Act::Publish(0, AT_ONCE));
        world.pass(10_000).await;
        for _ in 0..2 {
            let set = world.status().await.remove(0);
            let reasons: Vec<_> = set.gaps.into_iter().map(|gap| gap.reason).collect();
            assert_eq!(reasons, ["missing-notification"]);
            world.act(&restart());
            world.pass(1000).await;
        }
    });
}

/// A Change List that is older than it was is reported, until it is newer again.
#[test]
fn older_change_list_is_reported() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        let begin = world.now();
        world.pass(5000).await;
        let list = |world: &World| {
            let times = [("from", begin), ("until", world.now())];
            urlset(&md("changelist", &times))
        };
        let older = list(world);
        world.pass(1000).await;
        world.write(CHANGES, list(world));
        poll_now(world).await;
        let claimed = claim(world).await;
        assert_eq!(errors(world).await, [None]);
        world.write(CHANGES, older);
        poll_now(world).await;
        assert_eq!(errors(world).await, [Some("older-change-list".to_owned())]);
        assert_eq!(claim(world).await, claimed);
        world.write(CHANGES, list(world));
        poll_now(world).await;
        assert_eq!(errors(world).await, [None]);
        assert_eq!(versions(world), [Some(1); 3]);
    });
}

/// The Change List begins after a gap, and the Change Dump ends within it: neither covers what is between them, so that the Resource List is
/// read at once.
#[test]
fn hole_between_change_list_and_change_dump_is_left_to_the_resource_list() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        let begin = world.now();
        world.pass(5000).await;
        let times = [("from", begin), ("until", world.now())];
        world.write("set0/changedump.xml", urlset(&md("changedump", &times)));
        world.pass(1000).await;
        world.act(&Act::Change(1));
        world.pass(1000).await;
        let from = world.now();
        world.pass(1000).await;
        world.act(&Act::Change(2));
        let (uri, at) = (uri("resource/2"), world.changed_at(2));
        let entry =
            format!("<url><loc>{uri}</loc><rs:md change=\"updated\" datetime=\"{at}\"/></url>");
        world.write(
            CHANGES,
            urlset(&(md("changelist", &[("from", from)]) + &entry)),
        );
        let list = pointer(CHANGES, "changelist") + &pointer("set0/changedump.xml", "changedump");
        world.write(
            CAPABILITIES,
            capability_list("").replace("</urlset>", &(list + "</urlset>")),
        );
        world.pass(1000).await;
        world.act(&Act::WriteResourceList(0));
        poll_now(world).await;
        assert_eq!(gaps(world).await, 0);
        assert_eq!(versions(world), [Some(1), Some(2), Some(2)]);
    });
}

/// Where neither the Change List nor the Change Dump can be read, the status states the error of the former.
#[test]
fn error_of_the_change_list_precedes_that_of_the_change_dump() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        world.pass(5000).await;
        world.write(CHANGES, urlset(&md("resourcelist", &[])));
        world.write_status("set0/changedump.xml", 503);
        let list = pointer(CHANGES, "changelist") + &pointer("set0/changedump.xml", "changedump");
        world.write(
            CAPABILITIES,
            capability_list("").replace("</urlset>", &(list + "</urlset>")),
        );
        poll_now(world).await;
        assert_eq!(errors(world).await, [Some("wrong-capability".to_owned())]);
    });
}

/// An entry whose bytes are not in the package is not waited for: its resource may be unavailable for any time.
#[test]
fn entry_without_a_member_is_not_waited_for() {
    let habits = Habits {
        resource_dump: DumpOffer::InPlace,
        ..habits(ChangeLists::Absent)
    };
    simulate(habits, settings(), async |world| {
        world.pass(10_000).await;
        world.act(&Act::Contents(false));
        world.act(&Act::Change(0));
        world.pass(1000).await;
        let at = [("at", world.now())];
        let entries = (0..3).map(|resource| {
            let at = world.changed_at(resource);
            let uri = uri(&format!("resource/{resource}"));
            format!("<url><loc>{uri}</loc><lastmod>{at}</lastmod></url>")
        });
        let entries: String = entries.collect();
        let manifest = urlset(&(md("resourcedump-manifest", &at) + &entries));
        world.write("set0/p.zip", archive(manifest.into(), Vec::new()));
        let package = uri("set0/p.zip");
        let package = format!("<url><loc>{package}</loc><rs:md type=\"application/zip\"/></url>");
        world.write(
            "set0/resourcedump.xml",
            urlset(&(md("resourcedump", &at) + &package)),
        );
        let end = world.moment() + 5000;
        poll_now(world).await;
        assert_eq!(world.moment(), end);
        assert_eq!(world.database().await.tasks.len(), 1);
        world.act(&Act::Contents(true));
        world.pass(HOUR).await;
        assert_eq!(versions(world), [Some(2), Some(1), Some(1)]);
    });
}

/// A poll is one of the documents of its set: the sets of the Source are not discovered with each.
#[test]
fn poll_discovers_no_sets() {
    simulate(habits(ChangeLists::Open), settings(), async |world| {
        let entry = pointer(CAPABILITIES, "capabilitylist");
        world.write(DESCRIPTION, urlset(&(md("description", &[]) + &entry)));
        world.pass(5000).await;
        assert!(world.take_requested().contains(&DESCRIPTION.to_owned()));
        poll_now(world).await;
        world.pass(1000).await;
        assert!(world.take_requested().is_empty());
    });
}
