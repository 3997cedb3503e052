//! Deletions that Change Sets of version 0.1 state, and the Sitemap beside them.

use resourcesync::SourceTime;

use super::super::handwritten::uri;
use super::reports::{draft, sitemap};
use super::*;

/// Where the Sitemap is: the simulated Source has its Capability List there, if nothing else is written.
const SITEMAP: &str = "set0/capabilitylist.xml";

/// The entry of a Change Set.
fn stated(resource: ResourceNo, kind: &str, at: SourceTime) -> String {
    let uri = uri(&format!("resource/{resource}"));
    format!("<url><loc>{uri}</loc><lastmod rs:type=\"{kind}\">{at}</lastmod></url>")
}

/// A deletion whose time is that of the last modification, as in the examples of the draft, ends what a Sitemap lists of that time,
/// whether it was fetched meanwhile or not: the Change Set alone states what has happened then. An older one does not, nor does an
/// update of that time have the resource fetched again.
#[test]
fn deletion_of_a_change_set_ends_what_the_sitemap_lists_of_the_same_time() {
    let settings = Settings {
        configure: |source| source.sets.push(uri(SITEMAP)),
        ..settings()
    };
    for is_fetched in [false, true] {
        simulate(habits(ChangeLists::Absent), settings, async |world| {
            let begin = world.moment();
            world.stage.set_moment(begin + 500);
            world.act(&Act::DeleteLate(2));
            let mut changes = stated(2, "deleted", world.changed_at(2));
            world.stage.set_moment(begin + 1000);
            for resource in 0..3 {
                world.act(&Act::Change(resource));
            }
            changes += &stated(0, "updated", world.changed_at(0));
            let at = world.changed_at(1);
            let set_of = |changes: &str| draft("rs:type=\"changeset\"", changes);
            world.write("a.xml", set_of(&changes));
            world.stage.set_moment(begin + 3000);
            changes += &stated(1, "deleted", at);
            let current = uri("a.xml");
            let head = format!(
                "<xhtml:meta name=\"DCTERMS.modified\" content=\"{}\"/>\
                 <xhtml:link href=\"{current}\" \
                 rel=\"current http://www.openarchives.org/rs/changeset\"/>",
                world.now()
            );
            world.write(SITEMAP, sitemap(world, &head));
            if is_fetched {
                world.pass(20_000).await;
                let found = [0, 1, 2].map(|it| version(world, it));
                assert_eq!(found, [Some(2), Some(2), Some(3)]);
            }
            world.act(&Act::DeleteLate(1));
            world.write("a.xml", set_of(&changes));
            world.act(&poll());
            world.pass(20_000).await;
            let found = [0, 1, 2].map(|it| version(world, it));
            assert_eq!(found, [Some(2), None, Some(3)], "{is_fetched}");
            let before = world.requests().contents;
            world.act(&poll());
            world.pass(20_000).await;
            assert_eq!(world.requests().contents, before, "{is_fetched}");
        });
    }
}
