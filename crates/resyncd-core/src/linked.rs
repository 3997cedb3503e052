//! Selects which of the resources that an entry links to are fetched although no list need name them: representations of other media
//! types (section 14.3) and metadata records (section 14.5).
//!
//! Must not know how they are fetched, nor which resources a list names.

use resourcesync::{ContentInfo, Link, SourceTime};

use super::selection::MediaRange;
use crate::ResourceUri;

/// Which linked resources are wanted. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkRules {
    follows_metadata: bool,
    representations: Vec<MediaRange>,
}

/// As what an entry links to another resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkedAs {
    /// It is another representation of the entry's resource.
    Alternate,
    /// It describes the entry's resource.
    Metadata,
}

impl LinkedAs {
    /// The relation of the link.
    #[must_use]
    pub fn rel(self) -> &'static str {
        match self {
            Self::Alternate => "alternate",
            Self::Metadata => "describedby",
        }
    }

    /// The relation of the link back.
    #[must_use]
    pub fn reverse_rel(self) -> &'static str {
        match self {
            Self::Alternate => "canonical",
            Self::Metadata => "describes",
        }
    }

    /// What a link may name such a resource as, whether it is wanted or not.
    fn all_of(link: &Link) -> impl Iterator<Item = Self> {
        [Self::Alternate, Self::Metadata]
            .into_iter()
            .filter(|it| link.is(it.rel()))
    }

    /// Whether a link names a resource in such a way.
    #[must_use]
    pub fn names(link: &Link, uri: &ResourceUri) -> bool {
        Self::all_of(link).next().is_some()
            && ResourceUri::try_from(link.href.clone()).is_ok_and(|href| href == *uri)
    }
}

/// A resource that an entry links to and that is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedResource {
    /// Its URI.
    pub uri: ResourceUri,
    /// As what it is linked.
    pub linked_as: LinkedAs,
    /// When it was last modified, as the link states.
    pub modified: Option<SourceTime>,
    /// Its representation, as the link states.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
}

/// What else decides about the targets of links.
pub struct LinkTargets<'a> {
    /// Whether a resource of that URI may be fetched at all.
    pub allows: &'a dyn Fn(&ResourceUri) -> bool,
    /// Whether a URI is on a host of the Source.
    pub is_own: &'a dyn Fn(&ResourceUri) -> bool,
}

impl LinkRules {
    /// `follows_metadata`: whether what `describedby` names is wanted; `representations`: the media types of alternates that are.
    #[must_use]
    pub fn new(follows_metadata: bool, representations: Vec<MediaRange>) -> Self {
        Self {
            follows_metadata,
            representations,
        }
    }

    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.follows_metadata && self.representations.is_empty()
    }

    /// What they consist of: different for different rules, and empty if nothing is wanted.
    #[must_use]
    pub fn text(&self) -> String {
        let metadata = if self.follows_metadata { "m" } else { "" };
        let ranges = self.representations.iter().map(MediaRange::as_str);
        let ranges = ranges.map(|range| format!("r{} {range}", range.len()));
        metadata.to_owned() + &ranges.collect::<String>()
    }

    /// The wanted ones of the resources that an entry of `owner` links to, each once.
    #[must_use]
    pub fn wanted(
        &self,
        owner: &ResourceUri,
        links: &[Link],
        targets: &LinkTargets<'_>,
    ) -> Vec<LinkedResource> {
        let mut wanted: Vec<LinkedResource> = Vec::new();
        if self.is_empty() {
            return wanted;
        }
        for link in links {
            let Some(linked_as) = self.selects(link, targets) else {
                continue;
            };
            let Ok(uri) = ResourceUri::try_from(link.href.clone()) else {
                continue;
            };
            let is_new = uri != *owner && wanted.iter().all(|other| other.uri != uri);
            if is_new && (targets.allows)(&uri) {
                wanted.push(LinkedResource {
                    uri,
                    linked_as,
                    modified: link.modified,
                    content: link.content.clone(),
                    encoding: link.encoding.clone(),
                });
            }
        }
        wanted
    }

    fn selects(&self, link: &Link, targets: &LinkTargets<'_>) -> Option<LinkedAs> {
        let media_type = link.content.media_type.as_deref();
        let media_type = media_type.filter(|stated| !stated.trim().is_empty());
        LinkedAs::all_of(link).find(|linked_as| match linked_as {
            LinkedAs::Alternate => media_type
                .is_some_and(|stated| self.representations.iter().any(|it| it.includes(stated))),
            // Some Sources state the name of a format in place of a record. It has no type, and is not theirs.
            LinkedAs::Metadata => {
                let is_own = || {
                    ResourceUri::try_from(link.href.clone()).is_ok_and(|uri| (targets.is_own)(&uri))
                };
                self.follows_metadata && (media_type.is_some() || is_own())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    const OWNER: &str = "http://e.org/a";

    fn link(rel: &str, href: &str, media_type: Option<&str>) -> Link {
        let mut link = Link::new(rel, Url::parse(href).unwrap());
        link.content.media_type = media_type.map(str::to_owned);
        link
    }

    #[track_caller]
    fn check(rules: &LinkRules, links: &[Link], expected: &[(&str, LinkedAs)]) {
        let targets = LinkTargets {
            allows: &|uri| uri.url().host_str() != Some("forbidden.org"),
            is_own: &|uri| uri.url().host_str() == Some("e.org"),
        };
        let owner = ResourceUri::parse(OWNER).unwrap();
        let found = rules.wanted(&owner, links, &targets);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.uri.as_str(), it.linked_as))
            .collect();
        assert_eq!(found, expected);
    }

    fn rules(follows_metadata: bool, ranges: &[&str]) -> LinkRules {
        let ranges = ranges.iter().map(|range| MediaRange::parse(range).unwrap());
        LinkRules::new(follows_metadata, ranges.collect())
    }

    #[test]
    fn alternate_is_wanted_by_the_type_that_its_link_states() {
        let links = [
            link("alternate", "http://e.org/a.pdf", Some("Application/PDF")),
            link("alternate", "http://e.org/a.html", Some("text/html")),
            link("alternate", "http://e.org/a.txt", None),
            link("duplicate", "http://e.org/b.pdf", Some("application/pdf")),
            link(
                "Alternate via",
                "http://e.org/a.pdf#top",
                Some("application/pdf"),
            ),
            link(
                "alternate",
                "http://forbidden.org/a.pdf",
                Some("application/pdf"),
            ),
            link("alternate", OWNER, Some("application/pdf")),
            link("alternate", "urn:x:a", Some("application/pdf")),
        ];
        let pdf = ("http://e.org/a.pdf", LinkedAs::Alternate);
        check(&rules(true, &["application/pdf"]), &links, &[pdf]);
        check(&rules(true, &[]), &links, &[]);
        check(&LinkRules::default(), &links, &[]);
    }

    #[test]
    fn name_of_a_format_is_no_metadata_record() {
        let links = [
            link("describedby", "http://e.org/a.dc", None),
            link("describedby", "http://purl.org/dc/terms/", None),
            link("describedby", "http://purl.org/dc/terms/", Some(" ")),
            link("describedBy", "http://other.org/a.dc", Some("text/xml")),
            link("profile", "http://e.org/profile", None),
        ];
        let own = ("http://e.org/a.dc", LinkedAs::Metadata);
        let other = ("http://other.org/a.dc", LinkedAs::Metadata);
        check(&rules(true, &[]), &links, &[own, other]);
        check(&rules(false, &["*/*"]), &links, &[]);
    }

    #[test]
    fn different_rules_have_different_texts() {
        assert_eq!(LinkRules::default().text(), "");
        let all = [
            rules(false, &[]),
            rules(true, &[]),
            rules(false, &["text/*"]),
            rules(true, &["text/*"]),
            rules(false, &["text/*", "a/b"]),
        ];
        for (place, one) in all.iter().enumerate() {
            let texts = all[place + 1..].iter().map(LinkRules::text);
            assert!(texts.into_iter().all(|other| other != one.text()));
        }
    }
}
