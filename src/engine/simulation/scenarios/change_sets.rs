//! Sources of version 0.1: a Sitemap stands for the Capability List, and its head names Change Sets, each of which names the one before.

use std::fmt::Write as _;

use resourcesync::SourceTime;

use super::super::handwritten::uri;
use super::*;

/// Where the Sitemap is: the simulated Source has its Capability List there, if nothing else is written.
pub(super) const SITEMAP: &str = "set0/capabilitylist.xml";

/// The code of the notice that earlier Change Sets are not read.
const CUT: &str = "change-sets-cut";

/// The attribute of a Change Set.
pub(super) const TYPE: &str = "rs:type=\"changeset\"";

/// The Sitemap is configured as a set, because no document of the Source names it.
pub(super) fn draft_settings() -> Settings {
    Settings {
        configure: |source| source.sets.push(uri(SITEMAP)),
        ..settings()
    }
}

fn change_set_link(which: &str, path: &str) -> String {
    let uri = uri(path);
    format!("<xhtml:link href=\"{uri}\" rel=\"{which} http://www.openarchives.org/rs/changeset\"/>")
}

pub(super) fn document(attributes: &str, content: &str) -> String {
    format!(
        "<urlset {attributes} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">{content}</urlset>"
    )
}

impl World {
    /// The Sitemap of what there is now, but for the link of its head.
    pub(super) fn listed(&self) -> String {
        let mut content = format!(
            "<xhtml:meta name=\"DCTERMS.modified\" content=\"{}\"/>",
            self.now()
        );
        let scene = self.stage.scene();
        for resource in 0..RESOURCES {
            if scene.source.content(resource).is_some() {
                let at = scene.source.last_change(resource).unwrap().at;
                let uri = uri(&format!("resource/{resource}"));
                let _ = write!(
                    content,
                    "<url><loc>{uri}</loc><lastmod>{at}</lastmod></url>"
                );
            }
        }
        content
    }

    /// Writes a Sitemap of what was listed some time, whose head names the current Change Set.
    pub(super) fn write_sitemap(&self, listed: &str, current: &str) {
        let content = change_set_link("current", current) + listed;
        self.write(SITEMAP, document("", &content));
    }

    /// Changes resources, one a second, and writes a Change Set of these changes. `before`: the one before it.
    async fn change_and_write(&mut self, path: &str, before: Option<&str>, resources: &[usize]) {
        let mut content = before.map_or_else(String::new, |path| change_set_link("prev", path));
        for &resource in resources {
            self.pass(1000).await;
            self.act(&Act::Change(resource));
            content += &updated(resource, self.changed_at(resource));
        }
        self.pass(1000).await;
        self.write(path, document(TYPE, &content));
    }

    /// The documents that a poll requests, but the Sitemap.
    async fn poll_requests(&mut self) -> Vec<String> {
        self.take_requested();
        poll_now(self).await;
        let mut requested = self.take_requested();
        requested.retain(|path| path != SITEMAP);
        requested
    }
}

pub(super) fn updated(resource: usize, at: SourceTime) -> String {
    let uri = uri(&format!("resource/{resource}"));
    format!("<url><loc>{uri}</loc><lastmod rs:type=\"updated\">{at}</lastmod></url>")
}

/// A world that has read the Sitemap and the first Change Set, which has a change of the first resource. `run` gets what the Sitemap lists.
fn begun(run: impl AsyncFnOnce(&mut World, &str)) {
    simulate(
        habits(ChangeLists::Absent),
        draft_settings(),
        async |world| {
            let listed = world.listed();
            world.write_sitemap(&listed, "a.xml");
            let mut changes = updated(2, world.changed_at(2));
            world.pass(1000).await;
            world.act(&Act::Change(0));
            changes += &updated(0, world.changed_at(0));
            world.pass(1000).await;
            world.write("a.xml", document(TYPE, &changes));
            poll_now(world).await;
            assert_eq!(versions(world), [Some(2), Some(1), Some(1)]);
            assert_eq!(claim(world).await, Some(world.changed_at(0)));
            run(world, &listed).await;
        },
    );
}

/// The sets are followed backwards until one has a change that is known, and no further.
#[test]
fn change_sets_are_followed_back_to_a_known_change() {
    begun(async |world, listed| {
        world.change_and_write("b.xml", Some("a.xml"), &[1]).await;
        world.change_and_write("c.xml", Some("b.xml"), &[2]).await;
        world.write_sitemap(listed, "c.xml");
        let requested = world.poll_requests().await;
        // First the one before once more, because the Sitemap names it no longer.
        assert_eq!(requested, ["a.xml", "c.xml", "b.xml", "a.xml"]);
        assert_eq!(versions(world), [Some(2); 3]);
        assert_eq!(claim(world).await, Some(world.changed_at(2)));
        assert_eq!(gaps(world).await, 0);
        world.change_and_write("d.xml", Some("c.xml"), &[1]).await;
        world.change_and_write("e.xml", Some("d.xml"), &[0]).await;
        world.write_sitemap(listed, "e.xml");
        let requested = world.poll_requests().await;
        assert_eq!(requested, ["c.xml", "e.xml", "d.xml", "c.xml"]);
        assert_eq!(world.poll_requests().await, ["e.xml"]);
        // The later of two changes that are known is in the set itself: nothing before it is needed.
        let mut again = updated(0, world.changed_at(0));
        world.pass(1000).await;
        world.act(&Act::Change(2));
        again += &updated(2, world.changed_at(2));
        world.pass(1000).await;
        let content = change_set_link("prev", "d.xml") + &again;
        world.write("e.xml", document(TYPE, &content));
        assert_eq!(world.poll_requests().await, ["e.xml"]);
        assert_eq!(versions(world), [Some(3), Some(3), Some(3)]);
    });
}

/// While the one before can't be fetched, nothing is covered, and what was read is read again at the next poll.
#[test]
fn change_set_that_fails_is_read_later() {
    begun(async |world, listed| {
        let claimed = claim(world).await;
        world.write_status("b.xml", 503);
        world.act(&Act::Change(1));
        let before = change_set_link("prev", "a.xml") + &updated(1, world.changed_at(1));
        world.change_and_write("c.xml", Some("b.xml"), &[2]).await;
        world.write_sitemap(listed, "c.xml");
        for _ in 0..2 {
            poll_now(world).await;
            assert!(errors(world).await[0].is_some());
            assert_eq!(claim(world).await, claimed);
            assert_eq!(gaps(world).await, 0);
        }
        // What could be read is applied all the same.
        assert_eq!(versions(world), [Some(2), Some(1), Some(2)]);
        world.write("b.xml", document(TYPE, &before));
        poll_now(world).await;
        assert_eq!(errors(world).await, [None]);
        assert_eq!(claim(world).await, Some(world.changed_at(2)));
        assert_eq!(versions(world), [Some(2); 3]);
    });
}

/// Where the one before is gone, or the sets name each other, what they do not have is a gap, until the Sitemap fills it.
#[test]
fn chain_that_breaks_off_leaves_a_gap_until_the_sitemap_is_read() {
    for before in ["c.xml", "b.xml", "gone.xml"] {
        begun(async |world, listed| {
            let claimed = claim(world).await;
            world.act(&Act::Change(1));
            world.pass(1000).await;
            world.change_and_write("b.xml", Some("c.xml"), &[0]).await;
            world.change_and_write("c.xml", Some(before), &[2]).await;
            world.write_sitemap(listed, "c.xml");
            poll_now(world).await;
            assert_eq!(gaps(world).await, 1, "{before}");
            assert_eq!(claim(world).await, claimed, "{before}");
            assert!(has_notice(world, CUT).await, "{before}");
            // The gap stays, and with it the notice: the change that is known lies behind it.
            world.change_and_write("d.xml", Some("c.xml"), &[2]).await;
            world.write_sitemap(listed, "d.xml");
            poll_now(world).await;
            assert!(has_notice(world, CUT).await, "{before}");
            let listed = world.listed();
            world.write_sitemap(&listed, "d.xml");
            world.pass(2 * HOUR).await;
            let found = (gaps(world).await, versions(world)[1]);
            assert_eq!(found, (0, Some(2)), "{before}");
            // A chain that is whole again ends it.
            world.change_and_write("e.xml", Some("d.xml"), &[2]).await;
            world.write_sitemap(&listed, "e.xml");
            poll_now(world).await;
            assert!(!has_notice(world, CUT).await, "{before}");
        });
    }
}
