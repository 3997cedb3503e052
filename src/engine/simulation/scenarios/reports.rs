//! What the status states of the documents of a set: their oddities, the parts that can't be read, and what is notable but no
//! error.

use resourcesync::{Capability, Entry, Head, Link, Root, write_document};

use super::super::handwritten::uri;
use super::notifications::begun;
use super::*;

/// An `up` link that leads elsewhere than to the Capability List is reported, once.
#[test]
fn document_of_another_capability_list_is_odd() {
    for (up, expected) in [("set0/capabilitylist.xml", 0), ("elsewhere.xml", 1)] {
        simulate(habits(ChangeLists::Open), settings(), async |world| {
            let mut head = Head::new(Root::Urlset, Capability::ChangeList);
            head.md.from = Some(world.now());
            head.links.push(Link::new("up", uri(up)));
            world.write("set0/changes1.xml", write_document(&head, &[]));
            world.pass(5000).await;
            let set = world.status().await.remove(0);
            let found = set.oddities.iter().map(|it| (it.code.as_str(), it.count));
            let found: Vec<_> = found.collect();
            assert_eq!(found, vec![("wrong-up", 1); expected], "{up}");
        });
    }
}

/// A Sitemap of what the Source has now: it states no capability. `first`: what precedes its entries.
pub(super) fn sitemap(world: &World, first: &str) -> String {
    let scene = world.stage.scene();
    let entries = scene.source.resources().filter_map(|resource| {
        scene.source.content(resource)?;
        let at = scene.source.last_change(resource)?.at;
        let uri = uri(&format!("resource/{resource}"));
        Some(format!(
            "<url><loc>{uri}</loc><lastmod>{at}</lastmod></url>"
        ))
    });
    let entries: String = entries.collect();
    draft("", &(first.to_owned() + &entries))
}

/// A document with that content, which may be of version 0.1.
pub(super) fn draft(attributes: &str, content: &str) -> String {
    format!(
        "<urlset {attributes} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">{content}</urlset>"
    )
}

/// That absence from a list proves nothing is shown as an error where the list should have stated what it is, and as a notice
/// where it is no more than a Sitemap.
#[test]
fn list_that_does_not_state_what_it_is_is_reported() {
    let as_set = Settings {
        configure: |source| source.sets.push(uri("set0/capabilitylist.xml")),
        ..settings()
    };
    let code = "unstated-capability";
    for (settings, path, error, notice) in [
        (settings(), "set0/resourcelist.xml", Some(code), None),
        (as_set, "set0/capabilitylist.xml", None, Some(code)),
    ] {
        simulate(habits(ChangeLists::Absent), settings, async |world| {
            let sitemap = sitemap(world, "");
            world.write(path, sitemap);
            world.pass(5000).await;
            let shown = notices(world).await;
            let shown: Vec<&str> = shown.iter().map(|(code, _)| code.as_str()).collect();
            assert_eq!(shown, Vec::from_iter(notice), "{path}");
            let found = errors(world).await.remove(0);
            assert_eq!(found.as_deref(), error, "{path}");
            assert_eq!(version(world, 0), Some(1));
        });
    }
}

/// Each part of an index that can't be read is counted: one that the Source must repair is dead, one that fails may pass.
#[test]
fn parts_that_can_not_be_read_are_counted() {
    for (status, code, dead) in [(404, "not-found", 2), (503, "http-status", 0)] {
        let habits = habits(ChangeLists::Index);
        begun(habits, settings(), async |world| {
            let mut head = Head::new(Root::Sitemapindex, Capability::ChangeList);
            head.md.from = Some(world.stage.scene().source.stamp(100_000));
            let entries = ["set0/changes1.xml", "a.xml", "b.xml"].map(|path| {
                let mut entry = Entry::new(uri(path));
                entry.md.from = head.md.from;
                entry
            });
            world.write_status("a.xml", status);
            world.write_status("b.xml", status);
            world.write("set0/changelist.xml", write_document(&head, &entries));
            world.act(&poll());
            world.pass(1000).await;
            let set = world.status().await.remove(0);
            let found = set.errors.iter().map(|it| (it.code.as_str(), it.count));
            let found: Vec<_> = found.collect();
            assert_eq!((found, set.dead_parts), (vec![(code, 2)], dead));
        });
    }
}
