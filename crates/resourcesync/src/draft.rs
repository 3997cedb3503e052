//! The dialect of the draft of version 0.1 (13 August 2012): what it has that version 1.0 has in another form, or not at all.
//!
//! The reader maps its elements and attributes to those of version 1.0. What is left is here: a Sitemap stands for the Capability
//! List, because its head names the Change Sets, the dumps and the interfaces of pushing.
//!
//! Sections 4.2 (dumps), 5 (Change Sets and pushing) and 6.1 (historical Change Sets).

use url::{Url, form_urlencoded};

use super::uri::is_web;
use super::{Capability, Entry, Head, Root, SourceTime};
pub use crate::document::PushInterface;
pub use crate::pubsub::{MAX_JID_PART, node_of};

/// The relation of a Change Set, beside `current` or `prev`.
pub(super) const CHANGE_SET_RELATION: &str = "http://www.openarchives.org/rs/changeset";
/// The relation of a dump.
pub(super) const DUMP_RELATION: &str = "http://www.openarchives.org/rs/dump";
/// The relation of the part of a resource that has changed, in a form that its protocol defines. It is not used.
pub(super) const PARTIAL_RELATION: &str = "http://www.openarchives.org/rs/partial";

/// Whether a document is a Change Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSetEvidence {
    /// It is: its root element says so, or what its head names.
    Certain,
    /// Each entry states a change, as those of Change Sets do, and those of a Sitemap may.
    Entries,
    /// It is none.
    None,
}

impl Head {
    /// Whether the document with this head is a Change Set. Without `rs:type` it is one that names the Change Set before it, or itself as
    /// the current one, if each entry states a change. `uris`: its own. `all_state_changes`: whether each of its entries states a change;
    /// `None`: it has none.
    pub fn change_set_evidence(
        &self,
        uris: &[&Url],
        all_state_changes: Option<bool>,
    ) -> ChangeSetEvidence {
        let is_typed = self.md.capability == Some(Capability::ChangeList) && self.is_change_set;
        let is_open = self.md.capability.is_none() && self.root == Root::Urlset;
        let is_own = |current: &Url| uris.contains(&current);
        let is_in_chain =
            self.previous_change_set().is_some() || self.current_change_set().is_some_and(is_own);
        match all_state_changes {
            _ if is_typed => ChangeSetEvidence::Certain,
            None | Some(true) if is_open && is_in_chain => ChangeSetEvidence::Certain,
            Some(true) if is_open => ChangeSetEvidence::Entries,
            _ => ChangeSetEvidence::None,
        }
    }

    /// The Change Set with the latest changes.
    pub fn current_change_set(&self) -> Option<&Url> {
        self.change_set("current")
    }

    /// The Change Set that precedes this one, or the latest one of those that are historical.
    pub fn previous_change_set(&self) -> Option<&Url> {
        self.change_set("prev")
    }

    fn change_set(&self, which: &str) -> Option<&Url> {
        let mut links = self.links.iter();
        let link = links.find(|link| link.is(CHANGE_SET_RELATION) && link.is(which));
        link.map(|link| &link.href)
    }

    /// Whether it names a Change Set.
    pub fn names_change_set(&self) -> bool {
        self.current_change_set().is_some() || self.previous_change_set().is_some()
    }

    /// Whether it names a Change Set or a dump.
    pub fn names_documents(&self) -> bool {
        self.names_change_set() || self.dumps().next().is_some()
    }

    /// Whether it names a Change Set, a dump, or an interface of pushing.
    pub fn names_offers(&self) -> bool {
        let names_push = self.nodes().next().is_some() || self.web_interfaces().next().is_some();
        self.names_documents() || names_push
    }

    /// The nodes of PubSub services at which changes are published (section 5.2.1).
    pub fn nodes(&self) -> impl Iterator<Item = Url> {
        self.interfaces.iter().filter_map(PushInterface::as_node)
    }

    /// The interfaces of pushing that are requested over HTTP: a callback is registered there (section 5.2.2).
    pub fn web_interfaces(&self) -> impl Iterator<Item = &PushInterface> {
        let interfaces = self.interfaces.iter();
        interfaces.filter(|interface| is_web(&interface.href))
    }

    /// The dumps, each of them a package.
    pub fn dumps(&self) -> impl Iterator<Item = &Url> {
        let dumps = self.links.iter().filter(|link| link.is(DUMP_RELATION));
        dumps.map(|link| &link.href)
    }
}

/// The form that registers a callback at an interface (section 5.2.2, example 5.7).
#[must_use]
pub fn registration_form(callback: &str) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("callbackURI", callback).finish()
}

impl Entry {
    /// Whether it states a change: its kind, or that it expires.
    #[must_use]
    pub fn states_change(&self) -> bool {
        self.md.change.is_some() || self.expires.is_some()
    }

    /// When its resource was deleted, as `expires` states; `None` if it states nothing, or a time after `latest`, or one before another
    /// change or the last modification.
    #[must_use]
    pub fn expired_at(&self, latest: SourceTime) -> Option<SourceTime> {
        let expires = self.expires?;
        let is_over = expires.latest_possible() <= latest;
        let last = self.changed_at().max(self.lastmod);
        let is_last = last.is_none_or(|last| last <= expires);
        (is_over && is_last).then_some(expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, Metadata};

    #[test]
    fn callback_is_registered_as_a_form() {
        let form = registration_form("http://aggregator.org/callback?a&b=c+d");
        let expected = "callbackURI=http%3A%2F%2Faggregator.org%2Fcallback%3Fa%26b%3Dc%2Bd";
        assert_eq!(form, expected);
    }

    #[test]
    fn change_set_without_a_type_is_known_by_its_head_and_its_entries() {
        use ChangeSetEvidence::{Certain, Entries, None as No};
        let url = |path: &str| {
            Url::parse("http://example.com/")
                .unwrap()
                .join(path)
                .unwrap()
        };
        let (own, other) = (url("/set.xml"), url("/other.xml"));
        let link = |which: &str, href: &Url| {
            Link::new(format!("{which} {CHANGE_SET_RELATION}"), href.clone())
        };
        let untyped = Head {
            md: Metadata::default(),
            ..Head::new(Root::Urlset, Capability::ChangeList)
        };
        let naming = |links: &[Link]| Head {
            links: links.to_vec(),
            ..untyped.clone()
        };
        let index = Head {
            root: Root::Sitemapindex,
            ..naming(&[link("prev", &other)])
        };
        let typed = Head {
            is_change_set: true,
            ..Head::new(Root::Urlset, Capability::ChangeList)
        };
        // What an rs:md states counts more.
        let list = Head {
            is_change_set: true,
            ..Head::new(Root::Urlset, Capability::ResourceList)
        };
        let of_version_1 = Head::new(Root::Urlset, Capability::ChangeList);
        // `all`, `some`: which entries state changes. `none`: there are no entries.
        for (head, all, some, none) in [
            (untyped.clone(), Entries, No, No),
            (naming(&[link("current", &own)]), Certain, No, Certain),
            // As a Sitemap does.
            (naming(&[link("current", &other)]), Entries, No, No),
            (naming(&[link("prev", &other)]), Certain, No, Certain),
            (index, No, No, No),
            (typed, Certain, Certain, Certain),
            (list, No, No, No),
            (of_version_1, No, No, No),
        ] {
            for (states, expected) in [(Some(true), all), (Some(false), some), (None, none)] {
                let found = head.change_set_evidence(&[&own], states);
                assert_eq!(found, expected, "{head:?} {states:?}");
            }
        }
    }

    #[test]
    fn only_a_past_time_after_the_last_modification_is_a_deletion() {
        let time = |text: &str| text.parse::<SourceTime>().unwrap();
        for (expires, lastmod, is_deleted) in [
            (Some("2026-01-02T08:00:00Z"), None, true),
            (
                Some("2026-01-02T08:00:00Z"),
                Some("2026-01-02T08:00:00Z"),
                true,
            ),
            (
                Some("2026-01-02T08:00:00Z"),
                Some("2026-01-02T08:00:01Z"),
                false,
            ),
            (Some("2026-01-03T08:00:00Z"), None, true),
            (Some("2026-01-03T08:00:01Z"), None, false),
            // The day is not over.
            (Some("2026-01-03"), None, false),
            (Some("2026-01-02"), None, true),
            (None, Some("2026-01-02T08:00:00Z"), false),
        ] {
            let mut entry = Entry::new(Url::parse("http://example.com/a").unwrap());
            entry.expires = expires.map(time);
            entry.lastmod = lastmod.map(time);
            let expired = entry.expired_at(time("2026-01-03T08:00:00Z"));
            assert_eq!(expired, entry.expires.filter(|_| is_deleted), "{expires:?}");
            // What has happened since counts, too.
            entry.md.datetime = Some(time("2026-01-03T07:59:59Z"));
            let expired = entry.expired_at(time("2026-01-03T08:00:00Z"));
            let is_last = entry.expires >= entry.md.datetime;
            assert_eq!(
                expired,
                entry.expires.filter(|_| is_deleted && is_last),
                "{expires:?}"
            );
        }
    }
}
