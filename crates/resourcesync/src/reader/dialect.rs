//! The elements and attributes of the draft of version 0.1 (sections 3 to 7), as what version 1.0 has in their place.
//!
//! Only what the draft defines is read of XHTML: sitemaps have `xhtml:link` for other purposes, too.

use super::attributes::read_link;
use super::context::Context;
use super::element::rs_attribute;
use super::xml::{Tag, is_readable};
use crate::digest::parse_digest;
use crate::draft::{CHANGE_SET_RELATION, DUMP_RELATION, PARTIAL_RELATION, PushInterface};
use crate::pubsub::encoded;
use crate::uri::{parse_uri, well_known};
use crate::{Digest, Link, Oddities, Oddity, SourceTime};

/// What an `xhtml:link` in the head of a document states.
pub(super) enum HeadLink {
    /// A Change Set or a dump; `None` if the link is unusable.
    Link(Option<Link>),
    /// Where changes are pushed from, or where that is asked for.
    Interface(PushInterface),
}

/// Whether a root element states that the document is a Change Set (section 5.1).
pub(super) fn is_change_set(tag: &Tag<'_>) -> bool {
    let plain = |stated: &str| stated.trim().to_ascii_lowercase().replace(['-', '_'], "");
    rs_attribute(tag, "type").is_some_and(|stated| plain(stated) == "changeset")
}

/// The protocol that a `loc` or an interface is to be used by (sections 4.3.3 and 5.2): at such a `loc` there are no bytes to fetch.
pub(super) fn protocol<'a>(tag: &'a Tag<'_>) -> Option<&'a str> {
    let stated = rs_attribute(tag, "protocol").map(str::trim);
    stated.filter(|protocol| !protocol.is_empty())
}

/// The digest of an `rs:fixity` (section 3.1.3); `None` if it is unusable, or of an algorithm that one of `known` has.
pub(super) fn read_digest(
    algorithm: &str,
    text: &str,
    known: &[Digest],
    oddities: &mut Oddities,
) -> Option<Digest> {
    let value: String = text.split_ascii_whitespace().collect();
    let Some(digest) = parse_digest(algorithm, &value) else {
        oddities.add(Oddity::UnknownDigest);
        return None;
    };
    let mut known = known.iter();
    let Some(first) = known.find(|known| known.algorithm() == digest.algorithm()) else {
        return Some(digest);
    };
    oddities.add_if(Oddity::UnknownDigest, *first != digest);
    None
}

/// The time that an `xhtml:meta` states of its document; `None`: it states something else, or an invalid time.
pub(super) fn read_modified(tag: &Tag<'_>, oddities: &mut Oddities) -> Option<SourceTime> {
    let name = attribute(tag, "name")?.to_ascii_lowercase();
    if !matches!(
        name.trim(),
        "dcterms.modified" | "dcterms:modified" | "dc.date.modified"
    ) {
        return None;
    }
    let content = attribute(tag, "content").unwrap_or_default();
    SourceTime::parse_w3c(content, oddities)
}

/// What an `xhtml:link` in the head of a document states; `None`: nothing of the draft.
pub(super) fn read_head_link(tag: &Tag<'_>, context: &mut Context) -> Option<HeadLink> {
    let Some(protocol) = protocol(tag) else {
        let rel = head_relation(attribute(tag, "rel")?)?;
        let link = read_link(tag, context);
        return Some(HeadLink::Link(link.map(|link| Link { rel, ..link })));
    };
    let href = attribute(tag, "href").unwrap_or_default();
    let Some(href) = context.resolve(href) else {
        context.add(Oddity::BadLink);
        return Some(HeadLink::Link(None));
    };
    Some(HeadLink::Interface(PushInterface {
        protocol: protocol.to_owned(),
        href,
        node: rs_attribute(tag, "pubsubnode").map(|node| node.trim().to_owned()),
    }))
}

/// The link that an `xhtml:link` of an entry stands for; `None`: it means nothing here, or is unusable.
pub(super) fn read_entry_link(tag: &Tag<'_>, context: &mut Context) -> Option<Link> {
    let rel = entry_relation(attribute(tag, "rel")?)?.to_owned();
    read_link(tag, context).map(|link| Link { rel, ..link })
}

/// The category that an `xhtml:meta` of an entry states (section 3.1.7), as a URI that has the text: `data:,Crocodiles`.
pub(super) fn read_category(tag: &Tag<'_>) -> Option<Link> {
    attribute(tag, "name")?;
    let category = attribute(tag, "content")?;
    let uri = format!("data:,{}", encoded(category.trim()));
    Some(Link::new("collection", parse_uri(&uri).ok()?))
}

/// The value of an attribute; `None` if there is none, or nothing in it, or if it can't be read.
fn attribute<'a>(tag: &'a Tag<'_>, wanted: &str) -> Option<&'a str> {
    let value = tag.attribute(wanted)?;
    (is_readable(value) && !value.trim().is_empty()).then_some(value)
}

/// The name of a relation that the draft defines.
fn term(relation: &str) -> Option<&str> {
    well_known(relation)?.strip_prefix("openarchives.org/rs/")
}

/// A relation of a head that means something, in the form that the draft has it.
fn head_relation(rel: &str) -> Option<String> {
    let stated = rel.split_ascii_whitespace();
    let is = |wanted: &str| stated.clone().any(|it| it.eq_ignore_ascii_case(wanted));
    Some(match stated.clone().find_map(term)? {
        "changeset" if is("prev") || is("previous") => format!("prev {CHANGE_SET_RELATION}"),
        "changeset" if is("next") => return None,
        "changeset" => format!("current {CHANGE_SET_RELATION}"),
        "dump" => DUMP_RELATION.to_owned(),
        _ => return None,
    })
}

/// The relation of version 1.0 that a relation of an entry stands for. Others than these group resources (section 3.1.7) if they belong
/// to a vocabulary, as `DCTERMS.subject` does.
fn entry_relation(rel: &str) -> Option<&'static str> {
    let mut category = None;
    for stated in rel.split_ascii_whitespace() {
        match (term(stated), stated.to_ascii_lowercase().as_str()) {
            (Some("mirror"), _) => return Some("duplicate"),
            (Some("partial"), _) => return Some(PARTIAL_RELATION),
            (Some(_), _) => return None,
            (None, "memento") => return Some("memento"),
            (None, "timegate") => return Some("timegate"),
            (None, "timemap") => return Some("timemap"),
            (None, "tag" | "subject" | "category" | "collection") => {
                category = Some("collection");
            }
            (None, other) if other.contains(['.', ':']) => category = Some("collection"),
            (None, _) => {}
        }
    }
    category
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_of_heads_are_those_of_the_draft() {
        let set = "http://www.openarchives.org/rs/changeset";
        for (rel, expected) in [
            (format!("current {set}"), Some(format!("current {set}"))),
            (format!("{set} CURRENT"), Some(format!("current {set}"))),
            (set.to_owned(), Some(format!("current {set}"))),
            (format!("prev\n {set}"), Some(format!("prev {set}"))),
            (
                "prev https://openarchives.org/rs/changeset/".to_owned(),
                Some(format!("prev {set}")),
            ),
            (format!("next {set}"), None),
            (
                "http://www.openarchives.org/rs/dump".to_owned(),
                Some("http://www.openarchives.org/rs/dump".to_owned()),
            ),
            ("http://www.openarchives.org/rs/other".to_owned(), None),
            ("alternate".to_owned(), None),
            ("next".to_owned(), None),
        ] {
            assert_eq!(head_relation(&rel), expected, "{rel}");
        }
    }

    #[test]
    fn relations_of_entries_stand_for_those_of_version_1() {
        for (rel, expected) in [
            (
                "alternate http://www.openarchives.org/rs/mirror",
                Some("duplicate"),
            ),
            (
                "http://www.openarchives.org/rs/partial",
                Some("http://www.openarchives.org/rs/partial"),
            ),
            ("self memento", Some("memento")),
            ("timegate", Some("timegate")),
            ("DCTERMS.subject", Some("collection")),
            ("tag", Some("collection")),
            ("http://example.com/terms/topic", Some("collection")),
            // As sitemaps have it for translations and for mobile pages.
            ("alternate", None),
            ("canonical", None),
            ("http://www.openarchives.org/rs/terms/patch", None),
        ] {
            assert_eq!(entry_relation(rel), expected, "{rel}");
        }
    }
}
